"""The fake libcupti behaves like CUPTI: callbacks, records, flushes, and planned faults."""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import dataclass, field

import pytest
from fake_handles import Control, FakeGpu, Record

RUNTIME, DRIVER, RESOURCE = 2, 1, 3
MEMCPY, MEMSET, KIND_DRIVER, KIND_RUNTIME, KERNEL, PEER, EXTERNAL = 1, 2, 4, 5, 10, 22, 39

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
# Offsets of the correlation id, the start and the end of a record.
CORRELATION = {MEMCPY: 44, MEMSET: 44, KERNEL: 92, PEER: 60, KIND_DRIVER: 32, KIND_RUNTIME: 32}
CORRELATION[EXTERNAL] = 16


@dataclass
class Client:
    """A client of CUPTI that keeps the delivered records."""

    cupti: Control
    buffer_size: int = 1 << 16
    calls: list[tuple[str, int, int, int]] = field(default_factory=list)
    buffers: list[list[bytes]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    given: dict[int, ctypes.Array[ctypes.c_char]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keep = (CALLBACK(self._call), REQUEST(self._request), COMPLETE(self._complete))

    def register(self) -> None:
        assert self.cupti.cuptiActivityRegisterCallbacks(*self._keep[1:]) == 0

    def enable(self, *kinds: int) -> None:
        self.register()
        for kind in kinds:
            assert self.cupti.cuptiActivityEnable(kind) == 0

    def subscribe(self, *domains: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert self.cupti.cuptiSubscribe(ctypes.byref(handle), self._keep[0], None) == 0
        for domain in domains:
            assert self.cupti.cuptiEnableDomain(1, handle, domain) == 0
        return handle

    def _call(self, user: int | None, domain: int, cbid: int, data: int) -> None:
        if domain == RESOURCE:
            self.calls.append(("node", domain, cbid, 0))
            return
        (site,) = struct.unpack("i", ctypes.string_at(data, 4))
        (correlation,) = struct.unpack("I", ctypes.string_at(data + 64, 4))
        self.calls.append(("exit" if site else "enter", domain, cbid, correlation))

    def _request(self, buffer, size, max_records) -> None:
        memory = ctypes.create_string_buffer(max(self.buffer_size, 1))
        self.given[ctypes.addressof(memory)] = memory
        buffer[0] = ctypes.addressof(memory) if self.buffer_size else None
        size[0] = self.buffer_size
        max_records[0] = 0

    def _complete(self, context, stream, buffer, size, valid) -> None:
        self.threads.add(threading.get_native_id())
        records = []
        record = ctypes.c_void_p()
        while True:
            result = self.cupti.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
            )
            if result != 0:
                break
            (kind,) = struct.unpack("I", ctypes.string_at(record, 4))
            # Not beyond the buffer: records of older releases are smaller.
            left = buffer + valid - record.value
            size = min(self.cupti.record_size(13000, kind), left)
            records.append(ctypes.string_at(record, size))
        self.results.append(result)
        self.buffers.append(records)

    @property
    def records(self) -> list[tuple[int, int]]:
        """Return (kind, correlation id) of each record, in order."""
        found = []
        for record in (r for b in self.buffers for r in b):
            (kind,) = struct.unpack_from("I", record)
            at = CORRELATION.get(kind)
            found.append((kind, struct.unpack_from("I", record, at)[0] if at else 0))
        return found

    def times(self, kind: int = KERNEL) -> list[tuple[int, int]]:
        raw = [r for b in self.buffers for r in b if struct.unpack_from("I", r)[0] == kind]
        return [struct.unpack_from("QQ", r, 16) for r in raw]

    def flush(self, forced: int = 0) -> None:
        assert self.cupti.cuptiActivityFlushAll(forced) == 0


@pytest.fixture
def client(fake_cupti: Control) -> Client:
    fake_cupti.set_time(1_000_000)
    return Client(fake_cupti)


def test_a_launch_calls_back_nested_with_one_correlation_id(client: Client) -> None:
    client.subscribe(RUNTIME, DRIVER)
    client.cupti.launch_kernel()
    client.cupti.launch_kernel(driver_only=1)
    assert client.calls == [
        ("enter", RUNTIME, 211, 1),
        ("enter", DRIVER, 307, 1),
        ("exit", DRIVER, 307, 1),
        ("exit", RUNTIME, 211, 1),
        ("enter", DRIVER, 307, 2),
        ("exit", DRIVER, 307, 2),
    ]


def test_external_ids_come_before_the_record_of_their_call(client: Client) -> None:
    client.enable(EXTERNAL, KIND_RUNTIME, KIND_DRIVER, KERNEL)
    for kind, number in ((5, 11), (5, 12), (4, 13)):
        client.cupti.cuptiActivityPushExternalCorrelationId(kind, ctypes.c_uint64(number))
    client.cupti.launch_kernel()
    client.cupti.advance(10_000)
    client.flush()
    kinds = [k for k, _ in client.records]
    assert kinds == [EXTERNAL, EXTERNAL, KIND_RUNTIME, KERNEL]
    ids = [struct.unpack_from("=IIQ", r)[1:] for r in client.buffers[0][:2]]
    assert ids == [(4, 13), (5, 12)]


def test_external_ids_need_a_record_of_the_call(client: Client) -> None:
    """A call that is enabled alone has none, as seen with CUPTI 13.0 on an H100."""
    client.enable(EXTERNAL, KERNEL)
    client.cupti.cuptiActivityPushExternalCorrelationId(5, ctypes.c_uint64(9))
    client.cupti.cuptiActivityEnableRuntimeApi(211, 1)
    client.cupti.launch_kernel()
    client.enable(KIND_RUNTIME)
    client.cupti.launch_kernel()
    client.flush(1)
    assert client.records == [(KERNEL, 1), (EXTERNAL, 2), (KIND_RUNTIME, 2), (KERNEL, 2)]


def test_a_call_can_be_left_out_of_its_kind_until_the_kind_is_disabled(client: Client) -> None:
    client.enable(KIND_RUNTIME)
    client.cupti.cuptiActivityEnableRuntimeApi(211, 0)
    client.cupti.launch_kernel()
    client.cupti.cuptiActivityDisable(KIND_RUNTIME)
    client.enable(KIND_RUNTIME)
    client.cupti.launch_kernel()
    client.flush(1)
    assert client.records == [(KIND_RUNTIME, 2)]


@pytest.mark.parametrize("nested", [0, 1])
def test_a_drivers_call_inside_a_runtimes_call_has_a_record_if_told(
    client: Client, nested: int
) -> None:
    client.cupti.set_options(external_twice=nested)
    client.enable(KIND_RUNTIME, KIND_DRIVER)
    client.cupti.launch_kernel()
    client.flush(1)
    assert client.records == [*[(KIND_DRIVER, 1)][:nested], (KIND_RUNTIME, 1)]


def test_a_stream_runs_one_after_the_other(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(launch_latency_ns=10)
    client.cupti.launch_kernel(duration_ns=100)
    client.cupti.launch_kernel(duration_ns=50)
    client.cupti.launch_kernel(duration_ns=5, stream=8)
    client.cupti.synchronize(4, 0, 0)
    assert client.cupti.now() == 1_000_160
    client.flush()
    assert client.times() == [
        (1_000_010, 1_000_110),
        (1_000_110, 1_000_160),
        (1_000_010, 1_000_015),
    ]


def test_a_flush_waits_for_running_kernels_unless_forced(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.launch_kernel(duration_ns=100)
    client.cupti.launch_kernel(duration_ns=100)
    client.cupti.advance(150)
    client.flush()
    assert client.buffers == []
    client.flush(1)
    assert client.times() == [(1_000_000, 1_000_100), (1_000_100, 0)]
    client.cupti.advance(1000)
    client.flush(1)
    assert len(client.times()) == 2
    assert client.cupti.count("10.incomplete") == 1
    assert client.cupti.count("10.sum_ns") == 100


def test_a_full_buffer_comes_back_when_its_kernels_are_done(client: Client) -> None:
    client.buffer_size = 3 * 216 + 8
    client.enable(KERNEL)
    for _ in range(4):
        client.cupti.launch_kernel(duration_ns=1)
    assert client.buffers == []
    client.cupti.advance(100)
    client.cupti.launch_kernel(duration_ns=1)
    assert [len(b) for b in client.buffers] == [3]
    assert client.cupti.count("buffers_outstanding") == 1


def test_disabling_a_kind_drops_what_is_pending(client: Client) -> None:
    client.enable(KERNEL, MEMSET)
    client.cupti.launch_kernel()
    client.cupti.memset(64, 10, 0, 7)
    client.cupti.cuptiActivityDisable(KERNEL)
    client.flush(1)
    assert client.records == [(MEMSET, 2)]
    assert client.cupti.count("records_disabled") == 1


def test_copies_have_direction_bytes_and_kind(client: Client) -> None:
    client.enable(MEMCPY, PEER)
    client.cupti.copy(direction=2, bytes=4096, duration_ns=7)
    client.cupti.copy(direction=10, bytes=10, to_device=3, wait=1)
    client.flush(1)
    first, second = client.buffers[0]
    assert (first[4], struct.unpack_from("Q", first, 8)) == (2, (4096,))
    assert struct.unpack_from("I", second, 52) == (3,)
    assert client.cupti.count("1.bytes") == 4096


def test_a_graph_launch_gives_many_kernels_one_id(client: Client) -> None:
    client.enable(KERNEL)
    client.subscribe(RESOURCE, RUNTIME)
    client.cupti.capture_begin()
    client.cupti.launch_kernel(b"a")
    client.cupti.launch_kernel(b"b")
    graph = client.cupti.capture_end()
    exec_ = client.cupti.instantiate(graph)
    assert [c[2] for c in client.calls if c[0] == "node"] == [13, 13, 20, 20]
    correlation = client.cupti.graph_launch(exec_, 0, 7)
    client.flush(1)
    assert client.records == [(KERNEL, correlation)] * 2
    nodes = [struct.unpack_from("Q", r, 144)[0] for r in client.buffers[0]]
    assert nodes == [2 << 32 | 1, 2 << 32 | 2]


def test_one_subscriber_and_ids_start_again_after_it(client: Client) -> None:
    client.cupti.set_options(correlation=2**32 - 1)
    first = client.subscribe(RUNTIME)
    assert client.cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None) == 39
    assert [client.cupti.launch_kernel() for _ in range(2)] == [2**32 - 1, 0]
    assert client.cupti.cuptiUnsubscribe(first) == 0
    assert client.cupti.launch_kernel() == 2**32 - 1
    client.cupti.hold_subscriber(b"nsys")
    assert client.cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None) == 39


def test_another_client_takes_the_records(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.launch_kernel()
    client.flush(1)
    client.cupti.steal_buffers()
    client.cupti.launch_kernel()
    client.flush(1)
    assert len(client.records) == 1
    client.cupti.return_buffers()
    client.register()
    client.cupti.launch_kernel()
    client.flush(1)
    assert len(client.records) == 2
    assert client.cupti.count("records_stolen") == 1


def test_no_buffer_means_dropped_records(client: Client) -> None:
    client.enable(KERNEL)
    client.buffer_size = 0
    client.cupti.launch_kernel()
    client.buffer_size = 100
    client.cupti.launch_kernel()
    client.flush(1)
    dropped = ctypes.c_size_t()
    client.cupti.cuptiActivityGetNumDroppedRecords(None, 0, ctypes.byref(dropped))
    assert (dropped.value, client.records) == (2, [])
    assert client.cupti.count("buffers_outstanding") == 0


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("lose_every", {"10.count": 4, "records_lost": 2}),
        ("drop_every", {"10.count": 4, "records_dropped": 2}),
        ("zero_end_every", {"10.count": 6, "10.incomplete": 2}),
        ("zero_start_every", {"10.count": 6, "10.zero_time": 2}),
        ("backwards_every", {"10.count": 6, "10.backwards": 2}),
        ("foreign_every", {"10.count": 6, "17.count": 1, "12.count": 1}),
        ("unknown_every", {"10.count": 3, "records_cut": 5}),
    ],
)
def test_faults_happen_as_often_as_planned(
    client: Client, fault: str, seen: dict[str, int]
) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(**{fault: 3})
    for _ in range(6):
        client.cupti.launch_kernel(duration_ns=10)
    client.cupti.advance(1000)
    client.flush()
    assert {name: client.cupti.count(name) for name in seen} == seen
    assert client.results == [21 if fault == "unknown_every" else 12]
    walked = sum(len(b) for b in client.buffers)
    assert client.cupti.count("records_delivered") == walked


def test_a_cut_buffer_ends_inside_a_record(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(truncate_bytes=10)
    for _ in range(3):
        client.cupti.launch_kernel()
    client.flush(1)
    assert (len(client.records), client.results) == (2, [12])
    assert client.cupti.count("records_cut") == 1


def test_shuffled_records_are_the_same_records(client: Client) -> None:
    client.enable(KERNEL, KIND_RUNTIME)
    client.cupti.set_options(shuffle=3)
    for _ in range(20):
        client.cupti.launch_kernel(duration_ns=1)
    client.cupti.advance(1000)
    client.flush()
    expected = [(kind, i) for i in range(1, 21) for kind in (KIND_RUNTIME, KERNEL)]
    assert client.records != expected
    assert sorted(client.records) == sorted(expected)


def test_buffers_come_from_cuptis_own_thread(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(deliver_thread=1)
    client.cupti.launch_kernel()
    client.flush(1)
    assert len(client.threads) == 1
    assert threading.get_native_id() not in client.threads


def test_a_buffer_can_come_after_the_client_has_stopped(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(hold_buffers=1)
    client.cupti.launch_kernel()
    client.flush(1)
    client.cupti.cuptiActivityDisable(KERNEL)
    assert client.buffers == []
    client.cupti.deliver_held()
    assert len(client.records) == 1


def test_threads_have_buffers_of_their_own(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(per_thread=1)
    for _ in range(3):
        thread = threading.Thread(target=client.cupti.launch_kernel)
        thread.start()
        thread.join()
    assert client.cupti.count("buffers_requested") == 3
    client.flush(1)
    assert sorted(c for _, c in client.records) == [1, 2, 3]


def test_functions_fail_when_planned(client: Client) -> None:
    client.cupti.fail(b"cuptiActivityEnable", 15, 1)
    assert [client.cupti.cuptiActivityEnable(KERNEL) for _ in range(3)] == [0, 15, 15]
    assert client.cupti.fail(b"cuptiNoSuchThing", 1, 0) == -1
    assert client.cupti.count("calls.cuptiActivityEnable") == 3


@pytest.mark.parametrize(("version", "size"), [(18, 200), (28, 208), (130202, 224), (130500, 248)])
def test_the_iterator_steps_by_the_sizes_of_its_release(
    client: Client, version: int, size: int
) -> None:
    assert client.cupti.set_version(version) == 0
    seen = ctypes.c_uint32()
    client.cupti.cuptiGetVersion(ctypes.byref(seen))
    assert seen.value == version
    client.buffer_size = 2 * size + 8
    client.enable(KERNEL)
    for _ in range(3):
        client.cupti.launch_kernel(duration_ns=0)
    client.flush()
    assert [len(b) for b in client.buffers] == [2, 1]


def test_the_same_name_at_several_addresses(client: Client) -> None:
    client.enable(KERNEL)
    client.cupti.set_options(name_copies=2)
    for name in (b"k", b"k", b"k", None):
        client.cupti.launch_kernel(name)
    client.flush(1)
    at = [struct.unpack_from("Q", r, 104)[0] for r in client.buffers[0]]
    assert at[0] != at[1]
    assert (at[0], at[3]) == (at[2], 0)
    total = ctypes.c_int64()
    assert client.cupti.kernel(b"k", ctypes.byref(total)) == 3


def test_a_record_of_any_kind_can_be_put_in(client: Client) -> None:
    client.register()
    client.cupti.inject(ctypes.byref(Record(kind=51, start=5, end=8)))
    client.flush()
    assert client.cupti.count("51.sum_ns") == 3


def test_a_release_knows_no_call_that_came_later(client: Client) -> None:
    client.cupti.set_options(release=12080)
    handle = client.subscribe(RUNTIME)
    enable = client.cupti.cuptiEnableCallback
    assert [enable(1, handle, RUNTIME, cbid) for cbid in (211, 486, 487)] == [0, 0, 1]
    assert client.cupti.cuptiActivityEnableDriverApi(782, 1) == 1


def test_a_variant_lacks_functions(fake_gpu: FakeGpu) -> None:
    old = ctypes.CDLL(str(fake_gpu.release(11080)))
    assert not hasattr(old, "cuptiActivityEnableRuntimeApi")
    assert hasattr(old, "cuptiActivityEnable")
