"""From a checkpoint's tensors to layers: fusing, run layouts, and a check that nothing is missing or left over.

What is made lies where the tensors lie: ``OnDevice`` brings them to a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from .formats.errors import CheckpointError
from .formats.q8_weight import DrafterFormat, Q8Weight, q8_weight
from .formats.run_layout import RunWeight, run_weight
from .formats.slabs import Slabs
from .layers import Layer, LayerShape, Linear
from .progress import ProgressCallback


class TensorSource(Protocol):
    """Where weights come from: a checkpoint. All tensors lie on one device."""

    @property
    def source(self) -> str: ...

    def names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Tensor: ...


def check_shape(source: TensorSource, name: str, *shape: int) -> None:
    """Refuses a tensor that is not of the shape that the config gives it."""
    got = source.shape(name)
    if tuple(got) != shape:
        raise CheckpointError(
            f"{source.source}: tensor {name} is {list(got)}, by the config it is {list(shape)}"
        )


class OnDevice:
    """A source whose tensors are brought to a device, each as it is asked for."""

    def __init__(self, of: TensorSource, device: torch.device) -> None:
        self._of, self._device = of, device

    @property
    def source(self) -> str:
        return self._of.source

    def names(self) -> list[str]:
        return self._of.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._of.shape(name)

    def tensor(self, name: str) -> Tensor:
        return self._of.tensor(name).to(self._device)


class Loader:
    """Takes tensors out of a checkpoint, one at a time; ``finish`` refuses a checkpoint with tensors nobody asked for.

    ``format`` is that of linear layers; "q8", which rounds them, is for drafters.
    """

    def __init__(
        self, source: TensorSource, format: DrafterFormat, progress: ProgressCallback | None = None
    ) -> None:
        self._source, self._format, self._progress = source, format, progress
        self._names = frozenset(source.names())
        self._taken: set[str] = set()
        self._total = sum(self._bytes(name) for name in self._names)
        self._done = 0
        self._slabs = Slabs()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The bf16 values of a tensor that must have this shape."""
        if name not in self._names:
            raise CheckpointError(f"{self._source.source}: tensor {name} is missing")
        check_shape(self._source, name, *shape)
        value = self._source.tensor(name)
        self.skip(name)
        return value

    def skip(self, name: str) -> None:
        """Counts a tensor as used."""
        if name in self._names and name not in self._taken:
            self._taken.add(name)
            self._done += self._bytes(name)
            if self._progress:
                self._progress(self._done, self._total, name)

    def linear(
        self, parts: Sequence[tuple[str, int]], k: int, bias: bool = False, exact: bool = False
    ) -> Linear:
        """The rows of the named modules stacked: ``[(module, rows), …]``, K columns each; ``exact`` in every format."""
        if len(parts) == 1:
            weight = self.tensor(f"{parts[0][0]}.weight", parts[0][1], k)
        else:
            weight = self._stack(parts, k)
        biases = [self.tensor(f"{name}.bias", n) for name, n in parts] if bias else None
        laid_out = self._exact(weight) if exact else self._lay_out(weight, parts[0][0])
        return Linear(laid_out, torch.cat(biases) if biases else None)

    def _stack(self, parts: Sequence[tuple[str, int]], k: int) -> Tensor:
        """One tensor at a time beside the stack, which is freed before the next is read."""
        stack, row = torch.empty(0), 0
        for name, n in parts:
            part = self.tensor(f"{name}.weight", n, k)
            if row == 0:
                stack = part.new_empty(sum(n for _, n in parts), k)
            stack[row : row + n] = part
            row += n
            del part
        return stack

    def table(self, name: str, n: int, k: int) -> RunWeight:
        """An embedding or a head, exact in every format."""
        return self._exact(self.tensor(f"{name}.weight", n, k))

    def copy(self, weight: RunWeight, name: str) -> Linear:
        """Another model's weight in this one's format: itself where that is exact."""
        return Linear(self._lay_out(weight.to_bf16(), name) if self._format == "q8" else weight)

    def _lay_out(self, weight: Tensor, name: str) -> RunWeight | Q8Weight:
        if self._format != "q8":
            return self._exact(weight)
        try:
            return q8_weight(weight, self._slabs_for(weight))
        except ValueError as e:
            raise CheckpointError(f"{self._source.source}: {name}: {e}; use drafter_weights='w12'") from None

    def _exact(self, weight: Tensor) -> RunWeight:
        exact = "w12" if self._format == "q8" else self._format
        return run_weight([weight], exact, self._slabs_for(weight))

    def _slabs_for(self, weight: Tensor) -> Slabs | None:
        return self._slabs if weight.device.type == "cpu" else None  # huge pages are the CPU's

    def layer(
        self,
        prefix: str,
        shape: LayerShape,
        *,
        qkv_bias: bool,
        out_bias: bool,
        mlp_bias: bool,
        head_norms: bool,
    ) -> Layer:
        """A layer by its Hugging Face names."""
        h, d, inner = shape.hidden, shape.head_dim, shape.intermediate
        attn, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        q, kv = shape.heads * d, shape.kv_heads * d
        return Layer(
            input_norm=self.tensor(f"{prefix}.input_layernorm.weight", h),
            qkv=self.linear(
                [(f"{attn}.q_proj", q), (f"{attn}.k_proj", kv), (f"{attn}.v_proj", kv)], h, qkv_bias
            ),
            q_norm=self.tensor(f"{attn}.q_norm.weight", d) if head_norms else None,
            k_norm=self.tensor(f"{attn}.k_norm.weight", d) if head_norms else None,
            out=self.linear([(f"{attn}.o_proj", h)], q, out_bias),
            post_norm=self.tensor(f"{prefix}.post_attention_layernorm.weight", h),
            gate_up=self.linear([(f"{mlp}.gate_proj", inner), (f"{mlp}.up_proj", inner)], h, mlp_bias),
            down=self.linear([(f"{mlp}.down_proj", h)], inner, mlp_bias),
        )

    def finish(self) -> None:
        """Every tensor must have found its place."""
        left = sorted(self._names - self._taken)
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise CheckpointError(
                f"{self._source.source}: tensors unknown to this architecture: {', '.join(left[:3])}{more}"
            )

    def _bytes(self, name: str) -> int:
        return 2 * torch.Size(self._source.shape(name)).numel()
