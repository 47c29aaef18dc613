"""The string table of a page: it stores a name once, for any number of rows."""

from fastprof.names import printable_name

_MAX_NAME = 1000


class Strings:
    """Numbers names in order of first use and escapes characters that do not print."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def table(self) -> list[str]:
        """Return the strings, fit for display, in the order of their numbers."""
        return [printable_name(text, _MAX_NAME) for text in self._numbers]
