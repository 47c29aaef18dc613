"""Compares single ranks with all ranks of a large job, of which only histograms are known.

A group's histograms give the median of all ranks in each block of steps, and the spread of the
ranks' means in a window.  A rank is late if its own blocks of steps show it, and if it is so far
above the median that chance would not put any of so many equal ranks there.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fastprof.ranks.cause import own_ms, section_of_step, tells
from fastprof.ranks.groups.summary import CPU, RankGroup, quantile_ms
from fastprof.ranks.judge import FALSE_ALARMS, LATE_SHARE, Lateness, Series, judge_one
from fastprof.ranks.live.compared import STRICT, Compared
from fastprof.ranks.model import LateStep, RankRow
from fastprof.ranks.row import Between, RankRun, RankSteps
from fastprof.ranks.verdict import ENGINE, LatenessTest, Verdict, straggler_of, worth
from fastprof.report.phase_names import BACKWARD
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.student import critical

#: These quantiles of equal ranks differ by two standard deviations.
_LOW, _HIGH = 0.1587, 0.8413
_FREEDOM = 1000


def compare_with_all(
    group: RankGroup, runs: Sequence[RankRun], signal: str, starts: Sequence[int], size: int
) -> Compared | None:
    """Compare some ranks with the median of all; None: too few blocks of steps are known.

    Args:
        group: all ranks.
        runs: those that are known one by one.
        signal: defines waiting.
        starts, size: first steps of the blocks to compare, and steps per block.
    """
    step_ms = quantile_ms(group.walls[signal], 0.5)
    middle = _median_run(group, signal, step_ms, starts, size)
    found = _judge(group, runs, middle, signal, step_ms, size)
    if found is None or found.late or signal not in ENGINE or not group.works.get(CPU):
        return found
    if any(run.cuda for run in runs):  # a host that waits for a GPU uses a CPU
        return found
    # Work in C++ in backward looks like waiting, except for its CPU time.
    by_cpu = _judge(group, runs, middle, CPU, step_ms, size)
    latest = None if by_cpu is None else next(iter(by_cpu.late), None)
    if by_cpu is None or latest is None or _does_less(found, by_cpu, latest):
        return found
    return replace(by_cpu, runs=found.runs, hangs=found.hangs)


def _judge(
    group: RankGroup,
    known: Sequence[RankRun],
    middle: RankRun,
    signal: str,
    step_ms: float,
    size: int,
) -> Compared | None:
    """Compare ``known`` ranks with ``middle``, the median rank, whose steps take ``step_ms``."""
    works = group.works[signal]
    if middle.steps is None or not tells(middle, signal):
        return None
    usual = dict(zip(middle.steps.numbers, own_ms(middle, middle.steps, signal), strict=True))
    spread = (quantile_ms(works, _HIGH) - quantile_ms(works, _LOW)) / 2
    base = max(0.0, quantile_ms(works, 0.5) - fmean(usual.values()))
    chance = 1.0 / STRICT / sum(works.values())
    enough = max(LATE_SHARE * step_ms, spread * critical(1.0 - 2.0 * chance, _FREEDOM))
    runs: list[RankRun] = []
    lates: list[Lateness] = []
    owns: list[Series] = []
    for run in known:
        if run.steps is None or not tells(run, signal):
            continue
        own = Series(run.steps.numbers, own_ms(run, run.steps, signal))
        late = Series(
            own.numbers, [ms - usual[n] - base for n, ms in zip(own.numbers, own.ms, strict=True)]
        )
        one = judge_one(late, step_ms, 1.0 / FALSE_ALARMS)
        if worth(one) < enough:
            one = replace(one, late=False, windows=())
        hung = {step for step, _ in one.hangs}
        runs, lates, owns = [*runs, run], [*lates, one], [*owns, own.without(hung)]
    if not runs:
        return None
    verdict = Verdict(signal=signal, step_ms=step_ms, seen_from_ms=enough)
    # Add enough copies that the median of them and the other ranks is the median rank.
    for _ in range(len(runs) + 1):
        runs, owns = [*runs, middle], [*owns, Series(list(usual), list(usual.values()))]
        lates = [*lates, Lateness(0.0, 0.0, 0.0, False, (), (), 0.0, len(usual))]
    means = [fmean(own.ms or [0.0]) for own in owns]
    verdict.runs, verdict.test = runs, LatenessTest(signal, False, means, lates, owns)
    if any(worth(one) > 0.0 for one in lates):
        verdict.straggler = straggler_of(runs, verdict.test, step_ms)
    late_ms = dict.fromkeys(verdict.late_ms, verdict)
    hangs = [
        LateStep(run.row.rank, step, ms, section_of_step(run, [middle], signal, step))
        for run, one in zip(runs, lates, strict=True)
        for step, ms in one.hangs
    ]
    return Compared(runs, verdict, late_ms, frozenset(late_ms), hangs, size)


def _does_less(found: Compared, by_cpu: Compared, rank: int) -> bool:
    """Return whether a rank that computes more does less otherwise: then it is not late."""
    own, cpu = (_late_ms(compared, rank) for compared in (found, by_cpu))
    return own is not None and cpu is not None and own < -cpu / 2


def _late_ms(compared: Compared, rank: int) -> float | None:
    verdict = compared.verdict
    if verdict is None or verdict.test is None:
        return None
    pairs = zip(verdict.runs, verdict.test.late, strict=True)
    return next((one.late_ms for run, one in pairs if run.row.rank == rank), None)


def _median_run(
    group: RankGroup, signal: str, step_ms: float, starts: Sequence[int], size: int
) -> RankRun:
    """Return a rank with the median of all ranks in each block of steps and each section."""
    own = [quantile_ms(group.blocks[signal][size, start], 0.5) for start in starts]
    cpu_times, cpu_blocks = group.works.get(CPU), group.blocks.get(CPU, {})
    cpu = None
    if signal in ENGINE and cpu_times:
        times = (cpu_blocks.get((size, start), cpu_times) for start in starts)
        cpu = array("f", [quantile_ms(of, 0.5) for of in times])
    cpu_wait = group.cpu_waits.get(signal)
    wall = [max(step_ms, ms) for ms in own]
    waits = [a - b for a, b in zip(wall, own, strict=True)]
    if signal == "none":
        wall, waits = own, [0.0] * len(own)
    sections: dict[str, list[float]] = {
        name: [quantile_ms(of, 0.5)] * len(own)
        for name, of in group.sections.get(signal, {}).items()
        if name != UNACCOUNTED
    }
    waiting: dict[str, float] = {}
    if signal in ("autograd", "backward", "sections"):
        name = next((name for name in BACKWARD if name in sections), BACKWARD[0])
        name = "barrier" if signal == "sections" else name
        there = sections.get(name, [0.0] * len(own))
        sections[name] = [a + b for a, b in zip(there, waits, strict=True)]
    elif signal == "split":
        waiting[UNACCOUNTED] = fmean(waits)
    rank = -1
    row = RankRow(
        rank=rank, world_size=group.world_size, host=None, path="", steps=len(own), skipped=0,
        step_ms=fmean(wall), p95_ms=None, cv=None, sections=(), waits=(), gpu_utilization=None,
        gpu_compute_ms=None, gpu_communication_ms=None, gpu_waits=None, memory_bytes=None,
        memory_total_bytes=None, setup=(),
    )  # fmt: skip
    steps = RankSteps(
        numbers=array("q", starts),
        wall=array("f", wall),
        sections={name: array("f", of) for name, of in sections.items()},
        communication=array("f", waits) if signal == "split" else None,
        autograd=array("f", waits) if signal == "autograd" else None,
        cpu=cpu,
        gc=None,
        cpu_wait=array("f", [quantile_ms(cpu_wait, 0.5)] * len(own)) if cpu_wait else None,
        gpu_wait=array("f", waits) if signal == "gpu" else None,
    )
    return RankRun(row, steps, waiting, between=_usual_between(group, len(own)))


def _usual_between(group: RankGroup, steps: int) -> dict[str, Between]:
    """Return the median rank's times between its steps; ranks without a phase count as 0."""
    ranks = sum(sum(of.values()) for signal, of in group.works.items() if signal != CPU)
    found = {}
    for phase, of in group.between.items():
        without = max(0, ranks - sum(of.values()))
        found[phase] = Between(quantile_ms({**of, 0: of.get(0, 0) + without}, 0.5) * steps)
    return found
