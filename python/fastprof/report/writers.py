"""What an exporter is: a function of a report and a stream.  No paths, no sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, BinaryIO, Protocol, TextIO

from fastprof.errors import ExportError
from fastprof.names import without_surrogates
from fastprof.report.model import Report

#: Many readers of JSON hold larger integers as floats.
EXACT = 2**53


class TextExporter(Protocol):
    """Writes a report to a text stream; the stream's owner opens, encodes and closes it."""

    def __call__(self, report: Report, stream: TextIO, /) -> None: ...


class BinaryExporter(Protocol):
    """Writes a report to a binary stream; the stream's owner opens and closes it."""

    def __call__(self, report: Report, stream: BinaryIO, /) -> None: ...


def plain(value: Any, members: Callable[[Any], dict[str, Any]] = vars) -> Any:
    """Return a value as lists, dicts and values that every JSON reader gets right.

    Lone surrogates are written out, integers above 2**53 are strings, what is not finite is
    None.

    Args:
        value: of what JSON has, tuples, or dataclasses.
        members: returns what is written of a dataclass, by name; it need not be plain.
    """
    if type(value) is str:
        return without_surrogates(value)
    if type(value) is int:
        return value if -EXACT <= value <= EXACT else str(value)
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(item, members) for item in value]
    if is_dataclass(value):
        value = members(value)
    if isinstance(value, dict):
        return {without_surrogates(str(k)): plain(v, members) for k, v in value.items()}
    return value


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
