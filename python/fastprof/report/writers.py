"""Shared parts of exporters.  An exporter takes a report and a stream, never a path."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from fastprof.errors import ExportError
from fastprof.names import without_surrogates
from fastprof.report.model import Report


def compact_json(value: Any) -> str:
    """Return strict JSON in one line, without spaces."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


#: Larger integers become strings in JSON: many readers have floats only.
EXACT = 2**53


def plain_values(value: Any, fields_of: Callable[[Any], Mapping[str, Any]] | None = None) -> Any:
    """Return a value as strict JSON types: NaN and infinity become None.

    ``fields_of`` returns the fields of any other value.
    """
    if type(value) is str:
        return without_surrogates(value)
    if type(value) is int:
        return value if -EXACT <= value <= EXACT else str(value)
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain_values(item, fields_of) for item in value]
    if isinstance(value, Mapping):
        return {without_surrogates(str(k)): plain_values(v, fields_of) for k, v in value.items()}
    if is_dataclass(value) and fields_of is not None:
        return plain_values(fields_of(value), fields_of)
    if isinstance(value, Sequence):
        return [plain_values(item, fields_of) for item in value]
    return value


def require_tree(report: Report, what: str) -> None:
    """Refuse a report without contexts.

    Raises:
        ExportError: the report has none.
    """
    if not report.has_tree:
        raise ExportError(
            f"{what} needs the calling contexts of a recording; this report was read from "
            "a .stats file, which has none (save runs as .fprof to keep them)"
        )
