"""Thread-local memory of the extension: a process with many libraries has little left."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import fastprof._core as core
import pytest
from helpers import run_child
from trees import counts, record

PT_TLS = 7


def tls_bytes(path: Path) -> int:
    """Return the size of the thread-local segment of a 64-bit ELF library."""
    data = path.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 0x20)
    size, number = struct.unpack_from("<HH", data, 0x36)
    headers = (struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(number))
    return sum(header[6] for header in headers if header[0] == PT_TLS)


def test_the_extension_takes_one_pointer_of_each_thread() -> None:
    path = Path(core.__file__)
    if path.read_bytes()[:5] != b"\x7fELF\x02":
        pytest.skip("no ELF library of 64 bits")
    # Initial-exec: it uses the loader's reserve for libraries that are loaded late.
    assert 0 < tls_bytes(path) <= 8


def leaf() -> None:
    pass


def test_threads_come_and_go(backend: str) -> None:
    def one() -> None:
        leaf()

    def run() -> None:
        for _ in range(50):
            threads = [threading.Thread(target=one) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    assert counts(record(run, backend), "leaf") == (200, 0)


def test_a_forked_child_and_its_threads(backend: str) -> None:
    run_child(
        """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from trees import counts
def leaf(): pass
def recorded(r):
    r.enable()
    leaf()
    t = threading.Thread(target=leaf); t.start(); t.join()
    r.disable()
    return counts(take_snapshot(r), "leaf")[0]
r = Recorder(backend=sys.argv[1])
assert recorded(r) == 2
pid = os.fork()
if pid == 0:
    ok = recorded(Recorder(backend=sys.argv[1])) == 2
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
assert recorded(Recorder(backend=sys.argv[1])) == 2
""",
        backend,
        str(Path(__file__).resolve().parent.parent),
    ).check()
