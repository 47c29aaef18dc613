"""Makes names of the profiled program, which may contain anything, fit for output.

Raw names stay in memory; every exporter passes them through one of these functions.
"""

import hashlib
import re
from collections.abc import Sequence

#: Longest name in an export; a longer one is cut and marked with a short hash.
MAX_NAME = 4096

_CONTROLS = {i: f"\\x{i:02x}" for i in (*range(32), 127)}


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


#: A name with dots, not a sentence or a path; keep this much of its beginning.
_DOTTED = re.compile(r"[\w<>]+(?:\.[\w<>]+)+")
_HEAD = 4


def elided(text: str, limit: int) -> str:
    """Return printable ``text`` without its middle, if it is longer than ``limit``.

    For people, who need no hash; two names may then look alike.  The last word of a dotted name
    stays whole if some of the first one still fits.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - 3)
    tail = room * 2 // 3
    if _DOTTED.fullmatch(text):
        last = len(text) - text.rindex(".") - 1
        ends = [i + 1 for i, char in enumerate(text) if char == "."]
        whole = [len(text) - end for end in ends if len(text) - end <= max(tail, last)]
        if whole and whole[0] <= room - _HEAD:
            tail = whole[0]
            head = text[: room - tail]
            cut_at = head.rfind(".", len(head) // 2)
            return f"{head if cut_at < 0 else head[:cut_at]}...{text[len(text) - tail :]}"
    return f"{text[: room - tail]}...{text[len(text) - tail :]}"


def ends_cut(texts: Sequence[str], limit: int) -> list[str]:
    """Return printable texts without their ends, if these are longer than ``limit``.

    For names that begin with what they are.  Two that would look alike have a number.
    """
    alike: dict[str, dict[str, int]] = {}
    made = []
    for text in texts:
        shown = text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."
        numbers = alike.setdefault(shown, {})
        number = numbers.setdefault(text, len(numbers) + 1)
        if number > 1:
            mark = f"...#{number}"
            shown = text[: max(0, limit - len(mark))] + mark
        made.append(shown)
    return made


def ascii_name(text: str, limit: int = MAX_NAME) -> str:
    r"""Return ``text`` as printable ASCII: everything else as ``\xNN`` or ``\uNNNN``.

    For terminals: no control, bidi mark or surrogate survives, and printing cannot fail in any
    encoding.  A text longer than ``limit`` ends in "..."; people need no hash.
    """
    if text.isascii() and text.isprintable() and len(text) <= limit:
        return text
    text = text if len(text) <= limit else f"{text[: max(0, limit - 3)]}..."
    return text.translate(_CONTROLS).encode("ascii", "backslashreplace").decode()


def printable_name(text: str, limit: int = MAX_NAME) -> str:
    r"""Return ``text`` with everything that does not print as ``\xNN`` or ``\uNNNN``.

    For UTF-8 files read by other tools: keep letters of any script, but no controls, bidi marks,
    line separators or lone surrogates.
    """
    if text.isprintable() and len(text) <= limit:
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in cut(text, limit))


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def without_surrogates(text: str) -> str:
    r"""Return ``text`` with lone surrogates as ``\uNNNN``; for JSON, which escapes the rest."""
    text = cut(text)
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
