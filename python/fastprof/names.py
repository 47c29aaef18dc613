"""Makes names of the profiled program, which may contain anything, fit for output.

Raw names stay in memory; every exporter passes them through one of these functions.  Letters of any
script stay as they are; :func:`encodable` escapes those that an output's encoding cannot write.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

#: Longest name in an export; a longer one is cut and marked with a short hash.
MAX_NAME = 4096


def short_hash(text: str) -> str:
    """Return eight hex digits that distinguish ``text`` from other names."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def file_name(path: str) -> str:
    """Return the last part of a path of any system."""
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def cut(text: str, limit: int = MAX_NAME) -> str:
    """Shorten ``text`` to ``limit`` characters; two different names stay different."""
    if len(text) <= limit:
        return text
    mark = f"...#{short_hash(text)}"
    return text[: max(0, limit - len(mark))] + mark


def text_width(text: str) -> int:
    """Return the columns that printable ``text`` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width_of, text))


@lru_cache(4096)
def _width_of(char: str) -> int:
    # Here: few programs have such names, and none should import a module for the others.
    from unicodedata import category, east_asian_width

    if category(char) in ("Mn", "Me"):  # drawn on the character before
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def head(text: str, room: int) -> str:
    """Return as much of the beginning of ``text`` as fits ``room`` columns."""
    if text.isascii():
        return text[: max(0, room)]
    end = 0
    while end < len(text) and (room := room - _width_of(text[end])) >= 0:
        end += 1
    return text[:end]


def _tail(text: str, room: int) -> str:
    start = len(text)
    while start and (room := room - text_width(text[start - 1])) >= 0:
        start -= 1
    # A mark whose character is cut off has nothing to be drawn on.
    while start < len(text) and not text_width(text[start]):
        start += 1
    return text[start:]


#: A name with dots, not a sentence or a path; keep this much of its beginning.
_DOTTED = re.compile(r"[\w<>]+(?:\.[\w<>]+)+")
_HEAD = 4


def elided(text: str, limit: int) -> str:
    """Return printable ``text`` without its middle, if it has more than ``limit`` columns.

    For people, who need no hash; two names may then look the same.  The last word of a dotted name
    stays whole if some of the first one still fits.
    """
    if text_width(text) <= limit:
        return text
    room = max(0, limit - 3)
    tail = room * 2 // 3
    if _DOTTED.fullmatch(text):
        ends = [part for i, char in enumerate(text) if char == "." and (part := text[i + 1 :])]
        most = max(tail, text_width(ends[-1]))
        whole = next(part for part in ends if text_width(part) <= most)
        if text_width(whole) <= room - _HEAD:
            begin = head(text, room - text_width(whole))
            cut_at = begin.rfind(".", len(begin) // 2)
            return f"{begin if cut_at < 0 else begin[:cut_at]}...{whole}"
    return f"{head(text, room - tail)}...{_tail(text, tail)}"


def ends_cut(texts: Sequence[str], limit: int) -> list[str]:
    """Return printable texts without their ends, if these have more than ``limit`` columns.

    For names that begin with what they are.  Two that would look the same have a number.
    """
    alike: dict[str, dict[str, int]] = {}
    made = []
    for text in texts:
        shown = _begun(text, limit)
        numbers = alike.setdefault(shown, {})
        number = numbers.setdefault(text, len(numbers) + 1)
        if number > 1:
            mark = f"...#{number}"
            shown = head(text, limit - len(mark)) + mark
        made.append(shown)
    return made


def readable(text: str, limit: int = MAX_NAME) -> str:
    r"""Return ``text`` printable, without its end if it has more than ``limit`` columns.

    For people, who need no hash.
    """
    # Marks take no column: one character may have a million.
    return _begun(printable(text[: 4 * limit + 4]), limit)


def _begun(text: str, limit: int) -> str:
    return text if text_width(text) <= limit else f"{head(text, limit - 3)}..."


def printable_name(text: str, limit: int = MAX_NAME) -> str:
    """Return ``text`` printable, for files read by other tools; different names stay different."""
    # Nearly all names stay as they are: no calls for those.
    if len(text) <= limit and text.isprintable():
        return text
    return printable(cut(text, limit))


def printable(text: str) -> str:
    r"""Return ``text`` with everything that does not print as ``\xNN`` or ``\uNNNN``.

    Letters of any script stay, but no controls, bidi marks, line separators or lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def encodable(text: str, stream: Any) -> str:
    r"""Return ``text`` with every character that ``stream`` cannot encode as ``\uNNNN``.

    An object without ``encoding`` may pass the text on to the standard output that it replaced.
    """
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", getattr(sys.__stdout__, "encoding", "ascii"))
    if encoding is None:  # such as io.StringIO
        return text
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except (LookupError, TypeError, UnicodeError):  # the object is the program's
        return text.encode("ascii", "backslashreplace").decode("ascii")


def without_surrogates(text: str) -> str:
    r"""Return ``text`` with lone surrogates as ``\uNNNN``; for JSON, which escapes the rest."""
    text = cut(text)
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
