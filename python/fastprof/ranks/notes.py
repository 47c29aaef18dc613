"""Notes of a rank report: missing ranks, differences between ranks, the end of a job that hung."""

from collections.abc import Sequence
from statistics import fmean

from fastprof.names import readable
from fastprof.ranks.between import pace_ms
from fastprof.ranks.health import unlike_gpus
from fastprof.ranks.model import RankRow, WorkBetweenSteps, named
from fastprof.ranks.row import RankRun
from fastprof.report.figures import duration, plural

#: Most files and groups named.
_SKIPPED = 10
_GROUPS = 4
#: Step times of ranks that wait for each other are within this share of their mean.
_IN_STEP = 0.05
#: Shorter times outside of the steps are no hang: in ms, and in steps.
_LEAST_MS = 1000.0
_LEAST_STEPS = 5.0
_NAMED = 3


def rank_notes(
    runs: Sequence[RankRun],
    missing: Sequence[int],
    signal: str,
    plain: bool,
    why_not: str,
    groups: Sequence[Sequence[int]],
    skipped: Sequence[tuple[str, str]],
    between: Sequence[WorkBetweenSteps],
) -> list[str]:
    """Return the notes.

    Args:
        signal: the definition of waiting; empty if own work is unknown.
        plain: own work leaves out waiting for a CPU.
        why_not: why no rank is late, if none is.
        groups: ranks that were judged among themselves.
        skipped: files that were left out, and why.
        between: work of ranks between their steps while others waited; the verdict has the first.
    """
    rows = [run.row for run in runs]
    notes = [note for note in (why_not, end_text(runs)) if note]
    if missing:
        notes.append(
            f"Without a file: {named(missing)}. Whether "
            f"{'it is' if len(missing) == 1 else 'they are'} late is not known: a rank that hangs "
            "or is killed leaves no file."
        )
    notes += [
        work.text
        for work in between[1:]
        if work.phase != between[0].phase or work.rank not in between[0].also
    ]
    notes += [f"Left out: {path}: {reason}." for path, reason in skipped[:_SKIPPED]]
    if len(skipped) > _SKIPPED:
        notes.append(f"Left out: {plural(len(skipped) - _SKIPPED, 'more file')}.")
    if signal == "backward":
        notes.append(
            "The own work of backward is unknown, so all of backward counts as waiting for other "
            "ranks; a rank whose backward is slow is missed."
        )
    elif signal == "autograd":
        notes.append(
            "In backward, only functions written in Python count as own work: the rest may be "
            "waiting for other ranks. Only its CPU time shows a rank whose backward is slow in "
            "C++."
        )
    elif signal == "none":
        notes.append("How long ranks wait for each other is not known: own work is the whole step.")
    if plain:
        notes.append(
            "Own work leaves out waiting for a CPU, which differs more from step to step than the "
            "work of ranks."
        )
    if len(groups) > 1:
        of = "; ".join(named(group) for group in groups[:_GROUPS])
        notes.append(
            f"{len(groups)} groups of ranks have steps of different length ({of}"
            f"{'; ...' if len(groups) > _GROUPS else ''}): each rank was compared with its group."
        )
    compared = {rank for group in groups for rank in group}
    apart = [row for row in rows if row.rank not in compared]
    if apart:
        notes.append(
            f"Not compared: {steps_apart(apart)}, unlike the others, which therefore do not wait "
            f"for {'it' if len(apart) == 1 else 'them'} in each step."
        )
    elif len(groups) < 2:
        notes += _unequal_steps(rows, between)
    notes += _different_steps(rows)
    notes += _different_setup(rows)
    notes += unlike_gpus(rows)
    return notes


def steps_apart(rows: Sequence[RankRow]) -> str:
    """Return how many steps some ranks made, and how long these took."""
    said = [
        f"rank {row.rank} made {plural(row.steps, 'step')} of {duration(row.step_ms)}"
        for row in rows[:_GROUPS]
    ]
    more = f", and {plural(len(rows) - _GROUPS, 'more rank')}" if len(rows) > _GROUPS else ""
    return ", ".join(said) + more


def _different_steps(rows: Sequence[RankRow]) -> list[str]:
    notes = []
    counts = {row.rank: str(row.steps) for row in rows}
    if len(set(counts.values())) > 1:
        notes.append(f"Measured steps differ: {_by_value(counts)}. Times are means per step.")
    return notes


def _unequal_steps(rows: Sequence[RankRow], between: Sequence[WorkBetweenSteps]) -> list[str]:
    notes = []
    known = [row for row in rows if row.step_ms]
    if len(known) > 1:
        paces = [pace_ms(row, between) for row in known]
        if max(paces) - min(paces) > _IN_STEP * fmean(paces):
            steps = [(row.step_ms, row.rank) for row in known]
            (low, low_rank), (high, high_rank) = min(steps), max(steps)
            notes.append(
                f"Steps do not take equally long ({duration(low)} on rank {low_rank}, "
                f"{duration(high)} on rank {high_rank}): the ranks do not wait for each other in "
                "every step, or different steps were recorded."
            )
    return notes


def _different_setup(rows: Sequence[RankRow]) -> list[str]:
    notes = []
    setups = {row.rank: dict(row.setup) for row in rows}
    for what in dict.fromkeys(name for setup in setups.values() for name in setup):
        values = {rank: setup.get(what, "n/a") for rank, setup in setups.items()}
        if len(set(values.values())) > 1:
            notes.append(f"Not the same on all ranks: {what} ({_by_value(values)}).")
    return notes


def _by_value(values: dict[int, str]) -> str:
    """``100 on ranks 0, 1; 80 on rank 2``, the most frequent value first."""
    groups: dict[str, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    most = sorted(groups.items(), key=lambda item: -len(item[1]))
    text = "; ".join(f"{value} on {named(ranks)}" for value, ranks in most[:3])
    return text + (f"; {plural(len(most) - 3, 'more value')}" if len(most) > 3 else "")


def end_text(runs: Sequence[RankRun]) -> str:
    """Return which ranks worked outside of the steps while the others did not; '': none did.

    A job that hangs and is ended leaves such files: the last step of no rank has ended, so no
    step shows who hung.
    """
    times = [run.between["outside"].ms for run in runs if "outside" in run.between]
    steps = [run.row.step_ms for run in runs if run.row.step_ms]
    if len(runs) < 2 or len(times) < len(runs) or not steps:
        return ""
    busy = [(run, run.between["outside"].function) for run in runs]
    found = [(run, function) for run, function in busy if function is not None]
    if min(times) < max(_LEAST_MS, _LEAST_STEPS * max(steps)) or not found:
        return ""
    if len(found) > len(runs) // 2:
        return ""
    there = "; ".join(
        f"rank {run.row.rank}{_host(run)} in {function.text}" for run, function in found[:_NAMED]
    )
    if len(found) > _NAMED:
        there += f"; {plural(len(found) - _NAMED, 'more rank')} elsewhere"
    return (
        f"Outside of the steps (between epochs, after the last step) each rank spent "
        f"{duration(min(times))} or more: {there}; the others in no function of the program. They "
        "may have waited for it: a job that hung and was ended looks like this."
    )


def _host(run: RankRun) -> str:
    return "" if run.row.host is None else f" ({readable(run.row.host, 60)})"
