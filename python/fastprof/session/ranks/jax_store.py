"""A channel in the key-value service at which the processes of jax.distributed meet.

It is used through the client that jax has made: nothing is connected, started or imported.  The
client waits for an answer in C++, without the interpreter's lock and without an end.  Where the
service does not answer, jax ends the process after its heartbeat's timeout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fastprof.session.environment.rank import jax_state
from fastprof.session.ranks.channel import MAX_VALUE, Ended

#: What jax's client says of a key that is not there, and of a service that is gone.
_MISSING = "NOT_FOUND"
_GONE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_NEEDED = ("key_value_set_bytes", "key_value_try_get_bytes")


class JaxChannel:
    """Keeps values in jax's service; see :class:`~fastprof.session.ranks.channel.Channel`.

    A job that is started again has another service, so keys are not there from earlier starts.

    Args:
        job: the mark of this job.

    Raises:
        RuntimeError: this release of jax has no such client.
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
        """Get the keys that are there."""
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
        """Leave the client to jax; the service is the job's and ends with it."""

    def _client(self) -> Any:
        client = getattr(jax_state(), "client", None)
        if client is None:
            raise Ended
        return client


def open_jax(job: str) -> JaxChannel | None:
    """Return a channel at jax's service; None: jax.distributed does not use one so far.

    Raises:
        RuntimeError: this release of jax has no such client.
    """
    return None if jax_state() is None else JaxChannel(job)


def _meant(error: RuntimeError) -> Exception:
    """Return what the caller of a channel expects for an error of jax's client."""
    text = str(error).partition("\n")[0]
    return ConnectionError(text) if text.startswith(_GONE) else RuntimeError(text)
