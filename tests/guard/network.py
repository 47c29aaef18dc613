"""Refuses every connection that leaves this machine: this enforces promise P6.

Unix sockets and the loopback address stay, because multiprocessing and asyncio need them.  An audit
hook, unlike a patched socket module, also sees C code and `_socket`.
"""

from __future__ import annotations

import sys

LOCAL = ("127.0.0.1", "::1", "localhost")
#: Audit event -> position of the address in its arguments.
ADDRESS = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.bind": 1}
LOOKUP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


class NetworkUsed(BaseException):
    """Not an Exception: code that swallows errors must not swallow this one."""


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket's path, netlink, or a connected datagram socket
    return not address or address[0] in LOCAL


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event in ADDRESS:
        if not _is_local(arguments[ADDRESS[event]]):
            raise NetworkUsed(f"{event} to {arguments[ADDRESS[event]]!r}")
    elif event in LOOKUP and arguments[0] not in (*LOCAL, None, ""):
        raise NetworkUsed(f"{event} of {arguments[0]!r}")


def forbid() -> None:
    """Refuse connections permanently: an audit hook cannot be removed."""
    sys.addaudithook(_hook)
