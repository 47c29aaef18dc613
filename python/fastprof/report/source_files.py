"""Reads lines of Python files of a recording, if they are unchanged since the run.

A recording may come from a stranger, so only a Python file that did not change after the run is
read.
"""

import os
import stat
import tokenize

_SUFFIXES = (".py", ".pyw")
_MOST_BYTES = 2 << 20


def lines_of(path: str, until_ns: object) -> list[str]:
    """Return the lines of a file with their ends; none if it cannot be read or has changed.

    Args:
        path: the file, relative to the working folder, as in `fastprof run train.py`.
        until_ns: the end of the recording in ns since 1970; if it is not an int, nothing is read,
            because a later change of the file would go unnoticed.
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
    except (OSError, ValueError, SyntaxError):  # a bad name or encoding, too
        return []
