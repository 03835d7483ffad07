"""Stock transformers, the other side of token forcing: the model with our weights, its execution modes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
import transformers
from transformers import AutoConfig, DynamicCache, PreTrainedModel
from transformers.utils import logging

if TYPE_CHECKING:
    from .formats import Checkpoint

LOGIT_ROWS = 64  # positions whose logits exist at a time
CHUNK = 32  # positions of a piece in the chunked mode
PAD = 16  # padding in front of the longest row of a batch


def stock_model(checkpoint: Checkpoint, device: torch.device | str = "cpu") -> PreTrainedModel:
    """The transformers model with the checkpoint's weights in bf16 on a device, by transformers' own loader."""
    config = AutoConfig.for_model(**checkpoint.config)
    names = config.architectures or []
    if len(names) != 1 or not hasattr(transformers, names[0]):
        raise ValueError(f"{checkpoint.source}: architectures is {names}, expected one class of transformers")
    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model, info = getattr(transformers, names[0]).from_pretrained(
            None,
            config=config,
            state_dict={name: checkpoint.tensor(name) for name in checkpoint.names()},
            dtype=torch.bfloat16,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    finally:
        if bar:
            logging.enable_progress_bar()
    for kind in ("missing_keys", "unexpected_keys"):
        if info[kind]:
            keys = ", ".join(sorted(info[kind]))
            raise ValueError(f"{checkpoint.source}: {kind.replace('_', ' ')} for {names[0]}: {keys}")
    return model.eval().to(device)


# A mode runs ids[:-1] and gives the final hidden rows of positions start …: they predict ids[start + 1:].


def _prefill(model: PreTrainedModel, ids: list[int], start: int) -> torch.Tensor:
    out = model.base_model(input_ids=torch.tensor([ids[:-1]], device=model.device), use_cache=False)
    return out.last_hidden_state[0, start:]


def _pieces(model: PreTrainedModel, pieces: list[list[int]]) -> torch.Tensor:
    known = inspect.signature(type(model.base_model).forward).parameters
    name = "cache" if "cache" in known else "past_key_values"  # renamed within transformers 5
    cache = {name: DynamicCache(config=model.config)}
    inputs = [torch.tensor([p], device=model.device) for p in pieces]
    outs = [model.base_model(input_ids=x, use_cache=True, **cache) for x in inputs]
    return torch.cat([out.last_hidden_state[0] for out in outs])


def _chunked(model: PreTrainedModel, ids: list[int], start: int) -> torch.Tensor:
    inputs = ids[:-1]
    return _pieces(model, [inputs[i : i + CHUNK] for i in range(0, len(inputs), CHUNK)])[start:]


def _decode(model: PreTrainedModel, ids: list[int], start: int) -> torch.Tensor:
    return _pieces(model, [ids[: start + 1], *([i] for i in ids[start + 1 : -1])])[start:]


def _batched(model: PreTrainedModel, ids: list[int], start: int) -> torch.Tensor:
    """The sequence with two of its own suffixes, padded on the left."""
    inputs = ids[:-1]
    rows = [inputs, inputs[len(inputs) // 2 :], inputs[len(inputs) * 3 // 4 :]]
    width = len(inputs) + PAD
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows], device=model.device)
    out = model.base_model(
        input_ids=torch.tensor([[0] * (width - len(r)) + r for r in rows], device=model.device),
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
    )
    return out.last_hidden_state[0, PAD + start :]


# mode → (hidden rows, rows the head sees in one call)
MODES: dict[str, tuple[Callable[[PreTrainedModel, list[int], int], torch.Tensor], int]] = {
    "prefill": (_prefill, LOGIT_ROWS),
    "chunked": (_chunked, CHUNK),
    "decode": (_decode, 1),
    "batched": (_batched, LOGIT_ROWS),
}


@torch.inference_mode()
def stock_logits(
    model: PreTrainedModel, prompt: Sequence[int], emitted: Sequence[int], mode: str = "prefill"
) -> Iterator[torch.Tensor]:
    """The logits that precede each emitted token, in fp32 on the CPU, LOGIT_ROWS positions at a time."""
    if not prompt:
        raise ValueError("token forcing: the prompt is empty; the first token needs a prefix")
    vocab = model.config.vocab_size
    for what, ids in (("prompt", prompt), ("answer", emitted)):
        for i, token in enumerate(ids):
            if not 0 <= token < vocab:
                raise ValueError(f"token forcing: {what} token {i} is {token}, expected 0 to {vocab - 1}")
    rows, at_once = MODES[mode]
    head = model.get_output_embeddings()
    for block in rows(model, [*prompt, *emitted], len(prompt) - 1).split(LOGIT_ROWS):
        yield torch.cat([head(part) for part in block.split(at_once)]).float().cpu()
