"""Ranks meet at torch's TCPStore: fastprof uses it like torch, and its faults do no harm."""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
import threading
import tracemalloc
from contextlib import closing, suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest
from fastprof.names import short_hash
from fastprof.ranks.exchange import store as stores
from fastprof.ranks.exchange import tcpstore
from fastprof.ranks.exchange.channel import MAX_VALUE, Ended
from fastprof.ranks.exchange.find import find_channel, job_mark
from fastprof.ranks.exchange.store import StoreChannel
from fastprof.ranks.exchange.tcpstore import NotAStoreError, StoreClient
from fastprof.ranks.exchange.watch_sources import Store, store_at
from fastprof.ranks.exchange.watching import Watch
from fastprof.ranks.live.window import RankWindow, encode
from fastprof.session.environment.rank import find_live_job

HELLO = struct.pack("=BI", 0, 0x3C85F7CE) + b"\x0dabcd"


@pytest.fixture
def used(monkeypatch):
    """Simulate the state of torch.distributed, without torch."""
    state = SimpleNamespace(is_used=True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0+cpu"))
    monkeypatch.setitem(
        sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: state.is_used)
    )
    return state


@pytest.fixture(params=["libuv", "older"])
def server(request, monkeypatch):
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False,
        use_libuv=request.param == "libuv", timeout=timedelta(seconds=30),
    )  # fmt: skip
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return store


@pytest.fixture
def channel_of():
    """Return a function that opens channels, which are closed at the end."""
    made = []

    def make(job="0123", *, address=None):
        made.append(find_channel(job, 2) if address is None else StoreChannel(address, job))
        return made[-1]

    yield make
    for channel in made:
        channel.close(last=True)


# ---- a real store


def test_the_store_has_the_last_value_of_each_key_and_nothing_else(server, channel_of):
    before = server.num_keys()
    channel = channel_of()
    assert channel.get(["window-0", "window-1"]) == {}
    for value in (b"\x00first", b"\x00second\xff"):
        channel.put("window-1", value)
    assert channel.get(["window-0", "window-1"]) == {"window-1": b"\x00second\xff"}
    channel.put("window-0", b"")
    assert channel.get(["window-0", "window-1"]) == {
        "window-0": b"",
        "window-1": b"\x00second\xff",
    }
    for _ in range(50):
        channel.put("window-1", b"x" * 8192)
    assert channel.get(["window-1"]) == {"window-1": b"x" * 8192}
    assert server.num_keys() == before + 2


def test_many_ranks_are_read_with_some_missing(server, channel_of):
    channel = channel_of()
    for rank in range(0, 100, 3):
        channel.put(f"window-{rank}", b"%d" % rank * 400)
    found = channel.get([f"window-{rank}" for rank in range(100)])
    assert found == {f"window-{rank}": b"%d" % rank * 400 for rank in range(0, 100, 3)}


def test_keys_are_the_same_after_a_restart_and_what_was_there_before_is_not_seen(
    server, channel_of
):
    first = channel_of()
    first.put("window-0", b"stale")
    before = server.num_keys()
    again = channel_of("4567")
    assert again.get(["window-0"]) == {}
    again.put("window-0", b"new")
    assert again.get(["window-0"]) == {"window-0": b"new"}
    assert first.get(["window-0"]) == {}
    assert server.num_keys() == before


def test_values_of_others_making_are_damaged_and_too_long_ones_too(server, channel_of):
    channel = channel_of()
    channel.put("window-0", b"fine")
    key = channel._prefix.decode()[1:]
    server.set(f"{key}window-1", "nonsense")
    server.set(f"{key}window-2", "x" * (20 * MAX_VALUE))
    assert server.check([f"{key}window-2"])  # a set has no answer: it has arrived by now
    assert channel.get(["window-0", "window-1", "window-2"]) == {
        "window-0": b"fine",
        "window-1": b"",
        "window-2": b"",
    }


def test_a_job_goes_on_whatever_request_a_connection_ends_in(server):
    """Also during an answer that is not read."""
    key = struct.pack("=Q", 5) + b"/key0"
    requests = (
        b"\x01" + key + struct.pack("=Q", 40) + b"v" * 40,
        b"\x05" + struct.pack("=Q", 2) + key + key,
        b"\x0a" + struct.pack("=Q", 1) + key,
    )
    cut = [HELLO[:i] for i in (1, 4, 5, 6, 9)]
    for request in requests:
        cut += [HELLO + request[:i] for i in (1, 5, 9, 12, len(request) - 1)]
    server.set("key0", "x" * 5000)
    for number, data in enumerate([*cut, HELLO + requests[2] * 20]):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(data)
        server.set("job", str(number))
        assert server.get("job") == str(number).encode()
    assert server.num_keys() == 2


def test_the_next_connection_is_made_when_the_store_has_gone_and_come(server, channel_of):
    channel = channel_of()
    channel.put("window-0", b"1")
    channel._client._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError):
        channel.put("window-0", b"2")
    channel.put("window-0", b"3")
    assert channel.get(["window-0"]) == {"window-0": b"3"}


# ---- no store


class Fake:
    """Listens, and sends the given answers; ``None``: sends no more answers."""

    def __init__(self, *answers):
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.connections = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            for answer in self._answers:
                try:
                    asked = connection.recv(1 << 16)
                    if answer is None or not asked:
                        break
                    answer = answer(asked) if callable(answer) else answer
                    for part in [answer] if isinstance(answer, bytes) else answer:
                        connection.sendall(part)
                except OSError:
                    break
            else:
                connection.close()

    def close(self):
        """End the thread: one that stays in a call keeps the hook of later tests."""
        for one in (self._listener, *self.connections):
            with suppress(OSError):  # it or the other side is closed
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


def pong(asked):
    return asked[-4:]


@pytest.fixture
def fake(monkeypatch, used):
    made = []

    def make(*answers):
        monkeypatch.setattr(tcpstore, "TIMEOUT_S", 0.2)
        made.append(Fake(*answers))
        return made[-1].address

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "answer",
    [b"nope", lambda asked: asked, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\0\2\2F",
     lambda asked: pong(asked) + b"x"],
    ids=["other", "echo", "http", "tls", "more"],
)  # fmt: skip
def test_another_protocol_is_no_store(fake, answer):
    with pytest.raises(NotAStoreError):
        StoreChannel(fake(answer, None), "0123")


@pytest.mark.parametrize("answers", [(), (None,), (b"a", None)], ids=["closes", "silent", "short"])
def test_who_does_not_answer_is_an_error_in_time(fake, answers):
    with pytest.raises(OSError):
        StoreChannel(fake(*answers), "0123")


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((None,), TimeoutError),
        ((b"\x07",), NotAStoreError),
        ((b"\x00\x00",), NotAStoreError),
        ((b"\x00", None), TimeoutError),
        ((b"\x00", struct.pack("=Q", 4) + b"abc", None), TimeoutError),
        ((b"\x00", struct.pack("=Q", 1 << 63) + b"abc", None), TimeoutError),
        ((b"\x00", struct.pack("=Q", 1) + b"abc"), NotAStoreError),
        ((b"\x00",), ConnectionError),
    ],
)
def test_hostile_answers_are_errors_in_time(fake, channel_of, answers, error):
    channel = channel_of(address=fake(pong, *answers))
    with pytest.raises(error):
        channel.get(["window-0"])
    assert channel._client is None


def test_p9_a_connection_that_the_program_has_closed_is_not_used(fake, channel_of):
    """Its number may be that of a connection of the program, which stays as it is."""
    channel = channel_of(address=fake(pong, b"\x01", None))
    assert channel.get(["window-0"]) == {}
    mine, other = socket.socketpair()
    number = channel._client._socket.fileno()
    os.dup2(mine.fileno(), number)
    with pytest.raises(ConnectionError, match="the program has closed the connection"):
        channel.put("window-0", b"value")
    channel.close(last=True)
    with socket.socket(fileno=number) as mine_again, mine, closing(other):
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        mine_again.sendall(b"data")
        assert other.recv(9) == b"data"


def test_an_endless_value_is_not_kept(fake, channel_of):
    def endless():
        yield struct.pack("=Q", 1 << 40)
        while True:
            yield bytes(1 << 16)

    channel = channel_of(address=fake(pong, b"\x00", endless()))
    tracemalloc.start()
    with pytest.raises(OSError):
        channel.get(["window-0"])
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest < 2 << 20


def test_a_socket_that_is_connected_to_itself_is_no_store(monkeypatch, used):
    def connect(address, timeout):
        one = socket.socket()
        one.bind(("127.0.0.1", 0))
        one.connect(one.getsockname())
        return one

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ConnectionRefusedError):
        StoreClient(("127.0.0.1", 1))


def test_nothing_is_connected_before_torch_distributed_is_initialised(monkeypatch, used, fake):
    host, port = fake(pong)
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", str(port))
    used.is_used = False
    assert find_channel("0123", 2) is None
    used.is_used = True
    channel = find_channel("0123", 2)
    assert channel is not None
    channel.close(last=False)
    used.is_used = False
    with pytest.raises(Ended):
        channel.put("window-0", b"")


@pytest.mark.parametrize("version", ["1.13.1", "2.4.1+cu124", "", "two"])
def test_the_store_of_an_older_torch_is_left_alone(monkeypatch, used, version):
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    sys.modules["torch"].__version__ = version
    with pytest.raises(NotAStoreError, match="has another protocol"):
        find_channel("0123", 2)


def test_the_store_is_left_alone_where_its_process_may_open_too_few_files(monkeypatch, used):
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    with pytest.raises(NotAStoreError, match=r"open files is 1024 \(ulimit -n\), .* need 1056"):
        find_channel("0123", 400)
    with pytest.raises(ConnectionRefusedError):
        find_channel("0123", 300)


def test_versions_are_read_as_torch_writes_them():
    assert stores._is_known("2.5.0")
    assert stores._is_known("2.13.0a0+git12ab")
    assert stores._is_known("3.0")
    assert not stores._is_known("2.4.9")


# ---- watching


@pytest.fixture
def watched(server, channel_of, monkeypatch):
    """Return the store of a job of two ranks, in which rank 0 has published a window."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    mark = job_mark(2)
    channel = channel_of(mark)
    blocks = {16 * i: (30_000, 20_000, 10_000) for i in range(30)}
    window = RankWindow(
        mark, 0, 2, "n0", 1, 480, size=16,
        columns=("wall", "communication"), sections=("data",), blocks=blocks,
    )  # fmt: skip
    channel.put("window-0", encode(window))
    return server


def test_who_watches_reads_the_store_of_the_job_and_writes_nothing(watched, monkeypatch):
    env = dict(os.environ)
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"):
        monkeypatch.delenv(name)
    before = watched.num_keys()
    with closing(Watch(Store(env))) as watch:
        (row,) = watch.look().rows
        assert (row.rank, row.host, row.steps) == (0, "n0", 480)
        assert watch.said() == []
    assert watched.num_keys() == before


def test_a_store_is_watched_by_its_address_if_the_program_has_set_it(watched, monkeypatch):
    port = os.environ["MASTER_PORT"]
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"):
        monkeypatch.delenv(name)
    before = watched.num_keys()
    with closing(Watch(store_at(f"127.0.0.1:{port}"))) as watch:
        (row,) = watch.look().rows
        assert (row.rank, row.host, row.steps) == (0, "n0", 480)
        assert watch.look().world_size == 2
    assert watched.num_keys() == before


def test_a_store_that_has_nothing_or_nonsense_is_not_watched_by_its_address(server, channel_of):
    port = os.environ["MASTER_PORT"]
    for value in (None, b"", b"fastprof:", b"fastprof:" + b"x" * 5000, b"fastprof:m:odd", b"\xff"):
        if value is not None:
            key = f"fastprof/{short_hash(find_live_job(dict(os.environ)) or '')}/window-0"
            server.set(key, value)
        with pytest.raises(ValueError, match="no rank has published anything in the store at 127"):
            store_at(f"127.0.0.1:{port}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"no store answers at {place}: .*refused"):
            store_at(place)
    for place in ("127.0.0.1:", "127.0.0.1:999999", ":29500"):
        with pytest.raises(ValueError, match="is not an address and a port"):
            store_at(place)


@pytest.mark.parametrize(
    ("error", "rows"), [(TimeoutError("the store has not answered"), 1), (ConnectionResetError, 0)]
)
def test_who_watches_waits_for_a_slow_store_and_ends_with_one_that_is_gone(
    watched, monkeypatch, error, rows
):
    def multi_get(self, keys):
        raise error

    monkeypatch.setattr("fastprof.ranks.exchange.watch_sources.running_jobs", list)
    with closing(Watch(Store(dict(os.environ)))) as watch:
        monkeypatch.setattr(StoreClient, "multi_get", multi_get)
        job = watch.look()
    assert (0 if job is None else len(job.rows)) == rows


def test_a_store_without_windows_or_of_too_many_ranks_is_not_watched(server, monkeypatch):
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}
    with pytest.raises(ValueError, match="no rank has published anything in the store at 127"):
        Watch(Store(env))
    with pytest.raises(ValueError, match="the job has 129 ranks, but fastprof reads a store for"):
        Store({**env, "WORLD_SIZE": "129"})
