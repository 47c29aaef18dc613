"""Output files of a command: checked before the program runs, never lost after it."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast

from fastprof.cli.exit_hooks import complain
from fastprof.fileio import atomic_write, resolve_output
from fastprof.names import encodable
from fastprof.render.formats import format_of

_LOST = "cannot write to standard output: {}"


def add_format(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add ``--format`` and ``-o``, which choose the output format of every command."""
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
    """Return the format chosen by the options of :func:`add_format`.

    Args:
        default: the format without either option.

    Raises:
        ExportError: the suffix of ``-o`` belongs to no format.
    """
    if options.format is not None:
        return str(options.format)
    return default if options.output is None else format_of(options.output, names).name


class _Own:
    """The program's own object, which need not have more than ``write``."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if hasattr(self._stream, "flush"):
            self._stream.flush()


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Yield ``sys.stdout`` for writing; flush it at the end.

    A reader that closed the pipe has seen enough: that is not an error.  A failed stream is
    removed: the interpreter would fail with it again at exit.

    Raises:
        OSError: it cannot be written; the message says so.  If not even the profiled program's
            earlier output can be written, the stream stays.
    """
    stream: Any = sys.stdout
    if getattr(stream, "closed", False):
        raise OSError(_LOST.format("the program has closed it"))
    if not hasattr(stream, "reconfigure"):
        yield cast(TextIO, _Own(stream))
        return
    stream.flush()
    try:
        errors = stream.errors
        stream.reconfigure(errors="backslashreplace")
        try:
            yield stream
            stream.flush()
        finally:
            stream.reconfigure(errors=errors)
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
    """Wrap a command: end it with one line if its output cannot be written.

    Without a standard output (>&-) the exit status still counts.

    Raises:
        SystemExit: with 2 in that case; otherwise unchanged, after the output of argparse or
            optparse is written.
    """
    try:
        if sys.stdout is None:
            with open(os.devnull, "w") as nobody, redirect_stdout(nobody):
                yield
                return
        try:
            yield
        except SystemExit:
            if hasattr(sys.stdout, "flush"):
                sys.stdout.flush()
            raise
    except BrokenPipeError:
        sys.stdout = None
        raise SystemExit(0) from None
    except OSError as error:
        sys.stdout = None
        # A stream's error has a reason and no file name; fastprof's own errors have neither.
        of_stream = error.strerror is not None and error.filename is None
        complain(_LOST.format(error.strerror) if of_stream else str(error))
        raise SystemExit(2) from None


def check_output(path: str) -> str | None:
    """Return the fault of an output path, as far as it is visible in advance."""
    try:
        path = resolve_output(path)
    except (OSError, ValueError) as error:
        return f"cannot write the profile: {error}"
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"cannot write the profile: there is no directory {directory!r}"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"cannot write the profile: no permission to write in {directory!r}"
    return None


def save_or_keep(path: str, write: Callable[[str], None]) -> None:
    """Call ``write(path)``; if that fails, write to a new file elsewhere and report its place.

    Raises:
        OSError: that failed too; the message has both reasons.
    """
    try:
        write(path)
        return
    except OSError as error:
        problem = f"cannot write {path!r}: {error.strerror or error}"
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
    complain(f"{problem}; the profile is in {other!r} instead")
