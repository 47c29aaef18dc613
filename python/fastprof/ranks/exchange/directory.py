"""A channel in a directory that all ranks can write to: one small file per key."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fastprof.ranks.exchange.channel import MAX_VALUE

#: Files of :meth:`DirectoryChannel.put`, and those that it leaves if its process is killed.
_OURS = re.compile(
    r"((window|detail|group-[0-9]+)-[0-9]+|request|verdicts)(\.[0-9a-f]+~)?", re.ASCII
)


class DirectoryChannel:
    """Keeps each value in a file; see :class:`~fastprof.ranks.exchange.channel.Channel`.

    Raises:
        OSError: it cannot be made, is a link, or every user can write to it.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self._path = path
        with self._opened():
            pass

    def put(self, key: str, value: bytes) -> None:
        """Write a new file, then replace the old one."""
        # Nobody can know the name, and put a link to another file there.
        beside = f"{key}.{os.urandom(8).hex()}~"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._opened() as folder:
            handle = os.open(beside, flags, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(value)
                os.replace(beside, key, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
                raise

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read the existing files that :func:`read_value` accepts; too long: empty."""
        found = {}
        with self._opened() as folder:
            for key in keys:
                value = read_value(key, folder)
                if value is not None:
                    found[key] = value
        return found

    def close(self, *, last: bool) -> None:
        """Keep the files; ``last``: remove them, and the directory if it is then empty."""
        if not last:
            return
        with suppress(OSError), self._opened() as folder:
            for name in os.listdir(folder):
                if _OURS.fullmatch(name):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
            os.rmdir(self._path)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the directory; refuse a link in its place, which may lead anywhere, and one in
        which every user can replace files.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = os.open(self._path, flags)
        except FileNotFoundError:
            raise FileNotFoundError(f"the directory {self._path!r} is gone") from None
        except OSError:
            if os.path.islink(self._path):
                raise NotADirectoryError(
                    f"{self._path!r} is a link, expected a directory"
                ) from None
            raise
        try:
            if os.fstat(folder).st_mode & stat.S_IWOTH:
                raise PermissionError(
                    f"every user can write to the directory {self._path!r}: remove it, or name "
                    "another one"
                )
            yield folder
        finally:
            os.close(folder)


def read_value(path: str, folder: int | None = None) -> bytes | None:
    """Return the content of a file that a rank has put; None: it is missing or another file.

    A rank's file is a regular one with a single name, belongs to this user or to the directory's
    owner, and not every user can write to it.

    Args:
        folder: an open directory to which ``path`` is relative.

    Returns:
        At most :data:`~fastprof.ranks.exchange.channel.MAX_VALUE` bytes; empty: it is longer.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        place = os.path.dirname(path) or os.curdir if folder is None else folder
        owner = os.stat(place).st_uid
        handle = os.open(path, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        if not _is_ours(os.fstat(handle), owner):
            return None
        data = os.read(handle, MAX_VALUE + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= MAX_VALUE else b""


def _is_ours(status: os.stat_result, owner: int) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink <= 1  # 0: replaced meanwhile
        and status.st_uid in (owner, os.geteuid())
        and not status.st_mode & stat.S_IWOTH
    )
