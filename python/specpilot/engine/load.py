"""From names to an engine: checkpoints, the memory plan, weights, drafter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .. import _C, zoo
from ..devices import resolve
from ..drafters import DRAFTERS, Drafter, TargetParts
from ..drafters.dflash_config import DFlashConfig
from ..formats import Checkpoint, CheckpointError, open_checkpoint
from ..formats.q8_weight import q8_bytes
from ..loading import OnDevice, TensorSource
from ..models import MODELS, ModelConfig, Target
from ..models.decoder import check_sizes, layer_shape
from ..progress import bar
from .engine import Engine, buffer_bytes
from .memory import MemoryPlan, plans, weight_bytes

log = logging.getLogger("specpilot")
DEFAULT_CONTEXT = 8192


def load(
    target: str | Path = zoo.DEFAULT_TARGET,
    drafter: str | Path | None = "auto",
    *,
    weights: str = "w12",
    drafter_weights: str = "q8",
    device: str = "cpu",
    max_context: int | None = None,
    threads: int | None = None,
    to_bf16: bool = False,
    progress: bool = False,
) -> Engine:
    """Loads a target, and a drafter if there is one, into an engine.

    ``target``       a short name ("smollm2-135m"), a directory (safetensors or w12), a .gguf file or a Hub name
    ``drafter``      the same for a drafter; "auto" looks the target up in the table of known pairs; None decodes without
    ``weights``      "w12" (12-bit lossless, packed while loading) or "bf16"; the tokens are the same
    ``drafter_weights``  "q8" (8 bits, and a copy of the target's head in 8 bits), "w12" or "bf16": other drafts, the same tokens
    ``device``       "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (a GPU if there is one that can be used, else the CPU)
    ``max_context``  positions of prompt and generation that the KV cache is made for (default: the model's, at most 8192)
    ``threads``      CPU threads, of this process (default: one per core, or SPECPILOT_THREADS)
    ``to_bf16``      permits fp16 and fp32 checkpoints, rounded to bf16: not lossless, and said so
    ``progress``     draws a bar on standard error

    Raises ValueError (CheckpointError for files) naming what does not fit, DeviceError for a GPU that cannot be used, MemoryError
    with the numbers when memory is short.
    """
    if weights not in ("w12", "bf16"):
        raise ValueError(f"weights={weights!r}, expected 'w12' or 'bf16'")
    if drafter_weights not in ("q8", "w12", "bf16"):
        raise ValueError(f"drafter_weights={drafter_weights!r}, expected 'q8', 'w12' or 'bf16'")
    where = resolve(device)
    if threads is not None:
        _C.set_threads(threads)
    with ExitStack() as stack:
        checkpoint = stack.enter_context(open_checkpoint(target, to_bf16))
        config = _target_config(checkpoint)
        check_sizes(config, checkpoint)
        context = _context(max_context, config, checkpoint.source)
        drafts = _open_drafter(drafter, checkpoint, to_bf16)
        make_drafter, draft_config = None, None
        if drafts is not None:
            stack.enter_context(drafts)
            make_drafter = _drafter_class(drafts)
            draft_config = DFlashConfig.from_dict(drafts.config, drafts.source)
        for plan in _plans(
            where, checkpoint, config, drafts, draft_config, weights, drafter_weights, context
        ):
            plan.check(checkpoint.source)

        if where.type == "cuda":
            stack.enter_context(torch.cuda.device(where))  # kernels start on the current device
        margin = draft_config.block_size if draft_config else 1
        with bar("loading", progress) as update:
            tensors = _on(where, checkpoint)
            model: Target = MODELS[config.architecture](config, tensors, weights, context + margin, update)
        draft_model = None
        if drafts is not None and make_drafter is not None:
            parts = TargetParts(
                source=checkpoint.source,
                architecture=config.architecture,
                hidden=config.hidden_size,
                layers=config.num_layers,
                vocab=config.vocab_size,
                embedding=model.embedding,
                head=model.head,
            )
            draft_model = make_drafter(drafts.config, _on(where, drafts), parts, drafter_weights)
        if where.type == "cuda":
            torch.cuda.empty_cache()  # the room in which weights were laid out
        return Engine(
            model,
            draft_model,
            checkpoint.tokenizer(),
            max_context=context,
            stop_ids=checkpoint.eos_token_ids(),
            cost_key=_cost_key(config, draft_config, weights, drafter_weights),
        )


def _target_config(checkpoint: Checkpoint) -> ModelConfig:
    named = checkpoint.config.get("architectures")
    if isinstance(named, list) and named and named[0] in DRAFTERS:
        raise ValueError(
            f"target {checkpoint.source}: {named[0]} is a drafter; name it as drafter=…, and as target the model it was made for"
        )
    try:
        return ModelConfig.from_dict(checkpoint.config)
    except CheckpointError as e:
        raise CheckpointError(f"{checkpoint.source}: {e}") from None


def _context(asked: int | None, config: ModelConfig, source: str) -> int:
    limit = config.max_position_embeddings
    if asked is None:
        return min(limit, DEFAULT_CONTEXT)
    if not isinstance(asked, int) or not 1 <= asked <= limit:
        raise ValueError(
            f"max_context={asked!r}, expected 1 to {limit}: {source} was trained for {limit} positions"
        )
    return asked


def _open_drafter(drafter: str | Path | None, target: Checkpoint, to_bf16: bool) -> Checkpoint | None:
    if drafter == "auto":
        drafter = zoo.known_drafter(target)
        if drafter is None:
            log.warning(
                "no drafter is known for %s: decoding one token at a time (name one: drafter=…)",
                target.source,
            )
    return None if drafter is None else open_checkpoint(drafter, to_bf16)


def _drafter_class(drafts: Checkpoint) -> Callable[..., Drafter]:
    named = drafts.config.get("architectures") or ["(none)"]
    if named[0] not in DRAFTERS:
        known = ", ".join(DRAFTERS.names())
        raise ValueError(
            f"drafter {drafts.source}: architecture {named[0]!r} is not a drafter; known: {known}"
        )
    return DRAFTERS[named[0]]


def _on(device: torch.device, checkpoint: Checkpoint) -> TensorSource:
    return checkpoint if device.type == "cpu" else OnDevice(checkpoint, device)


def _plans(
    device: torch.device,
    checkpoint: Checkpoint,
    config: ModelConfig,
    drafts: Checkpoint | None,
    draft_config: DFlashConfig | None,
    weights: str,
    drafter_weights: str,
    context: int,
) -> list[MemoryPlan]:
    lasting = {"weights": weight_bytes(checkpoint.nbytes, weights)}
    largest = max((2 * torch.Size(checkpoint.shape(name)).numel() for name in checkpoint.names()), default=0)
    layers = [(config.num_layers, layer_shape(config))]
    block, taps = 1, 0
    if drafts is not None and draft_config is not None:
        lasting["drafter"] = weight_bytes(drafts.nbytes, drafter_weights)
        if drafter_weights == "q8":
            lasting["drafter"] += q8_bytes(config.vocab_size, config.hidden_size)
        layers.append((draft_config.layers, draft_config.shape))
        block, taps = draft_config.block_size, len(draft_config.tap_layers)
    buffers = buffer_bytes(layers, config.vocab_size, context, block, taps)
    return plans(device, lasting, buffers, largest)


def _cost_key(
    config: ModelConfig, draft_config: DFlashConfig | None, weights: str, drafter_weights: str
) -> dict[str, Any]:
    """What step times depend on besides the machine; the models by all that is read of their configs."""
    return {
        "target": asdict(config),
        "drafter": asdict(draft_config) if draft_config else None,
        "weights": weights,
        "drafter_weights": drafter_weights,
    }
