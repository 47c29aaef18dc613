"""``fastprof.merge``, and the report on all ranks that it returns."""

import os

from fastprof.findings.rules.ranks import rank_finding
from fastprof.ranks import model
from fastprof.read import merge as reader
from fastprof.render.formats import render_ranks, save_ranks
from fastprof.report.findings import Finding
from fastprof.results.result import Result, returning


class RankReport(Result, model.RankReport):
    """The data of :class:`fastprof.ranks.model.RankReport`, and its outputs."""

    __slots__ = ()

    @property
    def finding(self) -> Finding | None:
        """Advice on unequal ranks; None if they are equal enough."""
        return rank_finding(self)

    def to_text(self) -> str:
        """Return it as plain text."""
        return render_ranks(self, "text")

    def to_json(self) -> str:
        """Return it as JSON with the fields of this class."""
        return render_ranks(self, "json")

    def to_markdown(self) -> str:
        """Return it as Markdown, for a ticket."""
        return render_ranks(self, "markdown")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.html``, ``.txt``, ``.json`` or ``.md``, completely or not at all.

        Args:
            path: the file.

        Raises:
            ExportError: another suffix.
            OSError: the file cannot be written; an earlier file is unchanged.
        """
        save_ranks(self, path)


merge = returning(RankReport, reader.merge, __name__)
