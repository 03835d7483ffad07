"""The outside control: a plain torch decoder in bf16, its decode step and its prefill in CUDA graphs.

    python bench/gpu/torch_ar.py --model qwen3-8b --contexts 1024,8192,32768 --prefill 2048,8192

Random weights, cuBLAS linears fused as engines fuse them (q|k|v, gate|up; residuals added by the product itself), torch's RMSNorm,
scaled_dot_product_attention over a static KV cache by the fastest backend at that context. No torch.compile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median

import torch
import torch.nn.functional as F
from shapes import MODELS, TINY, Model
from tables import Lines, arguments, device_of, finish, markdown, numbers, state_text
from timing import Recorded, load_of, measure
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from specpilot.models.config import rope_tables

BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


@dataclass(frozen=True)
class TorchLayer:
    """bf16, by rows of output: ``qkv`` [(H + 2 Hkv) D, hidden], ``out`` [hidden, H D], ``gate_up`` [2 I, hidden], ``down``
    [hidden, I]; norms [hidden], head norms [D] or None."""

    input_norm: Tensor
    qkv: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class TorchModel:
    """Weights of a decoder; random normal of deviation 0.02, norms 1, unless they are put in later."""

    def __init__(self, model: Model, device: str, length: int) -> None:
        """``length``: positions that rotary tables cover."""
        generator = torch.Generator(device).manual_seed(0)

        def weight(n: int, k: int) -> Tensor:
            w = torch.empty(n, k, dtype=torch.bfloat16, device=device)
            return w.normal_(0, 0.02, generator=generator)

        def norm(n: int) -> Tensor:
            return torch.ones(n, dtype=torch.bfloat16, device=device)

        self.model, self.device, s = model, device, model.layer
        head_norm = norm(s.head_dim) if model.config.qk_norm else None
        self.layers = []
        for _ in range(model.config.num_layers):
            qkv, out, gate_up, down = (weight(m.n, m.k) for m in model.layer_matrices)
            self.layers.append(
                TorchLayer(norm(s.hidden), qkv, head_norm, head_norm, out, norm(s.hidden), gate_up, down)
            )
        self.norm = norm(s.hidden)
        self.head, self.embedding = (weight(model.head.n, s.hidden) for _ in range(2))
        cos, sin = (t.to(device) for t in rope_tables(model.config, length))
        self.cos, self.sin = torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)

    def kv(self, length: int) -> Tensor:
        """A cache [layers, 2, Hkv, length, D] of random K and V."""
        s = self.model.layer
        shape = (self.model.config.num_layers, 2, s.kv_heads, length, s.head_dim)
        return torch.empty(shape, dtype=torch.bfloat16, device=self.device).normal_()

    def logits(self, ids: Tensor, kv: Tensor, start: int) -> Tensor:
        """Of the last of ``ids`` (int64 [n], at positions from ``start``; n = 1 unless start = 0): bf16 [1, vocab]. K and V of
        the ids are written to ``kv``, whose positions before ``start`` are read."""
        s, n = self.model.layer, len(ids)
        cos, sin = self.cos[start : start + n, None], self.sin[start : start + n, None]
        heads, both = s.heads, s.heads + s.kv_heads
        hidden = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            x = F.rms_norm(hidden, (s.hidden,), layer.input_norm, s.eps)
            qkv = torch.mm(x, layer.qkv.t()).view(n, both + s.kv_heads, s.head_dim)
            qk = qkv[:, :both]
            if layer.q_norm is not None and layer.k_norm is not None:
                q = F.rms_norm(qk[:, :heads], (s.head_dim,), layer.q_norm, s.eps)
                qk = torch.cat((q, F.rms_norm(qk[:, heads:], (s.head_dim,), layer.k_norm, s.eps)), 1)
            qk = torch.addcmul(qk * cos, qk.roll(s.head_dim // 2, -1), sin)
            kv[i, 0, :, start : start + n] = qk[:, heads:].transpose(0, 1)
            kv[i, 1, :, start : start + n] = qkv[:, both:].transpose(0, 1)
            attended = self._attend(qk[:, :heads], kv[i, :, :, : start + n])
            hidden.addmm_(attended, layer.out.t())
            x = F.rms_norm(hidden, (s.hidden,), layer.post_norm, s.eps)
            gate, up = torch.mm(x, layer.gate_up.t()).chunk(2, -1)
            hidden.addmm_(F.silu(gate) * up, layer.down.t())
        last = F.rms_norm(hidden[-1:], (s.hidden,), self.norm, s.eps)
        return torch.mm(last, self.head.t())

    def _attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """``q`` [n, H, D], ``kv`` [2, Hkv, positions, D] → [n, H D]."""
        s, n = self.model.layer, len(q)
        k, v = kv[None, 0], kv[None, 1]
        if (
            n == 1
        ):  # the query heads of a KV head are rows that see the same keys: no backend repeats the keys
            q = q.view(1, s.kv_heads, -1, s.head_dim)
            return F.scaled_dot_product_attention(q, k, v, scale=s.scale).reshape(1, -1)
        q = q.transpose(0, 1)[None]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=s.scale, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(n, -1)


class TorchPass:
    """A captured pass: ``recorded.launch()`` enqueues it, ``recorded.us()`` times it. ``ids`` are its inputs, ``next`` [1] the
    token that it chooses; a decode step feeds that to itself."""

    def __init__(
        self, model: TorchModel, kv: Tensor, start: int, rows: int, backend: SDPBackend | None
    ) -> None:
        self.backend = backend.name if backend else "default"
        self.ids = torch.zeros(rows, dtype=torch.int64, device=model.device)
        self.next = torch.zeros(1, dtype=torch.int64, device=model.device)

        def run(_: int) -> None:
            torch.argmax(model.logits(self.ids, kv, start), -1, out=self.next)
            if rows == 1:
                self.ids.copy_(self.next)

        chosen: AbstractContextManager[object] = sdpa_kernel(backend) if backend else nullcontext()
        with torch.no_grad(), chosen:
            self.recorded = Recorded(run, 1, model.device)

    def run(self) -> None:
        """Enqueues it ``recorded.calls`` times."""
        self.recorded.launch()


def torch_step(model: TorchModel, context: int) -> TorchPass:
    """One decode step behind ``context`` positions."""
    return _fastest(model, context, 1)


def torch_prefill(model: TorchModel, tokens: int) -> TorchPass:
    """A prompt of so many tokens, up to the first token of the answer."""
    return _fastest(model, 0, tokens)


def _fastest(model: TorchModel, start: int, rows: int) -> TorchPass:
    """By attention backend."""
    kv = model.kv(start + rows)
    if model.device != "cuda":
        return TorchPass(model, kv, start, rows, None)
    return min(_each_backend(model, kv, start, rows), key=lambda p: median(p.recorded.us() for _ in range(3)))


def _each_backend(model: TorchModel, kv: Tensor, start: int, rows: int) -> Iterator[TorchPass]:
    errors = []
    for backend in BACKENDS:
        try:
            yield TorchPass(model, kv, start, rows, backend)
        except RuntimeError as e:  # not for this shape, or not in this build of torch
            errors.append(f"{backend.name}: {e}")
    if len(errors) == len(BACKENDS):
        raise RuntimeError("no attention backend of torch takes this shape: " + "; ".join(errors))


def main() -> int:
    parser = arguments(__doc__, "torch_ar.jsonl")
    parser.add_argument("--model", choices=MODELS, default="qwen3-8b")
    parser.add_argument("--contexts", type=numbers, default=[1024, 8192, 32768], metavar="N,N,…")
    parser.add_argument("--prefill", type=numbers, default=[2048, 8192], metavar="N,N,…")
    args = parser.parse_args()
    device = device_of(args)
    model = TINY if args.dry_run else MODELS[args.model]
    contexts, prompts = ([16, 32], [8]) if args.dry_run else (args.contexts, args.prefill)
    weights = TorchModel(model, device, max([*contexts, *prompts]) + 1)
    passes = {f"step at {c}": torch_step(weights, c) for c in contexts}
    passes |= {f"prefill of {n}": torch_prefill(weights, n) for n in prompts}
    load = load_of(next(iter(passes.values())).recorded, device)
    found = measure({k: p.recorded.us for k, p in passes.items()}, args.epochs, load)
    lines = Lines(args.out, device)
    for name, p in passes.items():
        us = found[name]
        record = {
            "op": "torch",
            "shape": f"{model.name} {name}",
            "variant": p.backend,
            "median_us": us.median,
        }
        lines.add({**record, "mad_us": us.mad, **found.state})
    rows = [[name, found[name].median, found[name].mad, p.backend] for name, p in passes.items()]
    text = markdown([f"torch, {model.name}", "µs", "±", "attention"], rows) + "\n\n" + state_text(found.state)
    return finish(lines.facts, text, [], args.dry_run)


if __name__ == "__main__":
    sys.exit(main())
