"""The trace of :mod:`fastprof.export.trace.write`, compressed."""

import gzip
import io
from collections.abc import Iterable
from typing import BinaryIO

from fastprof.export.trace import write as trace
from fastprof.report.model import Report


def write(report: Report, stream: BinaryIO) -> None:
    """Write all windows of a report's trace; the same report always gives the same bytes.

    Raises:
        ExportError: the report has none.
    """
    write_window(trace.Writer(report), stream, None)


def write_window(
    writer: trace.Writer, stream: BinaryIO, number: int | None, more: Iterable[str] = ()
) -> None:
    with (
        gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
    ):
        writer.write(text, number, more)
