"""The output formats, and the modules of their writers.

Nothing loads a writer's module before its format is needed.
"""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fastprof.errors import ExportError
from fastprof.fileio import atomic_write, resolve_output

if TYPE_CHECKING:
    from fastprof.ranks.model import RankReport
    from fastprof.report.model import Report


@dataclass(frozen=True, slots=True)
class Format:
    """An output format, made by ``write`` of ``module``; ``module:function``: by that function."""

    name: str
    suffixes: tuple[str, ...]
    module: str
    binary: bool = False


#: A longer suffix precedes a shorter one that it ends in.
FORMATS = (
    Format("speedscope-gpu", (".gpu.speedscope.json",), "fastprof.export.speedscope:write_gpu"),
    Format("speedscope", (".speedscope.json",), "fastprof.export.speedscope"),
    Format("trace-gz", (".trace.json.gz", "_trace.json.gz"), "fastprof.export.trace.gz", True),
    Format("trace", (".trace.json", "_trace.json"), "fastprof.export.trace.write"),
    Format("fprof", (".fprof",), "fastprof.read.fprof", True),
    Format("pstats", (".stats", ".prof", ".pstats"), "fastprof.export.pstats_", True),
    Format("json", (".json",), "fastprof.export.json_"),
    Format("text", (".txt",), "fastprof.render.text"),
    Format("html", (".html", ".htm"), "fastprof.render.html"),
    Format(
        "collapsed-gpu", (".gpu.collapsed", ".gpu.folded"), "fastprof.export.collapsed:write_gpu"
    ),
    Format("collapsed", (".collapsed", ".folded"), "fastprof.export.collapsed"),
    Format("callgrind", (".callgrind",), "fastprof.export.callgrind"),
    Format("csv", (".csv",), "fastprof.export.csv_"),
    Format("markdown", (".md",), "fastprof.render.markdown"),
)


def format_of(path: str | os.PathLike[str], among: Collection[str] | None = None) -> Format:
    """Return the format that a path's suffix names (case does not matter).

    Args:
        among: the names of the allowed formats; None: any.

    Raises:
        ExportError: no format has the suffix; the message names the nearest.
    """
    name = Path(path).name
    # The whole suffix: x.trace.json is a trace and no other JSON.
    found = next((item for item in FORMATS if name.lower().endswith(item.suffixes)), None)
    if found is not None and (among is None or found.name in among):
        return found
    formats = [item for item in FORMATS if among is None or item.name in among]
    known = [suffix for item in formats for suffix in item.suffixes]
    near = difflib.get_close_matches(Path(name).suffix.lower()[:200], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ExportError(
        f"cannot tell the format of {name!r:.120}{hint}; use one of: {' '.join(known)}"
    )


def format_named(name: str) -> Format:
    """Return the format called ``name``.

    Raises:
        ExportError: there is none.
    """
    for item in FORMATS:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in FORMATS)
    raise ExportError(f"no output format {name!r:.80}; there are: {known}")


def render(report: Report, name: str, **limits: object) -> str:
    """Return a report in the text format called ``name``; ``limits`` are options of its writer.

    ``"screen"`` is one screen.
    """
    stream = io.StringIO()
    if name == "screen":  # no format of files
        write_text = import_module("fastprof.render.screen").write
    else:
        write_text = _writer(format_named(name))
    write_text(report, stream, **limits)
    return stream.getvalue()


def render_ranks(report: RankReport, name: str, **limits: int) -> str:
    """Return the report on several ranks in the format ``name``, one of :data:`RANK_FORMATS`.

    ``limits`` are options of the writer: ``width`` of the text.
    """
    stream = io.StringIO()
    getattr(import_module("fastprof.ranks.render.report"), f"write_{name}")(
        report, stream, **limits
    )
    return stream.getvalue()


#: Formats of a report on several ranks.
RANK_FORMATS = ("text", "json", "markdown", "html")


def save_ranks(report: RankReport, path: str | os.PathLike[str]) -> None:
    """Write the report on several ranks to a file."""
    text = render_ranks(report, format_of(path, RANK_FORMATS).name)
    with atomic_write(resolve_output(path)) as stream:
        stream.write(text.encode("utf-8"))


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report to a file."""
    item = format_of(path)
    with atomic_write(resolve_output(path)) as stream:
        write(report, item, stream)


def write(report: Report, item: Format, stream: BinaryIO, **limits: float) -> None:
    """Write a report in a format to a binary stream, which stays open.

    ``limits`` are options of the format's writer.
    """
    writer = _writer(item)
    if item.binary:
        writer(report, stream, **limits)
        return
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
    try:
        writer(report, text, **limits)
        text.flush()
    finally:
        with suppress(OSError):  # detaching flushes data whose write failed
            text.detach()


def _writer(item: Format) -> Any:
    module, _, function = item.module.partition(":")
    return getattr(import_module(module), function or "write")
