"""Lines of Python files that a recording names, where they are still those of the run.

A recording may come from a stranger, so a file is read only if it is a Python file that was
not changed after the run.
"""

from __future__ import annotations

import os
import stat
import tokenize

_SUFFIXES = (".py", ".pyw")
_MOST_BYTES = 2 << 20


def lines_of(path: str, until_ns: object) -> list[str]:
    """Return the lines of a file with their ends; none if it cannot be read or has changed.

    Args:
        path: the file, of the working folder if relative: `fastprof run train.py` has it so.
        until_ns: when the recording ended, in ns since 1970; if that is not an int, nothing
            is read, because a later change of the file could not be noticed.
    """
    if not isinstance(until_ns, int) or not path.endswith(_SUFFIXES):
        return []
    try:
        found = os.stat(path)
        fit = stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES
        if not fit or found.st_mtime_ns > until_ns:
            return []
        with tokenize.open(path) as file:
            return file.read().splitlines(keepends=True)
    except (OSError, ValueError, SyntaxError):  # of a name or an encoding, too
        return []
