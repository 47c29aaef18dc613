"""The helpers distinguish the ways in which a child ends; no test uses the network."""

from __future__ import annotations

import hashlib
import socket
import threading
import time

import pytest
from helpers import MIB, run_child, sanitized, thread_state, wait_for_sleeping_threads

CONNECT = "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=1)\n"


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("pass", "ok"),
        ("raise SystemExit(3)", "status"),
        ("raise ValueError", "status"),
        ("import os\nos.abort()", "crash"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "crash"),
    ],
)
def test_a_child_that_fails_is_distinguished_from_one_that_crashes(code, end):
    assert run_child(code).end == end


def test_a_child_that_hangs_is_ended_and_shows_where():
    result = run_child("import time\nwhile True:\n    time.sleep(1)\n", timeout=5.0)
    assert result.end == "hang"
    assert "child.py" in result.stderr


def test_check_raises_for_any_other_end_than_the_expected_one():
    result = run_child("print('said'); raise SystemExit(3)")
    assert result.check(returncode=3).stdout == "said\n"
    with pytest.raises(AssertionError, match="said"):
        result.check()


@pytest.mark.skipif(sanitized(), reason="a sanitizer's shadow memory exceeds any limit")
def test_the_memory_limit_holds():
    result = run_child("bytearray(1 << 30)", rlimit_as=512 * MIB)
    assert result.end == "status"
    assert "MemoryError" in result.stderr


def test_arguments_environment_and_input_arrive():
    code = "import os, sys\nprint(sys.argv[1:], os.environ['A'], sys.stdin.read())\n"
    assert run_child(code, "x", env={"A": "b"}, stdin="in").check().stdout == "['x'] b in\n"


def test_p6_a_connection_out_of_this_machine_is_refused():
    with (
        socket.socket() as client,
        pytest.raises(BaseException, match=r"socket\.connect") as caught,
    ):
        client.connect(("192.0.2.1", 9))
    assert type(caught.value).__name__ == "NetworkUsed"


def test_p6_a_name_is_not_looked_up():
    with pytest.raises(BaseException, match=r"socket\.getaddrinfo"):
        socket.getaddrinfo("example.invalid", 80)


def test_p6_a_server_on_all_addresses_is_refused():
    with socket.socket() as server, pytest.raises(BaseException, match=r"socket\.bind"):
        server.bind(("0.0.0.0", 0))


def test_p6_children_are_guarded_too():
    assert "NetworkUsed" in run_child(CONNECT).stderr
    assert "NetworkUsed" not in run_child("import sys\nprint(sys.argv)").check().stderr


def test_p6_the_loopback_address_stays_usable():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname(), timeout=30):
            pass


def test_a_fork_waits_for_threads_that_run():
    ended = []
    stop = threading.Event()

    def compute() -> None:
        # Releases the interpreter's lock: a thread that waits for the lock sleeps.
        hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)
        ended.append(True)

    computing = threading.Thread(target=compute)
    sleeping = threading.Thread(target=stop.wait)
    computing.start()
    sleeping.start()
    # Skip the time in which it waits for the interpreter's lock.
    while not ended and thread_state(computing.native_id) != "R":
        time.sleep(0.0001)
    wait_for_sleeping_threads(limit_s=0.0)
    wait_for_sleeping_threads(limit_s=60 * 60)
    assert ended
    stop.set()
    computing.join()
    sleeping.join()
