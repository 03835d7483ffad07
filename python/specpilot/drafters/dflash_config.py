"""config.json of a DFlash drafter: what is understood, what is refused, and whether it belongs to a target."""

from __future__ import annotations

from collections.abc import Mapping
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


def default_tap_layers(target_layers: int, draft_layers: int) -> list[int]:
    """Evenly spread from layer 1 to the third from the end; halves round to even."""
    if draft_layers == 1:
        return [target_layers // 2]
    step = (target_layers - 4) / (draft_layers - 1)
    return [round(1 + i * step) for i in range(draft_layers)]


@dataclass(frozen=True)
class DFlashConfig:
    """``causal``: per layer, whether a row of the block sees only the rows before it. ``window``: 0, or the shortest sliding
    window of a layer."""

    shape: LayerShape
    layers: int
    vocab: int
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
        own: Mapping[str, Any] = config.get("dflash_config") or {}

        def fail(what: str) -> ValueError:
            return ValueError(f"drafter {source}: {what}")

        def need(key: str, kind: type = int) -> Any:
            value = own.get(key, config.get(key))
            if not isinstance(value, kind) or isinstance(value, bool):
                raise fail(f"{key} is {value!r}, expected {kind.__name__}")
            return value

        unknown = [key for key in own if key not in _UNDERSTOOD] + [
            key for key in _FOREIGN if config.get(key) is not None
        ]
        if unknown:
            raise fail(
                f"{', '.join(unknown)} in its config is arithmetic that DFlash does not have; plain DFlash is supported"
            )
        if config.get("hidden_act", "silu") != "silu":
            raise fail(f"hidden_act {config['hidden_act']!r}, expected 'silu'")
        scale = own.get("input_embedding_scale", config.get("input_embedding_scale", 1.0))
        if scale != 1.0:
            raise fail(f"input_embedding_scale {scale}; only 1.0 is supported")
        if not own.get("output_multiplier", config.get("output_multiplier", 1.0)) > 0:
            raise fail("output_multiplier must be positive")

        hidden, heads, layers = need("hidden_size"), need("num_attention_heads"), need("num_hidden_layers")
        head_dim = config.get("head_dim") or hidden // heads
        types = config.get("layer_types") or ["full_attention"] * layers
        wrong = [t for t in types if t not in ("full_attention", "sliding_attention")]
        if wrong or len(types) != layers:
            raise fail(
                f"layer_types {types}, expected full_attention or sliding_attention for each of {layers} layers"
            )
        sliding = [t == "sliding_attention" for t in types]
        causal = config.get("is_causal")
        target_layers = need("num_target_layers")
        taps = own.get("target_layer_ids", config.get("target_layer_ids"))
        block = own.get("block_size", config.get("block_size", 16))
        if not isinstance(block, int) or block < 2:
            raise fail(f"block_size is {block!r}, expected an integer of at least 2")
        return cls(
            shape=LayerShape(
                hidden=hidden,
                intermediate=need("intermediate_size"),
                heads=heads,
                kv_heads=need("num_key_value_heads"),
                head_dim=head_dim,
                eps=need("rms_norm_eps", float),
                scale=head_dim**-0.5,
            ),
            layers=layers,
            vocab=need("vocab_size"),
            block_size=block,
            mask_token=need("mask_token_id"),
            tap_layers=tuple(default_tap_layers(target_layers, layers) if taps is None else taps),
            target_layers=target_layers,
            attention_bias=bool(config.get("attention_bias", False)),
            causal=tuple(sliding) if causal is None else (bool(causal),) * layers,
            window=need("sliding_window") if any(sliding) else 0,
            rope=rope_parameters(config),
            max_position=need("max_position_embeddings"),
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
