"""Seven yes-or-no questions about a training run, and a fix for each no."""

from collections.abc import Callable
from dataclasses import dataclass

from fastprof.findings.draft import percent
from fastprof.findings.measurements import Facts, of_steps
from fastprof.findings.thresholds import LIMITS, USUAL
from fastprof.report.figures import plural
from fastprof.report.model import Report

#: Forward and backward usually take at least this part of a step.
DOMINANT = sum(USUAL[phase].share.low or 0.0 for phase in ("forward", "backward"))
#: Communication counts as overlapped if computation hides this part of it.
OVERLAPPED = 0.80


@dataclass(frozen=True, slots=True)
class Check:
    """One question; ``answer`` None: a signal is missing, and ``value`` names it."""

    text: str
    answer: bool | None
    value: str
    no: str

    @property
    def line(self) -> str:
        """The question, its answer and, after a no, the fix."""
        mark = {True: "[yes]", False: "[no] ", None: "[n/a]"}[self.answer]
        advice = f" No -> {self.no}." if self.answer is False else ""
        return f"{mark} {self.text}: {self.value}.{advice}"


_Answer = tuple[bool | None, str]


def checklist(report: Report) -> tuple[Check, ...]:
    """Return the seven checks of a report, in order.

    They cover measured steps, like findings, in every phase of the run.
    """
    facts = Facts(of_steps(report))
    return tuple(Check(text, *answer(facts), no) for text, answer, no in _CHECKS)


def checklist_lines(report: Report) -> list[str]:
    """Return the checks as lines; without a recorded GPU, its questions share one line."""
    checks = checklist(report)
    if Facts(of_steps(report)).gpu is not None or report.memory is not None:
        return [check.line for check in checks]
    asked = [check for check in checks if check.answer is None and check.text in _OF_A_GPU]
    one = Check(
        "About the GPU", None, f"{plural(len(asked), 'question')} left out, no GPU was recorded", ""
    )
    return [check.line for check in checks if check not in asked] + ([one.line] if asked else [])


def _busy(facts: Facts) -> _Answer:
    gpu = facts.gpu
    value = None if gpu is None else gpu.utilization
    if value is None:
        return None, "the GPU was not recorded"
    return value > (LIMITS["gpu-utilization"].note or 0), percent(value)


def _consistent(facts: Facts) -> _Answer:
    cv = facts.report.shown_steps.cv
    if cv is None or not facts.steps:
        return None, "no step was measured"
    if facts.report.stages:
        return None, "the run has stages with different steps"
    return cv < (LIMITS["step-cv"].warning or 0), f"varies by {percent(cv)}"


def _filled(facts: Facts) -> _Answer:
    memory = facts.report.memory
    if memory is None or memory.share is None:
        return None, "the GPU's memory was not recorded"
    high = LIMITS["gpu-memory-high"].note or 1
    return 0.85 <= memory.share <= high, percent(memory.share)


def _dominant(facts: Facts) -> _Answer:
    forward, backward = facts.phase("forward"), facts.phase("backward")
    if forward is None or backward is None or not facts.steps:
        return None, "no sections forward and backward were recorded"
    share = facts.share(forward + backward)
    return share >= DOMINANT, percent(share)


def _flash(facts: Facts) -> _Answer:
    names = [k.name for k in facts.report.kernels if k.kind == "attention"]
    operators = facts.report.operators
    known = {row.name for row in operators.rows} if operators else set()
    if names or any("scaled_dot_product" in name for name in known):
        return True, plural(len(names), "kernel") if names else "scaled_dot_product_attention"
    if facts.use("bmm").calls or {"aten::bmm", "aten::baddbmm"} & known:
        return False, "batched matrix products, but no attention kernel"
    return None, "no attention was seen"


def _transfers(facts: Facts) -> _Answer:
    gpu = facts.gpu
    if gpu is None or gpu.use is None:
        return None, "the GPU was not recorded"
    share = facts.copied
    return share <= (LIMITS["transfer-share"].warning or 0), f"copies take {percent(share)}"


def _overlapped(facts: Facts) -> _Answer:
    timeline = facts.timeline
    if timeline is None or not timeline.communication_ms:
        return None, "no communication was seen"
    part = timeline.overlap_ms / timeline.communication_ms
    return part >= OVERLAPPED, f"computation hides {percent(part)} of it"


_CHECKS: tuple[tuple[str, Callable[[Facts], _Answer], str], ...] = (
    ("GPU utilization above 80 %", _busy, "speed up data loading, or raise the batch size"),
    (
        "Step time consistent (varies by less than 10 %)",
        _consistent,
        "check data loading, and whether batches differ in size",
    ),
    ("GPU memory used 85 to 95 %", _filled, "change the batch size"),
    (
        "Forward and backward take most of the step (70 % or more)",
        _dominant,
        "make data loading, the optimizer or logging cheaper",
    ),
    ("Flash attention used", _flash, "use scaled_dot_product_attention"),
    (
        "No gaps by transfers (below 5 %)",
        _transfers,
        "keep tensors on the GPU, pin memory, copy with non_blocking=True",
    ),
    (
        "All-reduce overlaps with computation (80 % or more)",
        _overlapped,
        "larger buckets (bucket_cap_mb), a faster interconnect",
    ),
)
#: Questions that only a GPU recording answers.
_OF_A_GPU = frozenset(
    text for text, answer, _ in _CHECKS if answer in (_busy, _filled, _transfers, _overlapped)
)
