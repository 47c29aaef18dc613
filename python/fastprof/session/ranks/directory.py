"""A channel in a directory that all ranks can write to: one small file per key."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fastprof.session.ranks.channel import MAX_VALUE

#: Files of :meth:`DirectoryChannel.put`, and those that it leaves if its process is killed.
_OURS = re.compile(r"((window|detail|group-[0-9]+)-[0-9]+|request|verdicts)(\.[0-9]+~)?", re.ASCII)


class DirectoryChannel:
    """Keeps each value in a file; see :class:`~fastprof.session.ranks.channel.Channel`.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self._path = path
        with self._opened():
            pass

    def put(self, key: str, value: bytes) -> None:
        """Write a file beside the old one, then replace the old one."""
        beside = f"{key}.{os.getpid()}~"
        # Not through a link: another user could have put it there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
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
        """Read the existing files; skip links and pipes; a value that is too long is empty."""
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
        """Open the directory; refuse a link in its place, which may lead anywhere."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = os.open(self._path, flags)
        except FileNotFoundError:
            raise FileNotFoundError(f"the directory {self._path!a} is gone") from None
        except OSError:
            if os.path.islink(self._path):
                raise NotADirectoryError(
                    f"{self._path!a} is a link, expected a directory"
                ) from None
            raise
        try:
            yield folder
        finally:
            os.close(folder)


def read_value(path: str, folder: int | None = None) -> bytes | None:
    """Return the content of a file; None: it is missing or not a file; empty: it is too long.

    Args:
        folder: an open directory to which ``path`` is relative.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        data = os.read(handle, MAX_VALUE + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= MAX_VALUE else b""
