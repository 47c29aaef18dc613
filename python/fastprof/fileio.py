"""Files: written completely or not at all, read within bounds."""

import _signal  # type: ignore[import-not-found]
import os
import secrets
import stat
from _io import open as open_file  # the program may replace the builtin
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fastprof.errors import LoadError
from fastprof.guards import dropped, own_errors

_CHUNK = 1 << 20

#: How a new file with a name is opened.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)

#: Directories with links to the process's own streams; only root can create one there.
_STREAM_DIRECTORIES = ("/dev", "/dev/fd", "/proc/self/fd")


def resolve_output(path: str | os.PathLike[str]) -> str:
    """Return an output path as an absolute one, which a later ``os.chdir`` does not change.

    Raises:
        TypeError: not a path.
        ValueError: empty, or with a NUL.
        IsADirectoryError: a directory.
    """
    full = _absolute(path, "a file")
    if full.is_dir():
        raise IsADirectoryError(f"{str(full)!r} is a directory, expected the path of a file")
    return str(full)


def resolve_directory(path: str | os.PathLike[str]) -> str:
    """Return the path of a directory, which need not exist yet, as an absolute one.

    Raises:
        TypeError: not a path.
        ValueError: empty, or with a NUL.
        NotADirectoryError: the path exists and is not a directory.
    """
    full = _absolute(path, "a directory")
    if full.exists() and not full.is_dir():
        raise NotADirectoryError(f"{str(full)!r} is a file, expected the path of a directory")
    return str(full)


def _absolute(path: str | os.PathLike[str], what: str) -> Path:
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path is {path!r:.80}, expected a str or a path of str")
    if not name or "\0" in name:
        raise ValueError(f"path is {name!r:.80}, expected the path of {what}")
    return Path(name).absolute()


@contextmanager
def atomic_write(path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Give a stream whose content becomes ``path`` when the block ends without an error.

    The content goes to a new file in the same directory, readable by its owner alone, which
    replaces ``path`` after it has reached the disk; a reader of ``path`` always sees all of the old
    or all of the new content.  On Linux the file has no name until then, so that a process that is
    killed leaves nothing.  On an error the new file is removed and ``path`` is unchanged.  A
    symbolic link at ``path`` is replaced, not followed.  Devices and pipes are written directly,
    because they cannot be replaced.

    Args:
        path: of the file.
        durable: False: do not wait for the disk, since nobody needs the file after a power failure.

    Raises:
        OSError: the file cannot be made or written.
    """
    with _limit_raises(), _whole(path, durable) as stream:
        yield stream


@contextmanager
def _limit_raises() -> Iterator[None]:
    """Let a write beyond the limit on a file's size fail: the signal may end the process."""
    number = getattr(_signal, "SIGXFSZ", None)
    if number is None or not hasattr(_signal, "sigtimedwait"):
        yield
        return
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        if number not in before:
            _signal.sigtimedwait([number], 0)  # the kernel's, to this thread
            _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


@contextmanager
def _whole(path: str, durable: bool) -> Iterator[BinaryIO]:
    if _is_stream(path):
        with _open_stream(path) as stream:
            yield stream
        return
    directory = os.path.dirname(path) or os.curdir
    # Not a Path: pathlib interns each name, which 3.12 and free-threaded 3.13 keep for ever.
    temporary = os.path.join(directory, f".fastprof-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    fd = _unnamed(directory)
    named = fd is None
    try:
        if fd is None:
            fd = os.open(temporary, _NEW, 0o600)
    except own_errors(OSError) as error:  # the name given by the caller says more
        raise OSError(error.errno, error.strerror, path) from None
    try:
        with open_file(fd, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(fd)
            if not named:
                _name(fd, temporary)
        os.replace(temporary, path)
    except BaseException:
        with dropped(OSError):
            os.unlink(temporary)
        raise
    if durable:
        _sync_directory(directory)


def _unnamed(directory: str) -> int | None:
    """Open a new file without a name; None: this file system or system has none."""
    fd = None
    with dropped(OSError, AttributeError):
        fd = os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        if not os.path.exists(_link(fd)):  # no /proc, by which it gets a name
            os.close(fd)
            fd = None
    return fd


def _name(fd: int, path: str) -> None:
    try:
        os.link(_link(fd), path, src_dir_fd=fd, follow_symlinks=True)  # by linkat
    except own_errors(OSError):  # a sandbox forbids it
        with open_file(os.open(path, _NEW, 0o600), "wb") as stream:
            os.lseek(fd, 0, os.SEEK_SET)
            while chunk := os.read(fd, _CHUNK):
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())


def _link(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _is_stream(path: str) -> bool:
    try:
        mode = Path(path).lstat().st_mode
        if stat.S_ISLNK(mode) and str(Path(path).parent) in _STREAM_DIRECTORIES:
            return not stat.S_ISDIR(Path(path).stat().st_mode)
    except own_errors(OSError):
        return False  # opening the file will report the error
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode)


def _open_stream(path: str) -> BinaryIO:
    # O_NONBLOCK: a pipe without a reader is an error, not an endless wait.
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISBLK(mode):
            raise OSError(f"{path!r} is a block device; fastprof does not write to disks")
        os.set_blocking(fd, True)
        return open_file(fd, "wb")
    except BaseException:
        os.close(fd)
        raise


def _sync_directory(directory: str) -> None:
    """Make the rename itself durable, if the system supports it."""
    with dropped(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def read_bounded(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``max_bytes`` bytes.

    Raises:
        LoadError: (a ValueError) larger, not a regular file, or a NUL in the path.
        OSError: it cannot be read.
    """
    if "\0" in os.fsdecode(path):
        raise LoadError("a path cannot hold a NUL character")
    # O_NONBLOCK: opening a pipe without a writer must not wait forever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise LoadError(f"{_show(path)}: not a regular file")
    with open_file(fd, "rb", buffering=0) as raw:
        if status.st_size > max_bytes:
            raise LoadError(
                f"{_show(path)}: {status.st_size} bytes, more than max_bytes={max_bytes}"
            )
        parts: list[bytes] = []
        size = 0
        while chunk := raw.read(min(_CHUNK, max_bytes + 1 - size)):
            parts.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise LoadError(f"{_show(path)}: more than max_bytes={max_bytes} bytes")
        return b"".join(parts)


def _show(path: str | os.PathLike[str]) -> str:
    return repr(os.fsdecode(path))
