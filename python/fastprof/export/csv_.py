"""A table of a report as CSV: a header, then a row each; see :mod:`.columns`.

Numbers keep their exact values when read back; an unknown value is an empty cell.  A text that a
spreadsheet would take for a formula (it begins with ``=``, ``+``, ``-`` or ``@``, or the wide form
of one) gets a ``'`` before it.
"""

import csv
import math
from typing import TextIO

from fastprof.report.model import Report
from fastprof.tables.columns import Value, columns

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write(report: Report, stream: TextIO, *, table: str = "functions") -> None:
    """Write one table.

    Raises:
        ValueError: no such table.
    """
    names, rows = columns(report, table)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_cell(name) for name in names)
    for row in rows:
        writer.writerow(_cell(value) for value in row)


def _cell(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return str(value)
