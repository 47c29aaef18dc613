"""The table of source lines, from samples."""

from itertools import islice

from fastprof.report.lines import lines_by_function
from fastprof.report.model import Report
from fastprof.report.origin import shown_name
from fastprof.report.source_files import lines_of
from fastprof.tables.cells import Table, short

#: Functions, and lines of each, with at least this share of it.
_FUNCTIONS, _LINES, _SHARE = 12, 4, 0.05


def lines_table(report: Report) -> Table:
    """Return the lines with most samples of the program's functions."""
    snapshot = report.snapshot
    rows = []
    for key, found in islice(lines_by_function(snapshot).items(), _FUNCTIONS):
        text = lines_of(key.file, snapshot)
        name, samples = short(shown_name(key)), str(found.samples)
        for line in found.lines[:_LINES]:
            if line.share >= _SHARE:
                code = text[line.number - 1].strip() if line.number <= len(text) else ""
                share = f"{100 * line.share:.0f}"
                rows.append((name, samples, share, str(line.number), short(code)))
                name = samples = ""
    return Table(
        "Lines of your functions with what they call, from samples in windows of the run",
        ("function", "samples", "% of it", "line", "source"),
        tuple(rows),
        left=frozenset({0, 4}),
        ends=frozenset({4}),
    )
