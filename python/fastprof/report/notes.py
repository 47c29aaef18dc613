"""Notes for readers of a report: faults survived, limits, choices made."""

from collections.abc import Iterable, Iterator

from fastprof.names import printable
from fastprof.report.correct import HOOK
from fastprof.report.figures import counted, duration, percent, plural
from fastprof.report.gpu_notes import gpu_notes
from fastprof.report.model_gpu import GpuReport
from fastprof.report.run_phases import beyond_steps_ns, plain_are_most
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

#: If this part of a section's entries came after the last step, a note says so.
_MANY_BEYOND = 0.05

#: Counter of the recorder -> its meaning.
_COUNTERS = {
    "unbalanced": "Calls closed early, because their caller returned first",
    "unmatched": "Returns of calls that were never seen, ignored",
    "dropped": "Events lost (out of memory)",
    "truncated": "Calls beyond the depth or node cap (counted and timed, but without their caller)",
    "out_of_order": "Sections left while an inner one was still open",
    "stray_exit": "Section exits without an entry, ignored",
    "wrong_thread": "Section exits in another thread than the entry, ignored",
    "clock_back": "Readings of a clock that had gone back (no time counts twice)",
    "clock_jumps": "Jumps of the clock (the machine slept, or was migrated), which times of this "
    "run may include",
    "timer_errors": "Readings of the external timer that failed (taken as 0)",
    "sync_errors": "GPU synchronizations that failed",
    "wrong_step_thread": "step() calls from another thread than the first, ignored",
    "dropped_threads": "Events of threads that were not recorded (out of memory)",
    "nvtx_without_gil": "NVTX ranges not timed, because their thread did not hold the GIL",
    "nvtx_unmatched": "Ends of NVTX ranges without a beginning, ignored",
    "nvtx_unbalanced": "NVTX ranges that ended with the section around them, before their own",
    "names_dropped": "Uses of section names beyond the limit, counted as (other sections)",
}

_DISPLACED = (
    "The hook was displaced: another tool took or replaced it during the run, so calls after that "
    "are missing."
)

_FOLDED = (
    "The calls that a library's module made while it was imported share one row per kind of "
    "call; `fastprof run --functions` counts each of them."
)


def make_notes(snapshot: Snapshot, gpu: GpuReport | None = None) -> tuple[str, ...]:
    """Return the notes of a snapshot: its own first, then those on its fields."""
    notes = [*snapshot.notes]
    notes += _hook_notes(snapshot)
    if snapshot.meta.get("sync") or snapshot.meta.get("synchronized"):
        notes.append(
            "Synchronized: sections wait for the GPU before each clock reading, so their times "
            "include GPU work and the loop runs slower than without."
        )
    notes += [f"Over time: {text}." for text in changes_of(snapshot)]
    notes += gpu_notes(snapshot, gpu)
    if snapshot.steps.skipped:
        notes.append(
            f"Left out of the step statistics as warm-up: {plural(snapshot.steps.skipped, 'step')}."
        )
    notes += _window_notes(snapshot)
    notes += _time_notes(snapshot)
    if snapshot.meta.get("imports_folded"):
        notes.append(_FOLDED)
    for name, count in snapshot.counters.items():
        if name == "displaced":
            if count:
                notes.append(_DISPLACED)
        elif count:
            what = _COUNTERS.get(name, name.replace("_", " ").capitalize())
            notes.append(f"{what}: {counted(count)}.")
    if snapshot.trace is not None:
        notes += snapshot.trace.notes()
    opened = sum(section.open for section in snapshot.sections)
    if opened:
        notes.append(
            f"Section entries still open, whose time is not in the table: {counted(opened)}."
        )
    return tuple(dict.fromkeys(notes))


def changes_of(snapshot: Snapshot) -> list[str]:
    """Return sentences on what changed during the run: step times, long steps, passes."""
    history = snapshot.history
    return [] if history is None else [printable(change.text) for change in history.changes]


def _window_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the note on the steps without functions."""
    steps, plain = snapshot.steps, snapshot.plain_steps
    budget = snapshot.meta.get("overhead_budget")
    if plain is not None and isinstance(budget, float) and plain_are_most(snapshot):
        every = steps.measured + plain.measured
        yield (
            f"Functions were recorded in {counted(steps.measured)} of {plural(every, 'step')}, as "
            f"fastprof may cost {percent(budget)} % (--overhead): the tables of functions and of "
            "sections are of these, the table of a step is of the others. Next to a change of the "
            f"function hook, {plural(max(0, steps.apart - plain.measured), 'step')} are in neither."
        )
    elif steps.apart:
        yield (
            f"Left out of the step statistics: {plural(steps.apart, 'step')} that "
            "ran without the function hook, or next to a change of it."
        )


def has_functions(snapshot: Snapshot) -> bool:
    """Return whether function calls were recorded, not sections alone."""
    return any(key.kind in ("python", "c", "type") for key in snapshot.keys)


def _hook_notes(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.meta.get("fell_back"):
        yield (
            "No sys.monitoring tool id was free, so the slower PyEval_SetProfile hook was used; "
            "the correction takes that into account."
        )
    if snapshot.meta.get("new_threads_lost"):
        yield (
            "threading.setprofile() was taken by another tool: threads that started during the "
            "run are missing."
        )
    python = str(snapshot.meta.get("python", ""))
    on_311 = python == "3.11" or python.startswith("3.11.")
    biased = on_311 and snapshot.meta.get("backend") == "setprofile" and has_functions(snapshot)
    if biased and snapshot.known.get(HOOK) is None:
        yield (
            "On Python 3.11 an active profile hook slows every bytecode, not only calls: times "
            "are biased towards pure Python code, and calibration cannot correct that."
        )


def _time_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield which part of the time before the first step has functions."""
    phases = {phase.name: phase for phase in snapshot.phases}
    if "unhooked" not in phases:
        return
    unhooked_ns = phases["unhooked"].wall_ns
    whole_ns = unhooked_ns + sum(
        phases[name].wall_ns for name in ("setup", "warmup", "windows") if name in phases
    )
    recorded, whole = duration((whole_ns - unhooked_ns) / 1e6), duration(whole_ns / 1e6)
    windows = phases.get("windows")
    what = f"then in {plural(windows.entries, 'window')} of 0.1 s" if windows else "then not"
    text = (
        f"Functions were recorded in {recorded} of the {whole}"
        f"{' before the first step' if snapshot.steps.count else ''}: all the time at first, {what}"
    )
    if windows and not snapshot.steps.count:
        text += "; times and calls in windows are scaled to the time that they stand for"
    yield f"{text}. Sections have all of it."


def beyond_notes(view: Snapshot, phase: str) -> Iterator[str]:
    """Yield the notes on what was recorded after the last step, in the view of ``phase``."""
    number = training_thread(view)
    beyond_ns = beyond_steps_ns(view, phase, number)
    if beyond_ns:
        yield (
            f"{duration(beyond_ns / 1e6)} belong to no completed step, such as the time after the "
            "loop. Functions and sections of measured steps include that time."
        )
    if phase == RUN_PHASES[STEPS] and number >= 0:
        yield from _sections_beyond(view, number)


def _sections_beyond(view: Snapshot, number: int) -> Iterator[str]:
    """Yield the sections that ran in steps and after the last one: one record has both."""
    nodes = view.threads[number].nodes
    entered: dict[int, int] = {}
    for key, calls in zip(nodes.key, nodes.calls, strict=True):
        entered[key] = entered.get(key, 0) + calls
    for stats in view.sections:
        beyond = stats.count + stats.open - entered.get(stats.key, 0)
        if stats.thread == number and beyond > max(1.0, _MANY_BEYOND * stats.count):
            yield (
                f"{counted(beyond)} of {plural(stats.count, 'entry')} of section "
                f"{view.keys[stats.key].name} were after the last step; its count and its "
                "percentiles include them."
            )
