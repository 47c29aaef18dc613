"""The profiler's own cost, in figures and in a sentence."""

from dataclasses import replace
from statistics import fmean, median

from fastprof.report.correct import Correction, correct
from fastprof.report.figures import duration, percent_between, plural
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
from fastprof.report.run_phases import view_of
from fastprof.report.step_costs import costs_by_section
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

#: From this part of the run on, the report says that nothing confirms the cost.
_LARGE_COST = 0.1


def overhead_of(snapshot: Snapshot, *, correct_times: bool) -> Overhead:
    """Return the profiler's cost in a run.

    Args:
        correct_times: whether the hook's cost is subtracted from functions and sections.
    """
    overhead = _of_run(snapshot, correct(snapshot, enabled=correct_times))
    return _with_steps(overhead, snapshot)


def _of_run(snapshot: Snapshot, correction: Correction) -> Overhead:
    functions_ms = None if correction.overhead_ns is None else correction.overhead_ns / 1e6
    if not has_functions(snapshot):
        functions_ms = None
    clamped_ms = correction.clamped_ns / 1e6 if functions_ms is not None else 0.0
    bytecode_ms = correction.bytecode_ns / 1e6 if functions_ms is not None else 0.0
    own = own_costs(snapshot)
    sections_ms = None if own.timed is None else (own.timed + own.untimed) / 1e6
    windows_ms = 0.0 if snapshot.operators is None else snapshot.operators.cost_ns / 1e6
    total_ms = least_ms = (sections_ms or 0.0) + windows_ms
    if functions_ms is not None:
        least_ms += (correction.least_ns or 0) / 1e6
        total_ms += (correction.most_ns or 0) / 1e6
    known = functions_ms is not None or sections_ms is not None
    share = least = None
    if snapshot.duration_ns and known:
        share, least = (ms * 1e6 / snapshot.duration_ns for ms in (total_ms, least_ms))
    found = Overhead(
        total_ms if known else None, share, correction.applied and functions_ms is not None,
        clamped_ms, "", functions_ms, bytecode_ms, sections_ms, windows_ms, least_share=least,
    )  # fmt: skip
    return replace(found, text=_text(found, least_ms, snapshot, correction))


def _with_steps(overhead: Overhead, whole: Snapshot) -> Overhead:
    """Add the cost inside measured steps, as a part of their time in all threads.

    Waiting for a CPU lengthens both the program and the hook.  The cost of calls in a quiet moment
    is therefore compared with the steps without it, and a cost measured in the run with the median
    step, if that is longer.  fastprof's own code is timed without waits of more than a millisecond.
    """
    steps = whole.steps
    if not steps.sum_ns or not whole.phases:
        return overhead
    view = view_of(whole, RUN_PHASES[STEPS])
    correction = correct(view)
    hook = has_functions(whole) and correction.overhead_ns is not None
    costs = own_costs(whole)
    if costs.timed is None and not hook:
        return overhead
    own = costs.in_steps
    cost = least = bytecode = others = 0.0
    running = running_times(whole)
    if steps.series.cpu_wait_ns:
        running_ns = max(1.0, steps.measured * fmean(running))
    else:
        running_ns = max(1.0, steps.sum_ns - dict(steps.split).get("cpu_wait", 0))
    if correction.factors is not None:
        running_ns = max(running_ns, steps.measured * median(running or (0,)))
    if hook:
        thread = training_thread(view)
        cost = sum(costs_by_section(whole, view).values())
        cost -= costs.timed_in_steps  # `own` has it
        for number, (tree, column) in enumerate(zip(view.threads, correction.self_ns, strict=True)):
            if number != thread:
                others += sum(tree.nodes.self_ns) - sum(column)
        # Of this the training thread's waits for locks have a part already.
        part = 1.0 if correction.factors is None else correction.factors.others
        cost += max(0.0, part * others - correction.waits_ns)
        least = cost
        if correction.factors is None:
            bytecode = correction.bytecode_ns / steps.sum_ns
        else:
            least, cost = cost * correction.factors.least, cost * correction.factors.most
    least, cost = ((ns + own) / running_ns for ns in (least, cost))
    return replace(
        overhead, steps_share=min(1.0, cost + bytecode), least_steps_share=min(1.0, least)
    )


# ---- the text ----


def _text(found: Overhead, least_ms: float, snapshot: Snapshot, correction: Correction) -> str:
    """Return the cost of the run in sentences; ``least_ms`` is its lower limit."""
    cost = _cost(found, least_ms, correction)
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


def _cost(found: Overhead, least_ms: float, correction: Correction) -> str:
    """Return the figures, without a full stop; empty: no cost is known."""
    total_ms, functions_ms, bytecode_ms = found.estimated_ms, found.functions_ms, found.bytecode_ms
    if total_ms is None:
        return ""
    of_wall = ""
    if found.share is not None:
        of_wall = f" ({percent_between(found.least_share, found.share)} of wall time)"
    if found.sections_ms is None:  # functions are the only cost
        calls_ms = functions_ms or 0.0
        took = _estimated(*((calls_ms, calls_ms) if bytecode_ms else (least_ms, total_ms)))
        return f"The function hook cost {took}{of_wall}"
    parts = {
        "functions": functions_ms,
        f"slower bytecode under the hook{'' if _is_known(correction) else ' up to'}": (
            bytecode_ms or None
        ),
        "sections, steps and loaders": found.sections_ms,
        "operator windows": found.windows_ms or None,
    }
    listed = ", ".join(f"{name} {duration(ms)}" for name, ms in parts.items() if ms is not None)
    return f"fastprof cost {_estimated(least_ms, total_ms)}{of_wall}: {listed}"


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


def _estimated(least_ms: float, most_ms: float) -> str:
    least, most = duration(least_ms), duration(most_ms)
    return f"an estimated {most if least == most else f'{least} to {most}'}"


def _measured_in_run(snapshot: Snapshot, correction: Correction) -> str:
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
    limit, other = ("least", "less") if factors.most > 1.0 else ("most", "more")
    return (
        f" The cost of functions is the {limit} that steps without the function hook allow; "
        f"the cost of single calls suggests {other}."
    )
