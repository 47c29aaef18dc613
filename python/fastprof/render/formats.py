"""Which output formats there are, and where their writers live.

The table names the writers' modules; one is loaded only when its format is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from fastprof.errors import ExportError
from fastprof.fileio import atomic_write, resolve_output

if TYPE_CHECKING:
    from fastprof.report.findings import Examination, Finding
    from fastprof.report.model import Report
    from fastprof.report.ranks import RankReport


@dataclass(frozen=True, slots=True)
class Format:
    """An output format: ``write(report, stream)`` of ``module`` makes it."""

    name: str
    suffixes: tuple[str, ...]
    module: str
    binary: bool = False


#: A longer suffix stands before a shorter one that it ends in.
FORMATS = (
    Format("speedscope-gpu", (".gpu.speedscope.json",), "fastprof.export.speedscope_gpu"),
    Format("speedscope", (".speedscope.json",), "fastprof.export.speedscope"),
    Format("trace-gz", (".trace.json.gz", "_trace.json.gz"), "fastprof.export.trace.gz", True),
    Format("trace", (".trace.json", "_trace.json"), "fastprof.export.trace.write"),
    Format("fprof", (".fprof",), "fastprof.read.fprof", True),
    Format("pstats", (".stats", ".prof", ".pstats"), "fastprof.export.pstats_", True),
    Format("json", (".json",), "fastprof.export.json_"),
    Format("text", (".txt",), "fastprof.render.text"),
    Format("html", (".html", ".htm"), "fastprof.render.html"),
    Format("collapsed-gpu", (".gpu.collapsed", ".gpu.folded"), "fastprof.export.collapsed_gpu"),
    Format("collapsed", (".collapsed", ".folded"), "fastprof.export.collapsed"),
    Format("callgrind", (".callgrind",), "fastprof.export.callgrind"),
    Format("csv", (".csv",), "fastprof.export.csv_"),
    Format("markdown", (".md",), "fastprof.render.markdown"),
)


#: Formats that no file has.
_SHOWN = ("screen", "notebook")


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format that a path's suffix names (case does not matter).

    Raises:
        ExportError: none has that suffix.
    """
    name = Path(path).name
    for item in FORMATS:
        if name.lower().endswith(item.suffixes):
            return item
    raise unknown_format(name, [suffix for item in FORMATS for suffix in item.suffixes])


def unknown_format(name: str, known: Iterable[str]) -> ExportError:
    """Return the error for a name with none of these suffixes; it names the nearest."""
    known = list(known)
    found = difflib.get_close_matches(Path(name).suffix.lower()[:200], known, n=1)
    hint = f"; did you mean {found[0]}?" if found else ""
    return ExportError(
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

    ``"screen"`` and ``"notebook"`` are what :meth:`Report.to_text` and a notebook show.
    """
    stream = io.StringIO()
    shown = f"fastprof.render.{name}" if name in _SHOWN else format_named(name).module
    _module(shown).write(report, stream, **limits)
    return stream.getvalue()


def examine_ranks(report: RankReport) -> Finding | None:
    """Return what the rule about ranks says; see :attr:`RankReport.finding`."""
    found: Finding | None = _module("fastprof.findings.rules.ranks").rank_finding(report)
    return found


def render_ranks(report: RankReport, name: str, **limits: int) -> str:
    """Return several ranks as ``"text"``, ``"json"`` or ``"markdown"``.

    ``limits`` are options of its writer: ``width`` of the text.
    """
    stream = io.StringIO()
    getattr(_module("fastprof.render.ranks"), f"write_{name}")(report, stream, **limits)
    return stream.getvalue()


#: Suffixes of files about several ranks.
RANK_FORMATS = {".txt": "text", ".json": "json", ".md": "markdown"}


def save_ranks(report: RankReport, path: str | os.PathLike[str]) -> None:
    """Write several ranks to a file; see :meth:`RankReport.save`."""
    text = render_ranks(report, rank_format_of(path))
    with atomic_write(resolve_output(path)) as stream:
        stream.write(text.encode("utf-8"))


def rank_format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of several ranks that a path's suffix names.

    Raises:
        ExportError: none has that suffix.
    """
    name = Path(path).name
    # The whole suffix: x.trace.json is no report of ranks, and nothing else reads one.
    found = next((f.name for f in FORMATS if name.lower().endswith(f.suffixes)), None)
    if found is None or found not in RANK_FORMATS.values():
        raise unknown_format(name, RANK_FORMATS)
    return found


def frame(report: Report, table: str) -> Any:
    """Return one table of a report as a pandas ``DataFrame``."""
    return _module("fastprof.export.pandas_").frame(report, table)


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report to a file; see :meth:`Report.save`."""
    item = format_of(path)
    with atomic_write(resolve_output(path)) as stream:
        write(report, item, stream)


def write(report: Report, item: Format, stream: BinaryIO, **limits: float) -> None:
    """Write a report in a format to a binary stream, which stays open.

    ``limits`` are options of the format's writer.
    """
    exporter = _module(item.module)
    if item.binary:
        exporter.write(report, stream, **limits)
        return
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
    try:
        exporter.write(report, text, **limits)
        text.flush()
    finally:
        with suppress(OSError):  # detaching flushes what failed to be written
            text.detach()


def show(report: Report, stream: TextIO | None, *, full: bool) -> None:
    """Draw a report on a terminal or write it as text; see :meth:`Report.show`."""
    _module("fastprof.render.terminal").show(report, stream, full=full)


def examine(report: Report) -> Examination:
    """Return what the rules say of a report; see :attr:`Report.examination`."""
    found: Examination = _module("fastprof.findings.examine").examine(report)
    return found


def _module(name: str) -> Any:
    return importlib.import_module(name)
