"""Output files of a command: checked before the program runs, never lost after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from fastprof.cli.endings import complain
from fastprof.fileio import resolve_output


@contextmanager
def any_text(stream: TextIO) -> Iterator[None]:
    """Let ``stream`` take names that its encoding cannot write, escaped."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is None:
        yield
        return
    errors = stream.errors
    reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        reconfigure(errors=errors)


def check_output(path: str) -> str | None:
    """Return what is wrong with an output path, as far as can be told beforehand."""
    try:
        path = resolve_output(path)
    except (OSError, ValueError) as error:
        return f"cannot write the profile: {error}"
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"cannot write the profile: there is no directory {directory!a}"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"cannot write the profile: no permission to write in {directory!a}"
    return None


def save_or_keep(path: str, write: Callable[[str], None]) -> None:
    """Call ``write(path)``; if that fails, write to a new file elsewhere and say where.

    Raises:
        OSError: that failed too; the message has both reasons.
    """
    try:
        write(path)
        return
    except OSError as error:
        problem = f"cannot write {path!a}: {error.strerror or error}"
    suffix = "-" + os.path.basename(path)
    try:
        fd, other = tempfile.mkstemp(prefix="fastprof-", suffix=suffix)
        os.close(fd)
        try:
            write(other)
        except BaseException:
            os.unlink(other)
            raise
    except OSError as error:
        raise OSError(f"{problem}; nor to a temporary file: {error.strerror or error}") from None
    complain(f"{problem}; the profile is in {other!a} instead")
