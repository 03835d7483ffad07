"""specpilot decode | pack | unpack | info | bench."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(
    name="specpilot",
    help="Lossless speculative decoding: faster tokens, the same tokens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
err = Console(stderr=True, highlight=False)

TargetOption = Annotated[
    str, typer.Option(help="Default model's name, a directory, a .gguf file or a Hub name.")
]
DrafterOption = Annotated[
    str, typer.Option(help='A drafter directory or Hub name, "auto" (known pairs) or "none".')
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads (default: one per core).")
]
DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:N, or auto (a GPU if one can be used, else the CPU).")
]
WeightsOption = Annotated[str, typer.Option(help="w12 (12-bit lossless) or bf16.")]
DrafterWeightsOption = Annotated[
    str, typer.Option(help="q8 (8 bits), w12 or bf16: other drafts, the same tokens.")
]


def _drafter(name: str) -> str | None:
    return None if name == "none" else name


@app.command()
def decode(
    prompt: Annotated[str, typer.Argument(help='The prompt, or "-" to read it from standard input.')],
    target: TargetOption = "smollm2-135m",
    drafter: DrafterOption = "auto",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Stop after this many tokens.")] = 256,
    verify: Annotated[str, typer.Option(help="auto, chain or ar.")] = "auto",
    ar: Annotated[
        bool, typer.Option("--ar", help="Decode one token at a time (same as --verify ar).")
    ] = False,
    weights: WeightsOption = "w12",
    drafter_weights: DrafterWeightsOption = "q8",
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop string; may be given several times.")] = None,
    enable_thinking: Annotated[
        bool | None,
        typer.Option("--enable-thinking/--no-enable-thinking", help="For chat templates that know it."),
    ] = None,
    max_context: Annotated[
        int | None, typer.Option(min=1, help="Positions the KV cache is made for.")
    ] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    to_bf16: Annotated[
        bool, typer.Option("--to-bf16", help="Round an fp16 or fp32 checkpoint to bf16 (not lossless).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of streaming text.")
    ] = False,
) -> None:
    """Decode one prompt and stream the text; then one line of statistics."""
    from . import load

    text = sys.stdin.read() if prompt == "-" else prompt
    verify = "ar" if ar else verify
    engine = load(
        target=target,
        drafter=None if verify == "ar" else _drafter(drafter),
        weights=weights,
        drafter_weights=drafter_weights,
        device=device,
        max_context=max_context,
        threads=threads,
        to_bf16=to_bf16,
        progress=not as_json,
    )
    options = {
        "max_new_tokens": max_new_tokens,
        "verify": verify,
        "system": system,
        "stop": stop or [],
        "enable_thinking": enable_thinking,
    }
    if as_json:
        result = engine.decode(text, **options)
        print(json.dumps(result.to_dict(), ensure_ascii=False))
    else:
        stream = engine.stream(text, **options)
        try:
            for piece in stream:
                sys.stdout.write(piece)
                sys.stdout.flush()
        except KeyboardInterrupt:  # while writing: within a step, the stream ends by itself
            stream.close()
        sys.stdout.write("\n")
        sys.stdout.flush()
        result = stream.result
        err.print(f"[dim]{result.stats.line()} · {result.finish_reason}[/dim]")
    if result.finish_reason == "interrupted":
        raise typer.Exit(130)


def _pack_table(report) -> Table:
    table = Table("tensor", "shape", "stored as", "bits/weight", "exceptions", box=None)
    for row in report.tensors:
        table.add_row(
            escape(row.name),
            "x".join(map(str, row.shape)),
            row.stored,
            f"{row.bits_per_weight:.4f}",
            str(row.exceptions),
        )
    return table


@app.command()
def pack(
    src: Annotated[Path, typer.Argument(help="Hugging Face directory with bf16 safetensors.")],
    dst: Annotated[Path, typer.Argument(help="Directory to write; must not exist, or be empty.")],
    to_bf16: Annotated[
        bool, typer.Option("--to-bf16", help="Round fp16 or fp32 tensors to bf16 first (not lossless).")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing directory.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the total.")] = False,
) -> None:
    """Pack a checkpoint into 12-bit lossless weights; every tensor is verified bit for bit."""
    from .formats.pack import pack_directory
    from .progress import bar

    with bar("packing") as progress:
        report = pack_directory(src, dst, to_bf16=to_bf16, force=force, progress=progress)
    if not quiet:
        err.print(_pack_table(report))
    print(
        f"{report.bits_per_weight:.4f} bits per weight, {report.bytes_out / 1e6:.1f} MB from {report.bytes_in / 1e6:.1f} MB: {dst}"
    )


@app.command()
def unpack(
    src: Annotated[Path, typer.Argument(help="Directory written by `specpilot pack`.")],
    dst: Annotated[Path, typer.Argument(help="Directory to write; must not exist, or be empty.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing directory.")] = False,
) -> None:
    """Give the original safetensors back, byte for byte."""
    from .formats.pack import unpack_directory
    from .progress import bar

    with bar("unpacking") as progress:
        report = unpack_directory(src, dst, force=force, progress=progress)
    print(f"{report.bytes_out / 1e6:.1f} MB: {dst}")


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """What was built, what runs on this machine, and its measured memory bandwidth."""
    from . import _C
    from .machine import describe

    if threads:
        _C.set_threads(threads)
    facts = describe(bandwidth=True)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    out = Console(highlight=False)
    for key in ("version", "build", "cuda", "cpu", "tier", "order_id", "threads", "torch", "transformers"):
        out.print(f"{key:12} {facts[key]}")
    for gpu in facts["gpus"]:
        out.print(f"{'gpu':12} {gpu}", markup=False)
    out.print(
        f"{'bandwidth':12} {facts['memory_bandwidth_gbps']:.1f} GB/s read, measured, {facts['threads']} threads"
    )
    table = Table("op", "variants that run here, best first", "not here", box=None)
    for op, rows in facts["variants"].items():
        here = ", ".join(f"{r['name']}" for r in rows if r["runs"])
        table.add_row(op, here, ", ".join(r["name"] for r in rows if not r["runs"]) or "-")
    out.print(table)


def _refuse(ctx: typer.Context, options: tuple[str, ...], why: str) -> None:
    """Refuses those of the options that the command line names."""
    for option in options:
        source = ctx.get_parameter_source(option)
        if source and source.name == "COMMANDLINE":
            raise ValueError(f"--{option.replace('_', '-')} {why}")


@app.command()
def bench(
    ctx: typer.Context,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(help='JSONL files or directories of them, one {"turns": [...]} a line.'),
    ] = None,
    target: TargetOption = "smollm2-135m",
    drafter: DrafterOption = "auto",
    arms: Annotated[
        str,
        typer.Option(
            help="Comma-separated: ar, chain or auto (width by measured cost), each with -bf16 or -w12."
        ),
    ] = "ar-bf16,ar-w12,auto-w12",
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts per file.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=2, help="Tokens per prompt.")] = 128,
    check: Annotated[
        bool, typer.Option("--check", help="Token forcing: score every emitted token by stock transformers.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Instead: times of a step by width, kept for --verify auto.")
    ] = False,
    weights: WeightsOption = "w12",
    drafter_weights: DrafterWeightsOption = "q8",
    out: Annotated[Path, typer.Option(help="Directory for report.json, report.md and report.png.")] = Path(
        "bench-out"
    ),
    max_context: Annotated[int | None, typer.Option(min=1)] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
) -> None:
    """End-to-end speed of the arms, interleaved in one process, with bit equality of their tokens. Or --table."""
    from .benchmark import BenchConfig, run
    from .benchmark.table import TableConfig, measure

    if table:
        decoding = ("prompts", "arms", "limit", "max_new_tokens", "check")
        _refuse(ctx, decoding, "is for decoding, and --table decodes nothing: leave one of them out")
        config = TableConfig(
            target, _drafter(drafter), weights, drafter_weights, max_context, device, threads
        )
        steps = measure(config, console=err)
        steps.write(out)
        Console().print(steps.table())
        written = escape(f"{out}/report.json, report.png; for verify=auto: {steps.keep()}")
        err.print(f"[dim]{written}[/dim]", soft_wrap=True)
        return
    _refuse(
        ctx,
        ("weights", "drafter_weights"),
        "goes with --table: otherwise --arms names the target's weights, and drafters are in 8 bits",
    )
    report = run(
        BenchConfig(
            target=target,
            drafter=_drafter(drafter),
            arms=tuple(arms.split(",")),
            prompts=tuple(prompts or ()),
            limit=limit,
            max_new_tokens=max_new_tokens,
            check=check,
            max_context=max_context,
            device=device,
            threads=threads,
        ),
        console=err,
    )
    report.write(out)
    Console().print(report.table())
    err.print(f"[dim]{out}/report.json, report.md, report.png[/dim]")
    if not report.ok:
        raise typer.Exit(1)


def main() -> None:
    """Entry point: every failure is one line on standard error and a non-zero exit code."""
    from ._C import KernelError

    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away
        sys.exit(141)
    except (KernelError, ValueError, OSError, RuntimeError, MemoryError) as e:
        if os.environ.get("SPECPILOT_TRACEBACK"):
            raise
        message = " ".join(str(e).split()) or type(e).__name__
        err.print(f"error: {message}", markup=False, soft_wrap=True)
        sys.exit(1)
