"""Whole steps of the engine against the outside control: decoding, verify passes at long context, prompts, and a profile.

    python bench/gpu/step.py --model qwen3-8b
    python bench/gpu/step.py --model llama-3.1-8b --contexts 1024,8192 --widths 1,64
    python bench/gpu/step.py --target DIR --model qwen3-8b     a checkpoint of that shape in place of random weights

Interleaved in one process: AR with w12 and with bf16 weights through the public interface, "best" (bf16, every linear by the faster
of our kernel and cuBLAS), and bench/gpu/torch_ar.py. Then passes of given widths behind given contexts in graphs, prompts, and the
profiler's view of all of them. ``--parts`` leaves some out.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import torch
from engine_arms import check_shape, fill_cache, pass_bytes, prefill_us, step_us, verify_pass
from faster_linear import Choices, use_faster
from kernel_times import Busy, profiled, steady
from read_ceiling import reader
from shapes import MODELS, TINY, Model
from step_table import Passes, Results, bars, tables
from subjects import shapes, subject
from subjects.random_model import random_subject
from tables import Lines, arguments, device_of, finish, numbers
from timing import Recorded, copies_of, load_of, measure
from torch_ar import TorchModel, TorchPass, torch_prefill, torch_step

from specpilot import Engine, load

Engines = Mapping[str, Engine]  # by the format of their weights


@dataclass
class Plan:
    """What to measure. ``steps``: of a decoding sample."""

    contexts: list[int] = field(default_factory=lambda: [1024, 8192, 32768])
    widths: list[int] = field(default_factory=lambda: [1, 16, 64])
    prompts: list[int] = field(default_factory=lambda: [2048, 8192])
    steps: int = 32
    epochs: int = 15
    device: str = "cuda"

    @property
    def length(self) -> int:
        """Positions that caches must hold."""
        return max(*self.contexts, *self.prompts) + max(*self.widths, self.steps) + 2


def replays_us(torch_pass: TorchPass, steps: int, device: str) -> float:
    """µs of a replay among ``steps``, by the host's clock, as ``step_us`` has it."""
    begin = perf_counter()
    for _ in range(steps):
        torch_pass.run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - begin) * 1e6 / (steps * torch_pass.recorded.calls)


# The parts yield whenever ``out`` has something new.


def decoding(engines: Engines, control: TorchModel, plan: Plan, out: Results) -> Iterator[None]:
    """One-token decoding behind the first context, all arms, and their profiles."""
    context, steps, device = plan.contexts[0], plan.steps, plan.device
    step = torch_step(control, context)
    arms = {f"ar-{w}": partial(step_us, e, context, steps) for w, e in engines.items()}
    arms["torch"] = partial(replays_us, step, steps, device)
    out.decoding = measure(arms, plan.epochs, load_of(step.recorded, device))
    yield
    for name, sample in arms.items():
        kernels, count = steady(profiled(sample, device), steps)
        if count:
            passes_each = step.recorded.calls if name == "torch" else 1
            out.profiles[name] = Busy.of(kernels, count * passes_each)
    yield


def passes(engines: Engines, control: TorchModel, plan: Plan, out: Results) -> Iterator[None]:
    """Passes of all widths behind all contexts; the control's step; the attention of a pass against a read of its K and V."""
    device, model = plan.device, control.model
    for engine in engines.values():
        fill_cache(engine)
    for context in plan.contexts:
        calls = {
            (w, m): Recorded(verify_pass(e, m, context), 1, device)
            for w, e in engines.items()
            for m in plan.widths
        }
        arms = {f"{w} {m}": recorded.us for (w, m), recorded in calls.items()}
        arms["torch"] = torch_step(control, context).recorded.us
        one = torch.empty(model.kv_bytes(context), dtype=torch.uint8, device=device)
        caches = [one.clone() for _ in range(copies_of(one.nbytes, device))]
        arms["read KV"] = reader(caches, device).us
        found = measure(arms, plan.epochs, load_of(next(iter(calls.values())), device))
        attention = {}
        for (w, m), recorded in calls.items():
            kernels = profiled(recorded.launch, device)
            if device == "cuda":
                busy = Busy.of(kernels, recorded.calls) if kernels else None
                attention[w, m] = busy.part("attention") if busy else 0.0
        nbytes = {w: pass_bytes(e, context) for w, e in engines.items()}
        out.passes[context] = Passes(found, attention, nbytes, model.config.num_layers)
        yield


def prompts(engines: Engines, control: TorchModel, plan: Plan, out: Results) -> Iterator[None]:
    device = plan.device
    for n in plan.prompts:
        arms: dict[str, Callable[[], float]] = {w: partial(prefill_us, e, n) for w, e in engines.items()}
        control_pass = torch_prefill(control, n)
        arms["torch"] = control_pass.recorded.us
        out.prompts[n] = measure(arms, max(3, plan.epochs // 3), load_of(control_pass.recorded, device))
        yield
        for name, sample in arms.items():
            kernels = profiled(sample, device)
            if kernels:
                calls = 2 * control_pass.recorded.calls if name == "torch" else 1  # an untimed launch first
                out.profiles[f"{name}, prompt of {n}"] = Busy.of(kernels, calls)
        yield


PARTS = {"decoding": decoding, "passes": passes, "prompts": prompts}


def run(
    engines: Engines,
    control: TorchModel,
    plan: Plan,
    best: Engine | None = None,
    parts: Sequence[str] = tuple(PARTS),
) -> Iterator[Results]:
    """Everything; gives what there is so far whenever that is more. ``engines`` and ``control`` have one shape, and room for
    ``plan.length`` positions; ``best`` decodes alone."""
    results = Results(control.model.name, plan.contexts[0], plan.device == "cuda")
    for name in parts:
        with_best = {**engines, "best": best} if best and name == "decoding" else engines
        for _ in PARTS[name](with_best, control, plan, results):
            yield results
        if plan.device == "cuda":
            torch.cuda.empty_cache()


def make_engine(target: str, model: Model, weights: str, length: int, device: str) -> Engine:
    """Of a checkpoint, or of random weights in the shape of ``model`` where ``target`` is empty."""
    if target:
        placed = {"device": device} if device == "cuda" else {}
        return load(target, drafter=None, weights=weights, max_context=length, **placed)
    tiny = {"name": "qwen3-8b", "layers": model.config.num_layers, "changes": shapes.TINY}
    made = random_subject(device=device, **(tiny if model is TINY else {"name": model.name}))
    alone = replace(made, draft_config=None, drafter=None)
    return subject.engine(alone, max_context=length, weights=weights)


def best_of(engine: Engine, choices: Choices) -> Engine:
    """The control with the same weights and, where that is faster, cuBLAS."""
    again = Engine(copy.copy(engine.target), max_context=engine.max_context)
    return use_faster(again, choices)


def main() -> int:
    parser = arguments(__doc__, "step.jsonl")
    defaults = Plan()
    parser.add_argument("--model", choices=MODELS, default="qwen3-8b")
    parser.add_argument("--target", default="", help="checkpoint; default: random weights")
    parser.add_argument("--weights", default="w12,bf16")
    parser.add_argument("--contexts", type=numbers, default=defaults.contexts, metavar="N,N,…")
    parser.add_argument("--widths", type=numbers, default=defaults.widths, metavar="M,M,…")
    parser.add_argument("--prompts", type=numbers, default=defaults.prompts, metavar="N,N,…")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    args = parser.parse_args()
    device, model = device_of(args), TINY if args.dry_run else MODELS[args.model]
    plan = Plan(args.contexts, args.widths, args.prompts, args.steps, args.epochs, device)
    if args.dry_run:
        plan = Plan([8, 16], [1, 4], [12], steps=4, epochs=2, device=device)
    lines = Lines(args.out, device)
    engines = {w: make_engine(args.target, model, w, plan.length, device) for w in args.weights.split(",")}
    for engine in engines.values():
        check_shape(engine, model)
    parts, choices = args.parts.split(","), Choices((1,), device)
    best = best_of(engines["bf16"], choices) if "bf16" in engines and "decoding" in parts else None
    written: set[tuple[str, ...]] = set()
    shown: set[str] = set()
    for results in run(engines, TorchModel(model, device, plan.length), plan, best, parts):
        for record in results.records():
            key = record["op"], record["shape"], record["variant"]
            if key not in written:
                lines.add(record)
                written.add(key)
        for text in tables(results):
            if text not in shown:
                print(f"{text}\n", flush=True)  # what a run cut short leaves
                shown.add(text)
    whole = [*tables(results), *([choices.table()] if best else [])]
    return finish(lines.facts, "\n\n".join(whole), bars(results), args.dry_run, lines)


if __name__ == "__main__":
    sys.exit(main())
