"""A client of torch's TCPStore that never waits for long.

torch's own client waits for an answer in C++ without a time limit, and a thread that does so
while the interpreter ends may abort the process.  This client uses a plain socket with a limit.

It sends the same requests as torch 2.5 to 2.13; both of torch's servers (libuv and the older
one) accept them.  A request is a byte for its kind, then keys and values, each after its
length.  The older server reads a whole request before it serves another client, so the client
hands each request to the kernel as a whole.  It has one pending request at a time: a server
that answers after the connection was closed then writes to it once, which raises no SIGPIPE.
"""

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from fastprof.clock import time
from fastprof.errors import FastprofError
from fastprof.ranks.exchange.channel import MAX_VALUE

#: Seconds for a connection, and for the answer to a request.  A store looks up the name of
#: each machine that connects and serves no client meanwhile: for 5 s if no name server answers.
TIMEOUT_S = 10.0

_VALIDATE, _SET, _CHECK, _MULTI_GET, _PING = 0, 1, 5, 10, 13
_MAGIC = 0x3C85F7CE
_LENGTH = struct.Struct("=Q")
_AT_ONCE = 1 << 16


class NotAStoreError(FastprofError, ValueError):
    """The program that listens there does not answer like a TCPStore."""


class StoreClient:
    """A connection to a store; used by one thread.

    Every method raises OSError if the store is gone or does not answer in time, and
    :class:`NotAStoreError` if it answers something else.  After that the client cannot be used.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._identity = _identity(self._socket)
        self._received = bytearray()
        self._deadline = 0.0
        try:
            #: Numeric address and port of the store, to connect again without a lookup.
            self.peer: tuple[str, int] = self._socket.getpeername()[:2]
            # The kernel may give a port without a listener to the socket that connects to it.
            if self._socket.getsockname()[:2] == self.peer:
                raise ConnectionRefusedError(f"no program listens at port {address[1]}")
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ask_and_ping(struct.pack("=BI", _VALIDATE, _MAGIC))
        except BaseException:
            self.close()
            raise

    def set(self, key: bytes, value: bytes) -> None:
        # Without an answer the client would not know whether the store is still alive.
        self._ask_and_ping(bytes((_SET,)) + _string(key) + _string(value))

    def check(self, keys: Sequence[bytes]) -> bool:
        """Return whether all ``keys`` exist."""
        self._ask(_request(_CHECK, keys))
        answer = self._take(1)[0]
        self._end()
        if answer > 1:
            raise NotAStoreError(f"the store answered {answer}, expected 0 or 1")
        return answer == 0

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of ``keys``, which must exist; empty: too long."""
        self._ask(_request(_MULTI_GET, keys))
        values = [self._value() for _ in keys]
        self._end()
        return values

    def close(self) -> None:
        """End the connection, also for a forked child that has it."""
        with suppress(OSError):
            self._own().shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _own(self) -> socket.socket:
        """Return the socket, unless the program has closed its descriptor.

        The number may then be that of a file of the program, which nobody here may use or close.
        """
        if _identity(self._socket) != self._identity:
            self._socket.detach()
            raise ConnectionResetError("the program has closed the connection to the store")
        return self._socket

    def _ask_and_ping(self, request: bytes) -> None:
        nonce = os.urandom(4)
        self._ask(request + bytes((_PING,)) + nonce)
        if self._take(4) != nonce:
            raise NotAStoreError("another program listens at its port, or another version of torch")
        self._end()

    def _ask(self, request: bytes) -> None:
        self._deadline = time.monotonic() + TIMEOUT_S
        own = self._own()
        own.settimeout(TIMEOUT_S)
        if own.send(request, socket.MSG_NOSIGNAL) != len(request):
            raise ConnectionError("the store accepts no more requests")

    def _value(self) -> bytes:
        size: int = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if size <= MAX_VALUE:
            return self._take(size)
        while size > 0:
            size -= len(self._take(min(size, MAX_VALUE)))
        return b""

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the store has not answered for {TIMEOUT_S:.0f} s")
            own = self._own()
            own.settimeout(left)
            data = own.recv(_AT_ONCE)
            if not data:
                raise ConnectionResetError("the store has closed the connection")
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _end(self) -> None:
        if self._received:
            raise NotAStoreError("the store sent more data than requested")


def _identity(end: socket.socket) -> tuple[int, int] | None:
    """Return what distinguishes the file behind the descriptor from others; None: it is closed."""
    try:
        status = os.fstat(end.fileno())
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _string(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _request(what: int, keys: Sequence[bytes]) -> bytes:
    return bytes((what,)) + _LENGTH.pack(len(keys)) + b"".join(map(_string, keys))
