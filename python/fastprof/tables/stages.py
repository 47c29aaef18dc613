"""The stages of a run in words and tables."""

from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.stages import StageRow
from fastprof.tables.cells import Table, duration, number, percent, short

#: Stages with a column on one screen: those with most time.
_COLUMNS = 3


def stages_table(report: Report) -> Table:
    """Return the steps of each stage; without rows if the run has one stage."""
    names = _sections(report.stages)
    rows = tuple(
        (stage.name, short(stage.optimizer), short(stage.loader), str(stage.first),
         str(stage.steps), number(stage.mean_ms), number(stage.p50_ms), number(stage.p95_ms),
         *(_of(stage, name)[0] for name in names))
        for stage in report.stages
    )  # fmt: skip
    headers = ("stage", "optimizer", "loader", "first step", "steps", "ms per step", "p50", "p95")
    return Table(
        "Stages of the run (ms per step, as measured)",
        (*headers, *(short(name) for name in names)),
        rows,
        left=frozenset({0, 1, 2}),
        spare=("first step", "p95"),
    )


def stages_text(report: Report) -> str:
    """Return the stages in a sentence; empty: there is one."""
    parts = [
        f"{stage.name} ({short(stage.of)}) {plural(stage.steps, 'step')} of "
        f"{duration(stage.mean_ms)}"
        for stage in report.stages
    ]
    return (
        f"{', '.join(parts)}. Figures without a stage, functions too, are means over all."
        if parts
        else ""
    )


def stages_brief(report: Report) -> Table:
    """Return the parts of a step per stage in few columns."""
    most = sorted(report.stages, key=lambda stage: -stage.mean_ms * stage.steps)[:_COLUMNS]
    shown = [stage for stage in report.stages if stage in most]
    rows = tuple(
        (short(name), *(cell for stage in shown for cell in _of(stage, name)))
        for name in _sections(report.stages)
    )
    columns = (column for stage in shown for column in (f"{stage.name} ms", "%"))
    return Table("", ("where a step goes", *columns), rows)


def _sections(stages: tuple[StageRow, ...]) -> list[str]:
    """Return the names of all sections, in the order of a step, the rest last."""
    names = dict.fromkeys(name for stage in stages for name, *_ in stage.sections[:-1])
    return [*names, *dict.fromkeys(stage.sections[-1][0] for stage in stages if stage.sections)]


def _of(stage: StageRow, section: str) -> tuple[str, str]:
    for name, ms, share in stage.sections:
        if name == section:
            return number(ms), percent(share)
    return "", ""
