"""config.json of a DFlash drafter: what is understood, what is refused, and whether it belongs to a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..layers import LayerShape
from ..rope import rope_parameters
from .base import TargetParts

# Keys of dflash_config. The last three scale or bend the embeddings or logits; where they move the argmax they are refused.
_UNDERSTOOD = (
    "block_size",
    "mask_token_id",
    "target_layer_ids",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
)
# Arithmetic of relatives of DFlash, which may stand in either place.
_FOREIGN = (
    "attention_sink_bias",
    "attention_value_scale",
    "causal_head",
    "conv_kernel_size",
    "draft_vocab_size",
    "projector_type",
    "selector_rank",
    "shift_label",
    "speculators_model_type",
)
_LAYER_TYPES = ("full_attention", "sliding_attention")
_MAX_LAYERS, _MAX_BLOCK, _MAX_HEAD_DIM = 1024, 1024, 512  # the last two are limits of the ops


def default_tap_layers(target_layers: int, draft_layers: int) -> list[int]:
    """Evenly spread from layer 1 to the third from the end; halves round to even."""
    if draft_layers == 1:
        return [target_layers // 2]
    step = (target_layers - 4) / (draft_layers - 1)
    return [round(1 + i * step) for i in range(draft_layers)]


@dataclass(frozen=True)
class DFlashConfig:
    """``causal``: per layer, whether a row of the block sees only the rows before it. ``window``: 0, or the shortest sliding
    window of a layer. ``valid_vocab``: ids that may be proposed."""

    shape: LayerShape
    layers: int
    vocab: int
    valid_vocab: int
    block_size: int
    mask_token: int
    tap_layers: tuple[int, ...]
    target_layers: int
    attention_bias: bool
    causal: tuple[bool, ...]
    window: int
    rope: Mapping[str, Any]
    max_position: int

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], source: str) -> DFlashConfig:
        def fail(what: str) -> ValueError:
            return ValueError(f"drafter {source}: {what}")

        own = config.get("dflash_config") or {}
        if not isinstance(own, Mapping):
            raise fail(f"dflash_config is {own!r}, expected an object")

        def value(key: str, default: Any, expected: str, ok: Callable[[Any], bool]) -> Any:
            found = own.get(key, config.get(key))
            found = default if found is None else found
            if not ok(found):
                raise fail(f"{key} is {found!r}, expected {expected}")
            return found

        def size(key: str, default: int | None = None, low: int = 1, high: int = 2**31 - 1) -> int:
            return value(
                key,
                default,
                f"an integer from {low} to {high}",
                lambda v: type(v) is int and low <= v <= high,
            )

        def positive(key: str, default: float | None = None) -> float:
            return float(
                value(key, default, "a positive number", lambda v: type(v) in (int, float) and 0 < v < 1e38)
            )

        unknown = [key for key in own if key not in _UNDERSTOOD] + [
            key for key in _FOREIGN if config.get(key) is not None
        ]
        if unknown:
            raise fail(
                f"{', '.join(unknown)} in its config is arithmetic that DFlash does not have; plain DFlash is supported"
            )
        value("hidden_act", "silu", "'silu'", lambda v: v == "silu")
        value("input_embedding_scale", 1.0, "1.0", lambda v: v == 1.0)
        positive("output_multiplier", 1.0)

        heads, layers = size("num_attention_heads"), size("num_hidden_layers", high=_MAX_LAYERS)
        hidden, target_layers = size("hidden_size"), size("num_target_layers")
        kv_heads = value(
            "num_key_value_heads",
            None,
            f"a positive divisor of {heads} attention heads",
            lambda v: type(v) is int and v > 0 and heads % v == 0,
        )
        head_dim = size("head_dim", hidden // heads, high=_MAX_HEAD_DIM)
        if head_dim % 2:
            raise fail(f"head_dim is {head_dim}, expected an even number (rotary halves)")
        types = value(
            "layer_types",
            ["full_attention"] * layers,
            f"full_attention or sliding_attention for each of {layers} layers",
            lambda v: isinstance(v, list) and len(v) == layers and all(t in _LAYER_TYPES for t in v),
        )
        taps = value(
            "target_layer_ids",
            default_tap_layers(target_layers, layers),
            "a list of layers",
            lambda v: isinstance(v, list) and all(type(j) is int for j in v),
        )
        sliding = [t == "sliding_attention" for t in types]
        causal = value("is_causal", None, "true or false", lambda v: v is None or type(v) is bool)
        return cls(
            shape=LayerShape(
                hidden=hidden,
                intermediate=size("intermediate_size"),
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                eps=positive("rms_norm_eps"),
                scale=head_dim**-0.5,
                norm_denom=hidden,
                head_norm_denom=head_dim,
            ),
            layers=layers,
            vocab=size("vocab_size"),
            valid_vocab=size("vocab_size"),
            block_size=size("block_size", 16, low=2, high=_MAX_BLOCK),
            mask_token=size("mask_token_id", low=0),
            tap_layers=tuple(taps),
            target_layers=target_layers,
            attention_bias=value("attention_bias", False, "true or false", lambda v: type(v) is bool),
            causal=tuple(sliding) if causal is None else (causal,) * layers,
            window=size("sliding_window") if any(sliding) else 0,
            rope=rope_parameters(config),
            max_position=size("max_position_embeddings"),
        )

    def check_target(self, target: TargetParts, source: str) -> None:
        """Raises unless this drafter was made for such a target."""
        pairs = (
            ("hidden size", self.shape.hidden, target.hidden),
            ("target layers", self.target_layers, target.layers),
            ("vocabulary", self.vocab, target.vocab),
        )
        who = f"drafter {source} does not fit target {target.source}"
        for what, mine, theirs in pairs:
            if mine != theirs:
                raise ValueError(f"{who}: {what} {mine} in the drafter, {theirs} in the target")
        if not 0 <= self.mask_token < target.vocab:
            raise ValueError(
                f"{who}: mask token {self.mask_token}, the target has ids 0 to {target.vocab - 1}"
            )
        # The last layer is left out: stock taps it behind the final norm, so no layer output would be what it was trained on.
        bad = [j for j in self.tap_layers if not 0 <= j < target.layers - 1]
        if bad or not self.tap_layers:
            taps = list(self.tap_layers)
            raise ValueError(
                f"{who}: it taps layers {taps}, the target offers layers 0 to {target.layers - 2}"
            )
