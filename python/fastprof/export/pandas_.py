"""A table of a report as a pandas ``DataFrame``."""

import importlib
from typing import Any

from fastprof.report.model import Report
from fastprof.tables.columns import columns


def frame(report: Report, table: str) -> Any:
    """Return one table; see :func:`fastprof.tables.columns.columns`.

    Raises:
        ValueError: no such table.
        ImportError: pandas is not installed.
    """
    names, rows = columns(report, table)
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError(
            "to_frame() needs pandas (pip install 'fastprof[pandas]'); to_csv() does not"
        ) from error
    return pandas.DataFrame(rows, columns=list(names))
