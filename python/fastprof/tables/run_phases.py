"""Phases of the run in words."""

from fastprof.report.figures import counted, plural
from fastprof.report.model import Report
from fastprof.tables.cells import Table, duration, number, percent

#: Name of a phase -> its name for readers, and whether it happens repeatedly.
PHASE_NAMES = {
    "imports": ("imports", False),
    "setup": ("set-up", False),
    "warmup": ("warm-up steps", False),
    "steps": ("measured steps", False),
    "unprofiled": ("steps without the function hook", False),
    "validation": ("validation", True),
    "checkpoint": ("checkpoints", True),
    "outside": ("between epochs and after the loop", False),
    "compile": ("compiling", False),
}

#: The name of "setup" in a run without steps.
_NO_LOOP = "without steps"


def phases_table(report: Report) -> Table:
    """Return the time of each phase of the run; without rows if the run has no phases."""
    whole = sum(row.wall_ms for row in report.phases)
    rows = tuple(
        (
            _NO_LOOP
            if row.name == "setup" and not report.steps.count
            else PHASE_NAMES[row.name][0],
            number(row.wall_ms),
            percent(row.wall_ms / whole if whole else None),
            str(row.entries),
            number(row.mean_ms) if PHASE_NAMES[row.name][1] else "",
        )
        for row in report.phases
    )
    return Table("Phases of the run", ("phase", "ms", "share %", "times", "ms each"), rows)


def phases_text(report: Report, least: float) -> str:
    """Return the phases outside of measured steps in a sentence; empty: there are none.

    In a run without steps these are imports, validation and checkpoints; the rest is one phase.

    Args:
        least: leave out phases with a smaller share of the recorded time.
    """
    parts = []
    for row in report.phases:
        counts = report.plain is not None or report.stages  # among the steps that are shown
        is_step = row.name == "steps" or (row.name == "unprofiled" and counts)
        if is_step or row.wall_ms < least * report.wall_ms:
            continue
        if row.name == "setup" and not report.steps.count:
            continue
        name, again = PHASE_NAMES[row.name]
        if again and row.entries > 1:
            parts.append(f"{name} {duration(row.mean_ms)} each ({counted(row.entries)} times)")
        else:
            parts.append(f"{name} {duration(row.wall_ms)}{_where(report, row.name)}")
    of_what = "Outside the measured steps" if report.steps.measured else "Of the run"
    return f"{of_what}: {', '.join(parts)}." if parts else ""


def _where(report: Report, phase: str) -> str:
    compiled = report.compilations
    if phase != "compile" or compiled is None or not compiled.steps:
        return ""
    where = f" in {plural(compiled.steps, 'step')}"
    if not compiled.within_ms:
        return where
    return f"{where} (and {duration(compiled.within_ms)} within the time of steps)"
