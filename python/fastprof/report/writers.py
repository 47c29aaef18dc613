"""What an exporter is: a function of a report and a stream.  No paths, no sessions."""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Protocol, TextIO

from fastprof.errors import ExportError
from fastprof.report.model import Report


class TextExporter(Protocol):
    """Writes a report to a text stream; the stream's owner opens, encodes and closes it."""

    def __call__(self, report: Report, stream: TextIO, /) -> None: ...


class BinaryExporter(Protocol):
    """Writes a report to a binary stream; the stream's owner opens and closes it."""

    def __call__(self, report: Report, stream: BinaryIO, /) -> None: ...


def compact_json(value: Any) -> str:
    """Return strict JSON in one line, without blanks."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def require_tree(report: Report, what: str) -> None:
    """Refuse a report without contexts.

    Raises:
        ExportError: it has none.
    """
    if not report.has_tree:
        raise ExportError(
            f"{what} needs the calling contexts of a recording; this report was read from "
            "a .stats file, which has none (save runs as .fprof to keep them)"
        )
