"""Token forcing of a benchmark's answers, after the clock has stopped."""

from __future__ import annotations

from collections.abc import Callable

from ..devices import resolve
from ..forcing import Answer, calibrate, stock_model, verdict
from ..formats import open_checkpoint
from .report import Report

CALIBRATION = 32  # answers that eps is measured on


def check(
    report: Report,
    target: str,
    max_new_tokens: int,
    stage: Callable[[str, int], Callable[[int], None]],
    device: str = "cpu",
) -> None:
    """Judges every arm against stock transformers on ``device``; arms with the same tokens share a verdict.

    ``stage(name, total)`` starts a stage of the progress display and gives its ``tick``.
    """
    with open_checkpoint(target) as checkpoint:
        model = stock_model(checkpoint, resolve(device))
        stop_ids = checkpoint.eos_token_ids()
    reference = [r for r in report.runs if r.arm == report.reference]
    chosen = reference[:: -(-len(reference) // CALIBRATION)]  # spread over all sets
    tick = stage("token forcing: calibration", len(chosen))
    report.calibration = calibrate(model, [(r.prompt_ids, r.tokens) for r in chosen], tick=tick)
    judged: dict[tuple[Answer, ...], str] = {}
    for arm in report.arms:
        answers = tuple(Answer(r.prompt_ids, r.tokens) for r in report.runs if r.arm == arm)
        if answers not in judged:
            judged[answers] = arm
            report.verdicts[arm] = verdict(
                model,
                answers,
                report.calibration,
                max_new_tokens=max_new_tokens,
                stop_ids=stop_ids,
                tick=stage(f"token forcing: {arm}", len(answers)),
            )
        report.verdicts[arm] = report.verdicts[judged[answers]]
