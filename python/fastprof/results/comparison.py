"""``fastprof.compare``, and the comparison that it returns."""

import os

from fastprof.comparison import build, model, output
from fastprof.results.result import Result, returning


class Comparison(Result, model.Comparison):
    """The data of :class:`fastprof.comparison.model.Comparison`, and its outputs."""

    __slots__ = ()

    def to_text(self, *, full: bool = False) -> str:
        """Return the comparison as plain text.

        Args:
            full: all of it; else one screen.
        """
        return output.to_text(self, full=full)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown."""
        return output.to_markdown(self)

    def to_json(self) -> str:
        """Return the comparison as JSON; see :mod:`fastprof.comparison.output`."""
        return output.to_json(self)

    def to_html(self) -> str:
        """Return the comparison as one HTML page that loads nothing."""
        return output.to_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.html``, ``.txt``, ``.md`` or ``.json``, completely or not at all.

        Args:
            path: the file.

        Raises:
            ExportError: another suffix.
            OSError: the file cannot be written; an earlier file is unchanged.
        """
        output.save(self, path)


compare = returning(Comparison, build.compare, __name__)
