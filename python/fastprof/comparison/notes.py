"""Notes on a comparison, in sentences."""

from collections.abc import Sequence

from fastprof.comparison.runs import STEP, Run
from fastprof.report.figures import chosen_percent, plural, with_percent
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS


def notes(before: Sequence[Run], after: Sequence[Run], *, noise: float) -> tuple[str, ...]:
    """Return the notes that apply to these two sides."""
    single = len(before) == len(after) == 1
    stepped = all(run.steps for run in (*before, *after))
    out = []
    if stepped and single:
        out.append(
            "One run per side: the intervals show how steps vary within these runs, not how two "
            f"runs of one program differ. Therefore a change of a row by up to "
            f"{chosen_percent(noise)} counts as none; several runs per side (--before, --after) "
            "measure that difference."
        )
    for side, runs in (("before", before), ("after", after)):
        out += [note for run in runs for note in _of_run(side, run, single)]
    if not stepped:
        out.append("Not every file has steps: times are of the whole run, and nothing is tested.")
    phases = {run.report.phase for run in (*before, *after)}
    measured = stepped and phases == {RUN_PHASES[STEPS]}
    out.append(
        "Figures of functions and kernels are of "
        + ("measured steps" if measured else "the whole recording")
        + (", warm-up included, per step" if stepped and not measured else "")
        + (". They are not tested, because that needs several runs per side." if single
           else "; functions are tested by their runs' means (Benjamini-Hochberg).")
    )  # fmt: skip
    if any(run.without_waits.hidden_ms for run in (*before, *after)):
        out.append("Waits of threads other than the training thread are left out of the functions.")
    return tuple(out)


def _of_run(side: str, run: Run, single: bool) -> list[str]:
    out = []
    if run.left_out:
        out.append(
            f"Left out of the run {side} ({run.label}), because step times were not steady yet: "
            f"{plural(run.left_out, 'step')} after its warm-up."
        )
    if run.left_out is None:
        effect = "no test of them" if single else "its mean may contain a warm-up"
        out.append(
            f"The step times of the run {side} ({run.label}) do not become steady: {effect}."
        )
    used = len(run.series[STEP].values) if STEP in run.series else 0
    measured = run.report.steps.measured
    if used and used + (run.left_out or 0) < measured:
        out.append(
            f"Of {measured} measured steps, the run {side} ({run.label}) kept the last {used} "
            "individually; the statistics cover these."
        )
    if run.interrupted:
        busy = "The machine was busy" if run.busy else "The machine was also used"
        effect = " Therefore nothing is tested."
        if not run.busy:
            effect = " A difference of that size is not called a change."
        out.append(
            f"{busy} during the run {side} ({run.label}): other programs took about "
            f"{with_percent(run.interrupted)} of the steps' time, judged by how often the "
            f"training thread was taken off its CPU.{effect if single else ''}"
        )
    return out
