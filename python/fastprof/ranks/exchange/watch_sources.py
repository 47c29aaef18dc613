"""Reads the windows of a job's ranks from outside: from their directory or their store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from fastprof.clock import time
from fastprof.names import readable
from fastprof.ranks.exchange.channel import DIRECT, VERDICTS, window_key
from fastprof.ranks.exchange.directory import read_value
from fastprof.ranks.exchange.find import DIRECTORY, job_mark
from fastprof.ranks.exchange.running import running_jobs
from fastprof.ranks.exchange.store import StoreChannel, store_address
from fastprof.ranks.live.window import decode
from fastprof.ranks.row import MAX_RANKS
from fastprof.session.environment.rank import world_size_of

_WINDOW = window_key(0).removesuffix("0")

#: Rank, window, and its age in seconds.
Heard = tuple[int, bytes, float]


class Source(Protocol):
    """Read-only access to the values that the ranks of one job publish."""

    #: The error text if nothing has been published, with a remedy.
    nothing: str

    def windows(self) -> list[Heard]:
        """Return the windows that can be read, by rank; none: the job is over."""

    def verdicts(self) -> bytes:
        """Return the last lines that rank 0 has logged; empty: none."""

    def newer(self) -> Source | None:
        """Return a job that began later in the same place; None: there is none."""

    def close(self) -> None:
        """Close the source."""


class Folder:
    """The directory of one job.

    Args:
        root: the directory where the ranks of jobs meet, or that of one job in it; of several
            jobs the one with the newest window counts.

    Raises:
        ValueError: no rank of a job has published anything there.
        OSError: it is not a directory, or cannot be read.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._folder = _job_in(root)
        self.nothing = _nothing(self._folder)

    def windows(self) -> list[Heard]:
        """Return the windows in readable files; the files' times give their ages."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            number = name.removeprefix(_WINDOW)
            if number == name or not (number.isascii() and number.isdigit() and len(number) < 8):
                continue
            path = os.path.join(self._folder, name)
            value, written = read_value(path), _written(path)
            if (
                value is None
                or written is None
                or int(number) >= MAX_RANKS
                or not _is_window(value)
            ):
                continue
            found.append((int(number), value, max(0.0, time.time() - written)))
        return sorted(found)

    def verdicts(self) -> bytes:
        """Return the lines that rank 0 has written."""
        return read_value(os.path.join(self._folder, VERDICTS)) or b""

    def newer(self) -> Source | None:
        """Return the job with the newest window in the directory, if it is another one."""
        return Folder(self._root) if _job_in(self._root) != self._folder else None

    def close(self) -> None:
        """Do nothing: nothing stays open between two looks."""


class Store:
    """The store of one job of torch.distributed.

    Args:
        world: number of ranks; None: that of the environment.
        mark: the mark of the job; None: by the environment, and a newer job is followed.

    Raises:
        ValueError: the job has too many ranks, or its address is not that of a store.
        OSError: nothing answers there.
    """

    def __init__(
        self, env: Mapping[str, str], world: int | None = None, mark: str | None = None
    ) -> None:
        self._world = world_size_of(env) if world is None else world
        if self._world > DIRECT:
            raise ValueError(
                f"the job has {self._world} ranks, but fastprof reads a store for at most "
                f"{DIRECT}: set {DIRECTORY} in the job to a directory that all ranks can write to"
            )
        address = store_address(env)
        if address is None:
            raise ValueError("MASTER_ADDR and MASTER_PORT of the job do not name a store")
        self._follows = mark is None
        self._mark = mark or job_mark(self._world, env)
        self._channel = StoreChannel(address, self._mark, env)
        self._last: list[Heard] = []
        self._is_over = False
        self.nothing = _nothing_in_store(*address)

    def windows(self) -> list[Heard]:
        """Return the windows in the store; the last ones while it does not answer in time.

        The store does not say when a window was published, so its age is 0.
        """
        if self._is_over:
            return []
        try:
            values = self._channel.get([window_key(rank) for rank in range(self._world)])
        except TimeoutError:
            return self._last
        except (OSError, ValueError):
            self.close()
            return []
        windows = ((rank, values.get(window_key(rank), b"")) for rank in range(self._world))
        self._last = [(rank, value, 0.0) for rank, value in windows if _is_window(value)]
        return self._last

    def verdicts(self) -> bytes:
        """Return the lines that rank 0 has put into the store."""
        if self._is_over:
            return b""
        try:
            return self._channel.get([VERDICTS]).get(VERDICTS, b"")
        except (OSError, ValueError):
            return b""

    def newer(self) -> Source | None:
        """Return the newest job on this machine, if it is another one."""
        env = next(iter(running_jobs()), None) if self._follows else None
        if env is None or job_mark(world_size_of(env), env) == self._mark:
            return None
        return source_of(env)

    def close(self) -> None:
        self._is_over = True
        self._channel.close(last=False)


def source_of(env: Mapping[str, str]) -> Source:
    """Return the source of a job's windows.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    if env.get(DIRECTORY):
        mark = job_mark(world_size_of(env), env)
        return Folder(os.path.join(env[DIRECTORY], f"fastprof-{mark}"))
    return Store(env)


def store_at(place: str) -> Store:
    """Return the store of a job whose processes do not say where it is, as with ``mp.spawn``.

    Args:
        place: ``MASTER_ADDR:MASTER_PORT``, as the program has set them.

    Raises:
        OSError, ValueError: it cannot be read, or no rank of such a job has published there.
    """
    host, _, port = place.rpartition(":")
    env = {"MASTER_ADDR": host, "MASTER_PORT": port}
    address = store_address(env)
    if address is None:
        raise ValueError(f"{readable(place, 100)} is not an address and a port")
    # A launcher's variables are part of a job's mark: this process may have the same ones.
    for known in (env, {**os.environ, **env}):
        try:
            channel = StoreChannel(address, "", known)
        except OSError as error:
            raise ValueError(f"no store answers at {readable(place, 100)}: {error}") from None
        try:
            mark = channel.find_mark()
        finally:
            channel.close(last=False)
        if mark is not None:
            first = Store(known, 1, mark)
            windows = first.windows()
            first.close()
            if windows:
                return Store(known, decode(windows[0][1]).world_size, mark)
    raise ValueError(_nothing_in_store(*address))


def _nothing_in_store(host: str, port: int) -> str:
    return (
        f"no rank has published anything in the store at {readable(host, 100)}:{port}: is the "
        "job run by fastprof, and has it made steps for 10 s?"
    )


def _is_window(value: bytes) -> bool:
    try:
        decode(value)
    except ValueError:
        return False
    return True


def _job_in(folder: str) -> str:
    names = os.listdir(folder)
    if any(name.startswith(_WINDOW) for name in names):
        return folder
    jobs = [os.path.join(folder, name) for name in names if name.startswith("fastprof-")]
    heard = {job: max(_times(job), default=0.0) for job in jobs}
    newest = max(heard, key=lambda job: heard[job], default=None)
    if newest is None or not heard[newest]:
        raise ValueError(_nothing(folder))
    return newest


def _times(folder: str) -> Sequence[float]:
    try:
        names = [name for name in os.listdir(folder) if name.startswith(_WINDOW)]
    except OSError:
        return ()
    return [_written(os.path.join(folder, name)) or 0.0 for name in names]


def _written(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _nothing(folder: str) -> str:
    return (
        f"no rank has published anything in {folder!r}: name the directory that FASTPROF_RANKS_DIR "
        "names in the job, while the job runs"
    )
