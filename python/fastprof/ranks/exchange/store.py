"""A channel in the store of torch.distributed.

It is one more client of that store, with a separate connection: it opens no port, makes
no process group and calls no collective.
"""

import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from fastprof.names import short_hash
from fastprof.ranks.exchange.channel import Ended, window_key
from fastprof.ranks.exchange.tcpstore import NotAStoreError, StoreClient
from fastprof.session.environment.rank import find_live_job, torch_distributed

#: Most keys of a request: it is sent whole, and its answer fits into the socket's buffers.
_CHECKED = 32
_READ = 8
#: Most files that the store's process has open besides its connections.
_OTHER_FILES = 256
#: Older versions of torch have another protocol.
_OLDEST = (2, 5)
_MARK = b"fastprof:"
_LONGEST_MARK = 100


class StoreChannel:
    """Keeps values in a store; see :class:`~fastprof.ranks.exchange.channel.Channel`.

    Keys are the same after a restart of the job, so that the store does not grow: each rank
    replaces what it published before.  :meth:`get` ignores values with another mark.

    Args:
        address: host and port of the store.
        job: the mark of the job, and of this start.
        env: the environment of one of its ranks, for a process that only reads; None: this
            process is one, and has a channel while it uses torch.distributed.

    Raises:
        OSError, ValueError: it does not answer, or not like a store.
    """

    def __init__(
        self, address: tuple[str, int], job: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._address = address
        # torch puts a slash before the keys of all its clients.
        self._prefix = f"/fastprof/{short_hash(find_live_job(env) or '')}/".encode()
        self._is_of_job = env is None
        self._mark = _MARK + job.encode() + b":"
        self._client: StoreClient | None = None
        self._known: set[bytes] = set()
        with self._connected():
            pass

    def put(self, key: str, value: bytes) -> None:
        """Set the key."""
        with self._connected() as client:
            client.set(self._prefix + key.encode(), self._mark + value)

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Get the keys that exist; for others a store would wait, or end the connection."""
        named = {self._prefix + key.encode(): key for key in keys}
        found = {}
        with self._connected() as client:
            for some in _parts([key for key in named if key not in self._known], _CHECKED):
                if client.check(some):
                    self._known.update(some)
                elif len(some) > 1:
                    self._known.update(key for key in some if client.check([key]))
            for some in _parts([key for key in named if key in self._known], _READ):
                for key, value in zip(some, client.multi_get(some), strict=True):
                    if value.startswith(self._mark):
                        found[named[key]] = value[len(self._mark) :]
                    elif not value.startswith(_MARK):
                        found[named[key]] = b""
        return found

    def find_mark(self) -> str | None:
        """Return the mark with which rank 0 has published; None: it has published nothing."""
        key = self._prefix + window_key(0).encode()
        with self._connected() as client:
            value = client.multi_get([key])[0] if client.check([key]) else b""
        mark = value.removeprefix(_MARK)[:_LONGEST_MARK].partition(b":")[0]
        return mark.decode("ascii", "replace") if value.startswith(_MARK) else None

    def close(self, *, last: bool) -> None:
        """Close the connection; the store belongs to the job and ends with it."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextmanager
    def _connected(self) -> Iterator[StoreClient]:
        if self._client is None:
            if self._is_of_job and torch_distributed() is None:
                raise Ended
            self._known.clear()  # after a reconnection this may be another store
            self._client = StoreClient(self._address)
            self._address = self._client.peer
        done = False
        try:
            yield self._client
            done = True
        finally:
            if not done:
                self.close(last=False)


def open_store(job: str, world_size: int) -> StoreChannel | None:
    """Return a channel in the job's store; None: torch.distributed does not use it so far.

    Raises:
        OSError, ValueError: no store answers there.
    """
    address = store_address(os.environ)
    # Once torch.distributed is initialised nobody waits for the store's port.
    if address is None or torch_distributed() is None:
        return None
    version = getattr(sys.modules.get("torch"), "__version__", "")
    if not _is_known(str(version)):
        raise NotAStoreError(f"torch {version} has another protocol, torch 2.5 is needed")
    # Most likely the store's process has the same limit.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = 2 * world_size + _OTHER_FILES
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise NotAStoreError(
            f"the limit of open files is {limit} (ulimit -n), but with one more connection for "
            f"each rank a process may need {needed}"
        )
    return StoreChannel(address, job)


def store_address(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return host and port of the store that the environment of a rank names."""
    address, port = env.get("MASTER_ADDR"), env.get("MASTER_PORT", "")
    if not address or not (port.isascii() and port.isdigit() and len(port) < 6):
        return None
    return address, int(port)


def _is_known(version: str) -> bool:
    numbers = version.split(".")[:2]
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) >= _OLDEST


def _parts(keys: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [keys[i : i + size] for i in range(0, len(keys), size)]
