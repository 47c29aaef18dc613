"""A channel in a directory that all ranks can write to: one small file per key."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from fastprof.session.ranks.channel import MAX_VALUE


class DirectoryChannel:
    """Keeps each value in a file; see :class:`~fastprof.session.ranks.channel.Channel`.

    Args:
        path: the directory of one job; made if it does not exist.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self._path = path

    def put(self, key: str, value: bytes) -> None:
        """Write a file beside the old one, then put it in its place."""
        path = os.path.join(self._path, key)
        beside = f"{path}.{os.getpid()}~"
        # Not through a link: another user could have put it there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(beside, flags, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(value)
            os.replace(beside, path)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)
            raise

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read the files that are there; links, pipes and what is too long are not."""
        found = {}
        for key in keys:
            value = read_value(os.path.join(self._path, key))
            if value is not None:
                found[key] = value
        if not found and not os.path.isdir(self._path):
            raise FileNotFoundError(f"the directory {self._path!a} is gone")
        return found

    def close(self, *, last: bool) -> None:
        """Leave what was written; ``last``: remove the directory."""
        if not last:
            return
        with suppress(OSError):
            for name in os.listdir(self._path):
                if name.startswith(("window-", "detail-", "request", "verdicts")):
                    with suppress(OSError):
                        os.unlink(os.path.join(self._path, name))
            os.rmdir(self._path)


def read_value(path: str) -> bytes | None:
    """Return what a file holds; None: it is not there, or no file; empty: it is too long."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
