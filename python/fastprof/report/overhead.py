"""The profiler's own cost, in figures and in a sentence."""

from dataclasses import replace
from statistics import fmean, median

from fastprof.report.correct import Correction, correct
from fastprof.report.figures import duration, percent_at_most, plural
from fastprof.report.in_run import (
    HookFactors,
    hook_cost,
    is_uneven,
    own_costs,
    running_times,
    unprofiled_step,
)
from fastprof.report.notes import has_functions
from fastprof.report.rows import Overhead
from fastprof.report.run_phases import plain_are_most, view_of
from fastprof.report.step_costs import costs_by_section
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import EVALUATING, RUN_PHASES, STEPS

#: From this part of the run on, the report says that nothing confirms the cost.
_LARGE_COST = 0.1

#: What slower bytecode cost, as a part of the most, if the run does not know it.
_MIDDLE = 0.5

#: The most that the untimed cost of the hooks on torch is, as a multiple of its estimate:
#: :data:`fastprof.session.own_time.UNTIMED` has the measurements.
_UNTIMED_MAY = 1.2

#: After the hook was set or removed, steps take longer for some time: by this much together.
#: Decision 15 has the measurements.
SETTLING_NS = 200_000


def overhead_of(snapshot: Snapshot, *, correct_times: bool) -> Overhead:
    """Return the profiler's cost in a run.

    Args:
        correct_times: whether the hook's cost is subtracted from functions and sections.
    """
    correction = correct(snapshot, enabled=correct_times)
    functions_ms = None if correction.overhead_ns is None else correction.overhead_ns / 1e6
    if not has_functions(snapshot):
        functions_ms = None
    clamped_ms = correction.clamped_ns / 1e6 if functions_ms is not None else 0.0
    bytecode_ms = correction.bytecode_ns / 1e6 if functions_ms is not None else 0.0
    own = own_costs(snapshot)
    sections_ms = None if own.timed is None else (own.timed + own.untimed) / 1e6
    windows_ms = _operators_ns(snapshot) / 1e6
    doubt_ms = 0.0 if _is_known(correction) else _MIDDLE * bytecode_ms
    total_ms = (functions_ms or 0.0) + bytecode_ms - doubt_ms + (sections_ms or 0.0) + windows_ms
    known = functions_ms is not None or sections_ms is not None
    of_steps = _of_steps(snapshot) if known else None
    of_run = None
    if known and snapshot.duration_ns:
        of_run = tuple(
            min(1.0, ms * 1e6 / snapshot.duration_ns) for ms in (total_ms, total_ms + doubt_ms)
        )
    share, most = of_steps[:2] if of_steps else of_run or (None, None)
    after, looked = (of_steps[2], _number(snapshot, "look_steps")) if of_steps else (None, 0)
    found = Overhead(
        total_ms if known else None, share, correction.applied and functions_ms is not None,
        clamped_ms, "", functions_ms, bytecode_ms, sections_ms, windows_ms,
        most_share=most, of_steps=of_steps is not None,
        after_look=after, look_steps=0 if after is None else round(looked),
    )  # fmt: skip
    return replace(found, text=_text(found, snapshot, correction))


def _operators_ns(snapshot: Snapshot) -> int:
    return 0 if snapshot.operators is None else snapshot.operators.cost_ns


def _of_steps(whole: Snapshot) -> tuple[float, float, float | None] | None:
    """Return fastprof's part of the time of all steps after the warm-up, and the most it may be.

    Validation and checkpoints count as well.  Third, its part of that after the full look, of which
    these have their share by steps.  None: there are no such steps.  Waiting for a
    CPU lengthens both the program and fastprof, whose code is timed in quiet moments or without
    long waits: the steps count without it.
    """
    steps, plain = whole.steps, whole.plain_steps
    if not steps.sum_ns or not whole.phases:
        return None
    hook_ns, most_ns = _hook_of_step(whole)
    step_ns = _running_ns(whole)
    plain_steps = 0 if plain is None else plain.measured
    plain_ns = 0.0 if plain is None else _running_ns(replace(whole, steps=plain))
    # Of the steps next to a change of the hook, only those before a window have it.
    before = whole.meta.get("settling_steps")
    others = max(0, steps.apart - plain_steps)
    settling = min(others, before) if isinstance(before, int) else 0
    hooked = steps.measured + settling
    changes = 2 * sum(phase.entries for phase in whole.phases if phase.name == "unprofiled")
    own, n = own_costs(whole), steps.measured + steps.apart
    evaluating_ns = sum(row.wall_ns for row in whole.phases if row.name in EVALUATING)
    untimed_ns = n * own.part * own.untimed
    own_ns = n * own.in_step + own.evaluating
    always_ns = own_ns + own.unhooking + changes * SETTLING_NS + _operators_ns(whole)
    all_ns = (
        hooked * step_ns
        + plain_steps * plain_ns
        + (others - settling) * max(0.0, step_ns - hook_ns)
        + own.unhooking
        + _operators_ns(whole)
        + evaluating_ns
    )
    aside_ns, aside_most_ns = _hook_of_evaluations(whole)
    cost_ns = always_ns + hooked * hook_ns + aside_ns
    most_ns = always_ns + (_UNTIMED_MAY - 1.0) * untimed_ns + hooked * most_ns + aside_most_ns
    after = None
    left = steps.skipped + n - _number(whole, "look_steps")
    if plain_steps and "look_steps" in whole.meta and left > 0:
        with_hook = max(0.0, hooked - _number(whole, "look_measured"))
        after_ns = (
            with_hook * hook_ns
            + (1.0 - _number(whole, "look_own")) * own_ns
            + own.unhooking - _number(whole, "look_unhooking_ns")
            + (changes - _number(whole, "look_changes")) * SETTLING_NS
            + min(1.0, left / n) * aside_ns
        )  # fmt: skip
        time_ns = with_hook * step_ns + max(0.0, left - with_hook) * plain_ns
        time_ns += min(1.0, left / n) * evaluating_ns
        after = min(1.0, max(0.0, after_ns) / time_ns)
    return min(1.0, cost_ns / all_ns), min(1.0, most_ns / all_ns), after


def _hook_of_evaluations(whole: Snapshot) -> tuple[float, float]:
    """Return the hook's cost in validation and checkpoints in ns, and the most it may be."""
    cost = most = 0.0
    for name in EVALUATING:
        if any(row.name == name and row.wall_ns for row in whole.phases):
            of = correct(view_of(whole, name))
            known = 1.0 if _is_known(of) else _MIDDLE
            cost += (of.overhead_ns or 0.0) + known * of.bytecode_ns
            most += (of.overhead_ns or 0.0) + of.bytecode_ns
    return cost, most


def _number(whole: Snapshot, key: str) -> float:
    """Return a number of a run's facts; a file may hold any value."""
    value = whole.meta.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 2**63 else 0.0


def _running_ns(snapshot: Snapshot) -> float:
    """Return the mean time of a step without its waiting for a CPU, in ns.

    The hook's cost as measured in the run is compared with the median step, if that is longer.
    """
    steps, running = snapshot.steps, running_times(snapshot)
    if steps.series.cpu_wait_ns:
        mean_ns = fmean(running)
    else:
        waited = dict(steps.split).get("cpu_wait", 0)
        mean_ns = (steps.sum_ns - waited) / max(1, steps.measured)
    return max(1.0, mean_ns, median(running) if running and steps.unprofiled else 0.0)


def _hook_of_step(whole: Snapshot) -> tuple[float, float]:
    """Return the time in ns that the hook adds to a step with it, and the most it may be."""
    view = view_of(whole, RUN_PHASES[STEPS])
    correction = correct(view)
    if not has_functions(whole) or correction.overhead_ns is None:
        return 0.0, 0.0
    n, thread = whole.steps.measured, training_thread(view)
    cost = sum(costs_by_section(whole, view).values()) - n * own_costs(whole).timed_in_step
    others = 0.0
    for number, (tree, column) in enumerate(zip(view.threads, correction.self_ns, strict=True)):
        if number != thread:
            others += sum(tree.nodes.self_ns) - sum(column)
    # Of this the training thread's waits for locks have a part already.
    part = 1.0 if correction.factors is None else correction.factors.others
    cost += max(0.0, part * others - correction.waits_ns)
    if correction.factors is None:
        # Its time contains waits for a CPU.
        bytecode = correction.bytecode_ns * _running_ns(whole) / whole.steps.sum_ns
        return cost / n + _MIDDLE * bytecode, cost / n + bytecode
    measured = hook_cost(whole)
    return cost / n, max(cost / n, 0.0 if measured is None else measured.high)


# ---- the text ----


def _text(found: Overhead, snapshot: Snapshot, correction: Correction) -> str:
    """Return the cost of the run in sentences."""
    cost = _cost(found, correction)
    if not has_functions(snapshot):
        text = f"{cost}. Functions were not recorded." if cost else "Functions were not recorded."
    elif found.functions_ms is None:
        text = f"Times are as recorded, profiler overhead included: {correction.reason}."
        text = f"{cost}. {text}" if cost else text
    else:
        text = (
            cost
            + _subtracted(correction, found.clamped_ms, alone=found.sections_ms is None)
            + _of_bytecode(found, correction)
            + _measured_in_run(snapshot, correction)
            + _unconfirmed(found, snapshot, correction)
        )
    if snapshot.gpu is not None and snapshot.gpu.counters.get("kernels"):
        text += " The time that CUPTI takes to record the GPU's work is in none of these figures."
    return text


def _cost(found: Overhead, correction: Correction) -> str:
    """Return the figures, without a full stop; empty: no cost is known."""
    if found.estimated_ms is None:
        return ""
    alone = found.sections_ms is None  # functions are the only cost
    took = f"{'The function hook' if alone else 'fastprof'} cost"
    in_all = f"an estimated {duration(found.estimated_ms)}"
    share = percent_at_most(found.share, found.most_share)
    if found.of_steps:
        took = " ".join((took, share, "of the loop's time; in the whole run it cost", in_all))
    else:
        took += f" {in_all}" + (f" ({share} of wall time)" if found.share is not None else "")
    parts = {
        "functions": found.functions_ms,
        f"slower bytecode under the hook{'' if _is_known(correction) else ' up to'}": (
            found.bytecode_ms or None
        ),
        "sections, steps and loaders": found.sections_ms,
        "operator windows": found.windows_ms or None,
    }
    listed = ", ".join(f"{name} {duration(ms)}" for name, ms in parts.items() if ms is not None)
    return took if alone else f"{took}: {listed}"


def _subtracted(correction: Correction, clamped_ms: float, *, alone: bool) -> str:
    """Return how the report treats the hook's cost; ``alone``: no other cost precedes it."""
    it = "; it" if alone else ". The cost of functions"
    if not correction.applied:
        return f"{it} is included in all times: {correction.reason}."
    text = f"{it} was subtracted from all function and section times (steps stay as measured)"
    if round(clamped_ms, 3):  # less has no digits
        text += f", except {duration(clamped_ms)} where a time would have become negative"
    return f"{text}."


def _of_bytecode(found: Overhead, correction: Correction) -> str:
    """Return what the cost of slower bytecode is, and why it may be too high."""
    text = ""
    if found.bytecode_ms and found.sections_ms is None:  # the figures do not list it
        took = "an estimated" if _is_known(correction) else "up to"
        text = f" Bytecode took {took} {duration(found.bytecode_ms)} longer under it."
    if found.bytecode_ms and not _is_known(correction):
        text += (
            ' "Up to" counts all self time of Python functions as bytecode, although operators '
            "on arrays are C code, which the hook does not slow."
        )
    return text


def _unconfirmed(found: Overhead, snapshot: Snapshot, correction: Correction) -> str:
    """Return that the run does not confirm a large cost of functions; empty: it does, or the cost
    is small.
    """
    if (
        correction.factors is not None
        or plain_are_most(snapshot)
        or unprofiled_step(snapshot) is not None
        or not snapshot.steps.measured
        or found.share is None
        or found.share <= _LARGE_COST
    ):
        return ""
    doubt = (
        "the steps without the function hook are too few or too uneven to confirm it"
        if snapshot.steps.unprofiled
        else "no step could be used that ran without the function hook to confirm it"
    )
    return (
        " The cost of functions is the number of calls times what a call cost in a test "
        f"at the start; {doubt}."
    )


def _is_known(correction: Correction) -> bool:
    """Return whether the run itself measured how much slower bytecode was."""
    return correction.factors is not None


def _measured_in_run(snapshot: Snapshot, correction: Correction) -> str:
    if plain_are_most(snapshot):  # the table of a step is of steps without it
        return ""
    step = unprofiled_step(snapshot)
    bounded = ""
    if correction.factors is not None and correction.factors.bound:
        bounded = _beside_limits(correction.factors, applied=correction.applied)
    if step is None:
        hook = hook_cost(snapshot)
        if hook is None or hook.high <= 0 or not is_uneven(snapshot):
            return bounded
        low, high = duration(max(0.0, hook.low) / 1e6), duration(hook.high / 1e6)
        return (
            f"{bounded} Steps without the function hook vary too much to tell what a step takes "
            f"without fastprof: they allow {low} to {high} per step for the hook."
        )
    adds = duration(step.hook_ms)
    if step.hook_ms <= step.error_ms:
        adds = f"at most {duration(step.hook_ms + step.error_ms)}"
    found = (
        " Steps without the function hook were compared with those around them in "
        f"{plural(step.blocks, 'place')} of the run: the hook adds {adds} to a step. "
        "Without fastprof "
        f"the median step takes {duration(step.ms)} (+- {duration(step.error_ms)})."
    )
    if correction.factors is not None and not bounded:
        found += (
            " The cost of functions is what was measured there"
            f"{', slower bytecode included' if correction.factors.bytecode else ''}."
        )
    return found + bounded


def _beside_limits(factors: HookFactors, *, applied: bool) -> str:
    """Return how the cost of functions differs from that of single calls."""
    if factors.calls == 1.0:
        return (
            " Steps without the function hook suggest a larger cost of functions than the test at "
            f"the start{', which was subtracted' if applied else ''}."
        )
    limit, other = ("least", "less") if factors.calls > 1.0 else ("most", "more")
    return (
        f" The cost of functions is the {limit} that steps without the function hook allow; "
        f"the cost of single calls suggests {other}."
    )
