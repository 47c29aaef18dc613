"""A channel in the key-value service of jax.distributed.

It uses the client that jax has made and connects, starts and imports nothing.  The client
waits for an answer in C++, without the GIL and without a time limit.  If the service does not
answer, jax ends the process after the timeout of its heartbeat.
"""

import sys
from collections.abc import Sequence
from typing import Any

from fastprof.ranks.exchange.channel import MAX_VALUE, Ended
from fastprof.session.environment.rank import jax_state

#: How jax's client reports a missing key, and a service that is gone.
_MISSING = "NOT_FOUND"
_GONE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_NEEDED = ("key_value_set_bytes", "key_value_try_get_bytes")


class JaxChannel:
    """Keeps values in jax's service; see :class:`~fastprof.ranks.exchange.channel.Channel`.

    A restarted job has another service, so it holds no keys of earlier starts.

    Raises:
        RuntimeError: the client of this release of jax cannot overwrite keys.
    """

    def __init__(self, job: str) -> None:
        self._prefix = f"fastprof/{job}/"
        client = self._client()
        if not all(hasattr(client, name) for name in _NEEDED):
            version = getattr(sys.modules.get("jax"), "__version__", "")
            raise RuntimeError(f"jax {version} cannot overwrite keys of its service")

    def put(self, key: str, value: bytes) -> None:
        """Set the key."""
        try:
            self._client().key_value_set_bytes(self._prefix + key, value, allow_overwrite=True)
        except RuntimeError as error:
            raise _meant(error) from None

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Get the keys that exist."""
        found = {}
        for key in keys:
            try:
                value: bytes = self._client().key_value_try_get_bytes(self._prefix + key)
            except RuntimeError as error:
                if str(error).startswith(_MISSING):
                    continue
                raise _meant(error) from None
            found[key] = value if len(value) <= MAX_VALUE else b""
        return found

    def close(self, *, last: bool) -> None:
        """Leave the client to jax; the service belongs to the job and ends with it."""

    def _client(self) -> Any:
        client = getattr(jax_state(), "client", None)
        if client is None:
            raise Ended
        return client


def open_jax(job: str) -> JaxChannel | None:
    """Return a channel in jax's service; None: jax.distributed does not use one so far.

    Raises:
        RuntimeError: the client of this release of jax cannot overwrite keys.
    """
    return None if jax_state() is None else JaxChannel(job)


def _meant(error: RuntimeError) -> Exception:
    """Convert an error of jax's client to the one that callers of a channel expect."""
    text = str(error).partition("\n")[0]
    return ConnectionError(text) if text.startswith(_GONE) else RuntimeError(text)
