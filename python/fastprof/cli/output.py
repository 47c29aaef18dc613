"""Output files of a command: checked before the program runs, never lost after it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

from fastprof.cli.exit_hooks import complain
from fastprof.fileio import atomic_write, resolve_output
from fastprof.render.formats import format_of

_LOST = "cannot write to standard output: {}"


def add_format(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add ``--format`` and ``-o``, by which each command takes the format of what it writes.

    Args:
        parser: the command's.
        names: the formats that it can write.
    """
    names = tuple(names)
    parser.add_argument(
        "--format",
        choices=names,
        metavar="FORMAT",
        help=f"one of {', '.join(names)} (default: by the suffix of -o, else text)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE instead of the terminal"
    )


def chosen_format(
    options: argparse.Namespace, names: Collection[str], default: str = "text"
) -> str:
    """Return the format that the options of :func:`add_format` name.

    Args:
        options: the arguments, parsed.
        names: as for :func:`add_format`.
        default: the format where neither option is there.

    Raises:
        ExportError: none has the suffix of ``-o``.
    """
    if options.format is not None:
        return str(options.format)
    return default if options.output is None else format_of(options.output, names).name


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


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Yield ``sys.stdout`` to be written to; it is flushed at the end.

    A reader that has closed the pipe has seen enough, which is no error.  A stream that has
    failed is taken away: the interpreter would fail with it once more at exit.

    Raises:
        OSError: it cannot be written; the message says so.  If it cannot even take what the
            profiled program had left in it, it is not taken away.
    """
    stream = sys.stdout
    stream.flush()
    try:
        with any_text(stream):
            yield stream
            stream.flush()
    except BrokenPipeError:
        sys.stdout = None
    except OSError as error:
        sys.stdout = None
        raise OSError(_LOST.format(error.strerror or error)) from None


def write_text(text: str, path: str | None = None) -> None:
    """Write ``text`` to a file, completely or not at all; None: to standard output.

    Raises:
        OSError: it cannot be written.
    """
    if path is None:
        with standard_output() as stream:
            stream.write(text)
        return
    with atomic_write(resolve_output(path)) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def output_told_of() -> Iterator[None]:
    """Around a command: ends it with one line where its output cannot be written.

    Where there is no standard output (>&-) the exit status still counts.

    Raises:
        SystemExit: with 2 then; or as it came, once what argparse or optparse have written
            is out.
    """
    try:
        if sys.stdout is None:
            with open(os.devnull, "w") as nobody, redirect_stdout(nobody):
                yield
                return
        try:
            yield
        except SystemExit:
            if sys.stdout is not None:
                sys.stdout.flush()
            raise
    except BrokenPipeError:
        sys.stdout = None
        raise SystemExit(0) from None
    except OSError as error:
        sys.stdout = None
        # Writing to a stream has a reason and no file name; ours have neither.
        of_stream = error.strerror is not None and error.filename is None
        complain(_LOST.format(error.strerror) if of_stream else str(error))
        raise SystemExit(2) from None


def check_output(path: str) -> str | None:
    """Return the fault of an output path, as far as it shows beforehand."""
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
