"""The table that splits the steps' time by kind."""

from fastprof.names import readable
from fastprof.report.model import Report
from fastprof.report.steps import IN_BACKWARD, SplitRow
from fastprof.tables.cells import Table, number, percent
from fastprof.tables.gpu import has_gpu
from fastprof.tables.layout import without_unknown

#: Places named in a row of the table.
_PLACES = 2
#: A kind of time with a smaller share of the steps has no places named.
_PLACED = 0.001
#: Kind -> its label for readers, if it differs from the name.
_NAMES = {
    "compute": "computing on the host",
    "gpu_wait": "waiting for the GPU",
    "data": "loading data",
    "gc": "garbage collection",
    "lock": "waiting for a lock",
    "io": "sleeping, files, sockets",
    "cpu_wait": "waiting for a CPU",
    "other": "off the CPU for an unknown reason",
}


def kind_name(kind: str) -> str:
    """Return a kind of time in words."""
    return _NAMES.get(kind, readable(kind, 60))


def row_name(row: SplitRow) -> str:
    """Return the kind of a row in words, with its largest place if that is known."""
    of_backward = dict(row.places).get(IN_BACKWARD, 0)
    if row.name == "other" and 2 * of_backward > row.total_ns:
        return "off the CPU, mostly in backward"
    waits = " (its waits for a CPU not counted)" if row.without_waits and row.name == "data" else ""
    return f"{kind_name(row.name)}{waits}"


def split_table(report: Report) -> Table:
    """Return the kinds of time in the steps; without rows if they are unknown."""
    steps = report.shown_steps
    if not steps.split:
        return Table("", (), ())
    rows = [
        (row_name(r), number(r.total_ms), number(r.mean_ms), percent(r.share), _places(r))
        for r in steps.split
        if r.total_ns
    ]
    rows.append(("step", number(steps.wall_ms), number(steps.mean_ms), "100", ""))
    for sentence in steps.split_missing:
        kind, _, why = sentence.partition(": ")
        if kind != "gpu_wait" or has_gpu(report):  # without a GPU nothing waits for it
            rows.append((kind_name(kind), "n/a", "n/a", "n/a", readable(why, 200)))
    return without_unknown(
        Table(
            "Where a step's time goes (each moment counted once)",
            ("time", "total ms", "ms per step", "share %", "most of it"),
            tuple(rows),
            left=frozenset({0, 4}),
        )
    )


def _places(row: SplitRow) -> str:
    if (row.share or 0.0) < _PLACED:
        return ""
    return "; ".join(
        f"{readable(text, 200)} {number(ns / 1e6)} ms" for text, ns in row.places[:_PLACES]
    )
