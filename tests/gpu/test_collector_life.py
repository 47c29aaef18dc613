"""Recordings that begin, pause, are cleared and end; threads; graphs; other clients."""

from __future__ import annotations

import children
import pytest
from fake_handles import FakeGpu

TIERS = ["callbacks", "external"]
each_tier = pytest.mark.parametrize("tier", TIERS)

COMMON = """
fakegpu.set("launch_latency_ns", 20000)
tier = sys.argv[1]
def work(name="k", n=1):
    with profile_section("work"):
        for _ in range(n):
            fakegpu.launch(name, 1000)
"""


def check(gpu: FakeGpu, tier: str, code: str, **options: str) -> None:
    children.ok(gpu, COMMON + code, tier, **options)


# ---- begin and end ----


@each_tier
def test_recordings_one_after_the_other_are_apart(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
for i in range(1, 6):
    with recorded(tier) as it:
        work(f"k{i}", i)
    assert it.tables.counters["launches"] == i
    assert list(it.tables.of(f"k{i}").values()) == [i]
    assert it.tables.hows() == {OWN: i}
"""
    check(fake_gpu, tier, code)


@each_tier
def test_both_tiers_take_turns(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
for turn in (tier, "external", "callbacks", tier, "external", "external"):
    with recorded(turn) as it:
        work()
        fakegpu.launch("loose")
    assert it.tables.hows() == {OWN: 2}, turn
    assert it.tables.gpu["tier"] == turn
"""
    check(fake_gpu, tier, code)


@each_tier
def test_one_recorder_started_again_forgets_the_time_before(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work("first", 3)
r.gpu_stop()
assert Tables(r).gpu["sum_ns"] == 3000
work("between", 5)
with silence():
    work("between", 5)
assert attach(r, tier)["state"] == "on"
work("second", 2)
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 2000 and t.counters["launches"] == 2
assert t.hows() == {OWN: 2}
"""
    check(fake_gpu, tier, code)


@each_tier
def test_what_is_left_on_cuptis_stack_is_not_believed(fake_gpu: FakeGpu, tier: str) -> None:
    # The thread's last id belongs to a section that it has left, or to another recorder.
    code = """
r = begin(tier, functions=False)
with profile_section("old"):
    fakegpu.launch("k")
    r.gpu_stop()
end(r)
r = begin(tier, functions=False)
fakegpu.launch("k")
t = end(r)
t.check()
assert list(t.activity) == [(None, None, OTHER, "k")], t.activity
"""
    check(fake_gpu, tier, code)


@each_tier
def test_no_cupti_call_after_the_end(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work()
end(r)
with silence():
    work(n=1000)
    in_thread(work)
    fakegpu.item()
    r.export(), r.gpu_status(), r.gpu_flush(0.1), r.gpu_resume(), r.gpu_stop()
    r.gpu_pause("x")
    r.clear()
report = fakegpu.counters()
assert report["calls"]["cuptiSubscribe"] == report["calls"]["cuptiUnsubscribe"]
assert report["calls"]["cuptiActivityEnable"] == report["calls"]["cuptiActivityDisable"]
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_start_while_on_changes_nothing(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work()
before = fakegpu.counters()["calls"]
assert attach(r, tier)["state"] == "on"
after = fakegpu.counters()["calls"]
for name in ("cuptiGetVersion", "cuptiSubscribe", "cuptiActivityEnable"):
    assert after[name] == before[name]
other = Recorder()
answer = attach(other, tier)
assert answer["state"] == "off" and "another fastprof recording" in answer["reason"], answer
work()
t = end(r)
assert t.gpu["sum_ns"] == 2000
assert other.export()["gpu"]["status"] == "off"
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_wait_that_is_cut_off_does_not_hide_later_ones(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
go = threading.Event()
def waits():
    fakegpu.synchronize()
    go.wait()
    fakegpu.synchronize("stream")
r = begin(tier)
fakegpu.launch("long", 200_000_000)
thread = threading.Thread(target=waits)
thread.start()
until(lambda: fakegpu.get("waits") == 1)
end(r, 0.0)
r = begin(tier)
time.sleep(0.3)
go.set()
thread.join()
t = end(r)
assert t.counters["syncs"] == 1, t.counters
"""
    check(fake_gpu, tier, code)


@each_tier
def test_nothing_is_collected_without_a_start(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = Recorder(skip_steps=0)
threads = os.listdir("/proc/self/task")
r.start_sections()
r.enable()
work(n=10)
r.disable()
r.stop_sections()
assert r.export()["gpu"] is None
assert fakegpu.counters()["total_calls"] == 0
assert os.listdir("/proc/self/task") == threads
r.gpu_stop(), r.gpu_pause("x"), r.gpu_resume()
assert r.gpu_flush(0.1) is False
assert r.gpu_status()["state"] == "off"
assert r.export()["gpu"] is None
"""
    check(fake_gpu, tier, code)


def test_arguments_that_make_no_sense(fake_gpu: FakeGpu) -> None:
    code = """
r = Recorder()
for kind, call in [
    (ValueError, lambda: attach(r, "both")),
    (ValueError, lambda: attach(r, period_s=0)),
    (ValueError, lambda: attach(r, patience_s=-1)),
    (ValueError, lambda: attach(r, period_s=float("nan"))),
    (TypeError, lambda: r.gpu_start(3, None)),
    (TypeError, lambda: r.gpu_start([3], DRIVER)),
    (TypeError, lambda: r.gpu_start([CUPTI], 3)),
    (ValueError, lambda: r.gpu_stop(-1)),
    (ValueError, lambda: r.gpu_flush(float("inf"))),
    (TypeError, lambda: r.gpu_pause(3)),
]:
    try:
        call()
    except kind:
        continue
    raise AssertionError(kind)
assert attach(r)["state"] == "on"
r.gpu_stop()
"""
    children.ok(fake_gpu, code)


# ---- pauses ----


@each_tier
def test_a_pause_makes_way_and_comes_back(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work("before", 3)
r.gpu_pause("torch.profiler records")
assert r.gpu_status()["state"] == "paused"
assert r.gpu_status()["reason"] == "torch.profiler records"
with silence():
    work("during", 5)
    in_thread(work)
time.sleep(0.05)
r.gpu_resume()
assert r.gpu_status()["state"] == "on"
work("after", 2)
t = end(r)
t.check()
t.no_faults()
assert t.gpu["sum_ns"] == 5000 and t.counters["launches"] == 5
assert not t.of("during") and t.hows() == {OWN: 5}
assert t.gpu["paused_ns"] >= 50_000_000
assert t.gpu["pauses"] == [["torch.profiler records", t.gpu["paused_ns"]]]
assert t.gpu["devices"][0]["whole"]["wall_ns"] < 10**10
"""
    check(fake_gpu, tier, code)


@each_tier
def test_many_pauses_lose_nothing_in_between(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
with profile_section("outer"):
    for i in range(10):
        fakegpu.launch("in", 1000)
        r.gpu_pause("x")
        fakegpu.launch("out", 1000)
        r.gpu_resume()
t = end(r)
t.check()
t.no_faults()
assert t.gpu["sum_ns"] == 10_000
assert list(t.activity) == [(("outer", "<built-in method fakegpu.launch>"), None, OWN, "in")]
"""
    check(fake_gpu, tier, code)


@each_tier
def test_an_end_while_paused(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work("before", 3)
r.gpu_pause("x")
work("during", 5)
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 3000
with recorded(tier) as it:
    work()
"""
    check(fake_gpu, tier, code)


def test_a_resume_that_finds_the_slot_taken_goes_on_without(fake_gpu: FakeGpu) -> None:
    code = """
r = begin("auto")
work("before", 3)
r.gpu_pause("x")
fakegpu.hold_subscriber("torch.profiler")
r.gpu_resume()
work("after", 2)
status = r.gpu_status()
t = end(r)
t.check()
assert status["state"] == "on" and "slot" in status["reason"], status
assert t.gpu["sum_ns"] == 5000
assert t.hows() == {OWN: 5}, t.activity
"""
    check(fake_gpu, "auto", code)


# ---- clear ----


@each_tier
def test_clear_while_recording(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
for i in range(20):
    work("old", 10)
    fakegpu.Engine().run_backward(["old"], threads=2)
    if i % 2:
        fakegpu.synchronize()
    r.clear()
fakegpu.synchronize()
time.sleep(0.01)
r.gpu_flush(10)
r.clear()
work("new", 7)
t = end(r)
t.check()
assert t.of("new") == {(("work", "work", "<built-in method fakegpu.launch>"), None, OWN): 7}
assert t.gpu["sum_ns"] == 7000, t.activity
"""
    check(fake_gpu, tier, code)


@each_tier
def test_what_happened_before_clear_is_not_counted(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
for step in range(50):
    work("old", 1)
    fakegpu.item()
    r.step()
r.clear()
work("new", 7)
t = end(r)
t.check()
assert t.gpu["counters"]["launches"] == 7, t.gpu["counters"]
assert t.gpu["counters"]["syncs"] == 0, t.gpu["counters"]
assert t.gpu["devices"][0]["step_count"] == 0, t.gpu["devices"][0]
"""
    check(fake_gpu, tier, code)


@each_tier
def test_clear_while_other_threads_launch(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
stop = threading.Event()
def busy():
    while not stop.is_set():
        work("busy", 5)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for _ in range(50):
        r.clear()
        assert r.gpu_flush(10)
        Tables(r).check(final=False)
finally:
    stop.set()
    for thread in threads:
        thread.join()
end(r).check()
"""
    check(fake_gpu, tier, code)


# ---- threads ----


@each_tier
def test_f15_a_thread_that_ended_keeps_its_rows(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
r.gpu_flush(10)
for _ in range(10):
    in_thread(lambda: work("k", 2))
    r.gpu_flush(10)
t = end(r)
t.check()
t.no_faults()
assert t.gpu["sum_ns"] == 20_000
assert t.hows() == {OWN: 20}
names = ("work", "work", "<built-in method fakegpu.launch>")
assert all(site[-3:] == names for site, _, _ in t.of("k"))
"""
    check(fake_gpu, tier, code)


@each_tier
@pytest.mark.parametrize("functions", ["True", "False"])
def test_f16_500_short_threads(fake_gpu: FakeGpu, tier: str, functions: str) -> None:
    code = f"""
in_thread(int)  # a sanitizer starts one of its own with the first one
threads = len(os.listdir("/proc/self/task"))
with recorded(tier, functions={functions}) as it:
    for _ in range(20):
        in_thread(lambda: work("k", 2), threads=25)
t = it.tables
assert t.gpu["sum_ns"] == 1_000_000
assert t.hows() == {{OWN: 1000}}, (t.hows(), t.counters)
# Those that ended are one tree, or their number would grow without end.
assert len(t.all["threads"]) < 200, len(t.all["threads"])
# A joined thread is listed there for another moment.
until(lambda: len(os.listdir("/proc/self/task")) <= threads)
"""
    check(fake_gpu, tier, code)


@each_tier
def test_f17_threads_launch_at_once(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
sys.setswitchinterval(1e-5)
def busy():
    for _ in range(100):
        work("k", 5)
        fakegpu.item(10)
with recorded(tier) as it:
    in_thread(busy, threads=8)
t = it.tables
assert t.gpu["sum_ns"] == 8 * 100 * (5 * 1000 + 10)
assert t.counters["syncs"] == 800, (t.hows(), t.counters)
assert t.hows() == {OWN: 8 * 600}, (t.hows(), t.counters)
"""
    check(fake_gpu, tier, code)


@each_tier
def test_launches_before_any_section(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
with recorded(tier) as it:
    fakegpu.launch("k")
    work("k")
    fakegpu.launch("k")
own = "<built-in method fakegpu.launch>"
assert it.tables.of("k") == {
    ((own,), None, OWN): 2,
    (("work", "work", own), None, OWN): 1,
}, it.tables.of("k")
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_thread_that_nothing_is_known_about(fake_gpu: FakeGpu, tier: str) -> None:
    # A C thread, and no thread in a backward call, as the recorded functions show.
    code = """
import ctypes
class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("duration_ns", ctypes.c_int64)]
    _fields_ += [("rest", ctypes.c_int32 * 20)]
launch = ctypes.CDLL(CUPTI).fake_cupti_launch
libc = ctypes.CDLL(None)
kernel = Kernel(b"alien", 500)
def alien():
    # pthread_create(&id, NULL, launch, &kernel)
    ident = ctypes.c_ulong()
    entry = ctypes.cast(launch, ctypes.c_void_p)
    assert libc.pthread_create(ctypes.byref(ident), None, entry, ctypes.byref(kernel)) == 0
    assert libc.pthread_join(ident, None) == 0
with recorded(tier) as it:
    with profile_section("forward"):
        fakegpu.launch("k")
        alien()
assert it.tables.of("alien") == {(None, None, OTHER): 1}
with recorded(tier, functions=False) as it:
    with profile_section("forward"):
        fakegpu.launch("k")
        alien()
assert it.tables.of("alien") == {(None, ("forward",), INHERITED): 1}
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_callback_is_served_while_another_thread_holds_the_gil(
    fake_gpu: FakeGpu, tier: str
) -> None:
    # The main thread joins a launching thread in C and holds the GIL; meanwhile buffers come back
    # on CUPTI's thread.
    code = """
import ctypes
class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("duration_ns", ctypes.c_int64)]
    _fields_ += [("rest", ctypes.c_int32 * 20)]
holding = ctypes.PyDLL(None)
launch = ctypes.PyDLL(CUPTI).fake_cupti_launch
kernel = Kernel(b"alien", 500)
fakegpu.set("deliver_thread", 1)
with recorded(tier) as it:
    for _ in range(20):
        idents = [ctypes.c_ulong() for _ in range(3)]
        for ident in idents:
            entry = ctypes.cast(launch, ctypes.c_void_p)
            made = holding.pthread_create(ctypes.byref(ident), None, entry, ctypes.byref(kernel))
            assert made == 0
        for ident in idents:
            assert holding.pthread_join(ident, None) == 0
        holding.usleep(5000)
        fakegpu.flush(1, release_gil=False)
        fakegpu.launch("held", 100, release_gil=False)
assert it.tables.gpu["sum_ns"] == 20 * (3 * 500 + 100)
assert it.tables.counters["incomplete"] == 0
"""
    check(fake_gpu, tier, code)


# ---- backward ----


@each_tier
def test_backward_on_engine_threads_belongs_to_who_waits(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
engine = fakegpu.Engine()
def trainer(name):
    with profile_section(name):
        fakegpu.launch("forward")
        barrier.wait()
        for _ in range(20):
            engine.run_backward([f"bwd {name}"] * 4, threads=4)
            turn.wait()
with recorded(tier) as it:
    barrier, turn = threading.Barrier(1), threading.Barrier(1)
    trainer("one")
    trainer("two")
for name in ("one", "two"):
    path = ("trainer", name, "<method 'run_backward' of 'fakegpu.Engine' objects>")
    assert it.tables.of(f"bwd {name}") == {(None, path, INHERITED): 80}
"""
    check(fake_gpu, tier, code)


@each_tier
def test_backward_without_functions_belongs_to_the_section(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
engine = fakegpu.Engine()
with recorded(tier, functions=False) as it:
    with profile_section("train"), profile_section("backward"):
        engine.run_backward(["bwd"] * 6, threads=3)
assert it.tables.of("bwd") == {(None, ("train", "backward"), INHERITED): 6}
"""
    check(fake_gpu, tier, code)


# ---- graphs ----

GRAPH = """
def capture():
    fakegpu.capture_begin()
    with profile_section("conv"):
        fakegpu.launch("a", 1000)
        fakegpu.launch("b", 2000)
    with profile_section("head"):
        fakegpu.launch("c", 3000)
    return fakegpu.instantiate(fakegpu.capture_end())
"""


@each_tier
def test_graph_kernels_belong_to_the_replay_and_know_their_capture(
    fake_gpu: FakeGpu, tier: str
) -> None:
    code = """
with recorded(tier, faults={"expired_launches"}) as it:
    with profile_section("warm-up"):
        graph = capture()
    for _ in range(10):
        with profile_section("step"):
            fakegpu.replay(graph)
t = it.tables
assert t.counters["graph_launches"] == 10 and t.counters["launches"] == 13
assert t.gpu["sum_ns"] == 60_000
replay = ("step", "<built-in method fakegpu.replay>")
launch = "<built-in method fakegpu.launch>"
for what, section in (("a", "conv"), ("b", "conv"), ("c", "head")):
    captured = ("warm-up", "capture", section, launch)
    if tier == "callbacks":
        assert t.of(what) == {(replay, captured, CAPTURED): 10}, t.of(what)
    else:
        assert t.of(what) == {(replay, None, OWN): 10}, t.of(what)
"""
    check(fake_gpu, tier, GRAPH + code)


@each_tier
def test_graphs_are_recorded_as_a_whole_when_their_nodes_have_no_times(
    fake_gpu: FakeGpu, tier: str
) -> None:
    """As CUPTI 13.0.85 does in long runs, which takes 1 GiB on the device by default."""
    code = """
import ctypes
faults = {"expired_launches", "zero_time", "whole_graphs"}
fakegpu.set("nodes_leak", 50)
replays = 0
with recorded(tier, faults=faults) as it:
    graph = capture()
    with profile_section("step"):
        while not it.recorder.export()["gpu"]["counters"]["whole_graphs"]:
            fakegpu.replay(graph)
            replays += 1
            time.sleep(0.0001)
        for _ in range(100):
            fakegpu.replay(graph)
assert 60 * 10**6 < fakegpu.counters()["device_bytes"] <= 64 << 20
t = it.tables
assert t.counters["zero_time"] > 0
assert 100 < t.counters["whole_graphs"] < replays + 100
(whole,) = [k for k in t.gpu["kernels"] if k[0] == "whole CUDA graph"]
step = ("step", "<built-in method fakegpu.replay>")
assert t.of("whole CUDA graph") == {(step, None, OWN): t.counters["whole_graphs"]}
with recorded(tier, faults=faults) as it:  # in this process the memory is gone
    fakegpu.replay(graph)
assert it.tables.counters["whole_graphs"] == 1
assert it.tables.gpu["sum_ns"] == 6000
limit, size = ctypes.c_size_t(), ctypes.c_size_t(8)
ctypes.CDLL(CUPTI).cuptiActivityGetAttribute(2, ctypes.byref(size), ctypes.byref(limit))
assert limit.value == 250
"""
    check(fake_gpu, tier, GRAPH + code)


LIMIT = """
import ctypes
def limit():
    value, size = ctypes.c_size_t(), ctypes.c_size_t(8)
    ctypes.CDLL(CUPTI).cuptiActivityGetAttribute(2, ctypes.byref(size), ctypes.byref(value))
    return value.value
"""


def test_where_whole_graphs_are_refused_nodes_get_their_memory_back(fake_gpu: FakeGpu) -> None:
    code = """
fakegpu.set("nodes_leak", 50)
with recorded(tier, faults={"expired_launches", "zero_time", "cupti_errors"}) as it:
    assert limit() == 20
    fakegpu.fail("cuptiActivityEnable", 21)
    graph = capture()
    with profile_section("step"):
        ends = time.monotonic() + 20
        while limit() == 20 and time.monotonic() < ends:
            fakegpu.replay(graph)
            time.sleep(0.0001)
    assert limit() == 250
    fakegpu.fail("cuptiActivityEnable", 0)
    it.recorder.gpu_pause("x")
    it.recorder.gpu_resume()
    assert limit() == 250
assert it.tables.counters["whole_graphs"] == 0
"""
    check(fake_gpu, "callbacks", GRAPH + LIMIT + code)


def test_after_a_clear_graphs_are_recorded_as_before(fake_gpu: FakeGpu) -> None:
    code = """
r = begin(tier)
graph = capture()
fakegpu.set("zero_start_every", 3)
fakegpu.replay(graph)  # one node without a time is no sign
r.gpu_flush(1.0)
time.sleep(0.1)
fakegpu.set("zero_start_every", 0)
r.clear()
time.sleep(0.1)
for _ in range(3):
    fakegpu.replay(graph)
counters = end(r).counters
assert counters["whole_graphs"] == 0
assert counters["kernels"] == 9
"""
    check(fake_gpu, "callbacks", GRAPH + code)


def test_two_graphs_and_their_captures(fake_gpu: FakeGpu) -> None:
    code = """
def capture_in(section):
    fakegpu.capture_begin()
    with profile_section(section):
        fakegpu.launch("same", 1000)
    graph = fakegpu.capture_end()
    return [fakegpu.instantiate(graph), fakegpu.instantiate(graph)]
with recorded(tier, faults={"expired_launches"}) as it:
    one, two = capture_in("one"), capture_in("two")
    for _ in range(3):
        fakegpu.replay(one[0])
        fakegpu.replay(one[1])
        fakegpu.replay(two[1])
found = Counter()
for (_, via, how), n in it.tables.of("same").items():
    assert how == CAPTURED
    found[via[1]] += n
assert found == {"one": 6, "two": 3}, found
"""
    check(fake_gpu, "callbacks", code)


@each_tier
def test_a_graph_captured_before_the_recording(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
graph = capture()
with recorded(tier) as it:
    with profile_section("step"):
        for _ in range(5):
            fakegpu.replay(graph)
t = it.tables
assert t.gpu["sum_ns"] == 30_000
assert t.hows() == {OWN: 15}
"""
    check(fake_gpu, tier, GRAPH + code)


@each_tier
def test_a_replay_by_a_thread_without_a_section(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
graph = capture()
with recorded(tier, functions=False) as it:
    with profile_section("step"):
        in_thread(lambda: fakegpu.replay(graph))
t = it.tables
assert t.gpu["sum_ns"] == 6000
assert {key[1:3] for key in t.activity} == {(("step",), INHERITED)}
"""
    check(fake_gpu, tier, GRAPH + code)


# ---- other clients ----


@each_tier
def test_another_client_takes_the_records(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work("ours", 5)
fakegpu.synchronize()
r.gpu_flush(10)
fakegpu.steal_buffers()
def launched():
    work("theirs", 5)
    time.sleep(0.005)
    return r.export()["gpu"]["counters"]["taken"]
if tier == "callbacks":
    until(launched)
else:
    for _ in range(20):
        launched()
t = end(r, 0.1)
t.check()
assert t.gpu["sum_ns"] <= 5000
assert not t.of("theirs")
if tier == "callbacks":
    assert t.counters["launches"] > 5
    assert t.counters["taken"] > 0
"""
    check(fake_gpu, tier, code)


def test_the_slot_is_held_so_the_other_way_is_taken(fake_gpu: FakeGpu) -> None:
    code = """
with recorded("auto") as it:
    status = it.recorder.gpu_status()
    work("k", 3)
assert status["tier"] == "external", status
assert "subscriber slot" in status["reason"] and "39" in status["reason"], status
t = it.tables
assert t.gpu["tier"] == "external" and t.gpu["status"] == "on"
assert "subscriber slot" in t.gpu["reason"]
assert t.hows() == {OWN: 3}
"""
    check(fake_gpu, "auto", code, FAKE_CUPTI_HOLDER="nsys")


def test_the_slot_is_held_and_the_callbacks_are_insisted_on(fake_gpu: FakeGpu) -> None:
    code = """
r = Recorder()
answer = attach(r, "callbacks")
assert answer["state"] == "off" and "subscriber slot" in answer["reason"], answer
gpu = r.export()["gpu"]
assert gpu["status"] == "off" and "subscriber slot" in gpu["reason"]
assert gpu["activity"] == []
"""
    check(fake_gpu, "callbacks", code, FAKE_CUPTI_HOLDER="nsys")


@each_tier
def test_another_client_disables_our_kinds(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
with recorded(tier, faults={"expired_launches", "taken"}, timeout_s=0.1) as it:
    work("k", 3)
    fakegpu.synchronize()
    it.recorder.gpu_flush(10)
    fakegpu.other_enable(10, False)
    work("k", 3)
assert it.tables.gpu["sum_ns"] == 3000
"""
    check(fake_gpu, tier, code)


@each_tier
def test_another_client_asks_for_more_kinds(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
for kind in (4, 5, 38, 39):
    fakegpu.other_enable(kind, True)
with recorded(tier, faults={"unknown_kind"}) as it:
    work("k", 30)
    fakegpu.item()
t = it.tables
assert t.gpu["sum_ns"] == 31_000
assert t.counters["launches"] == 31 and t.counters["syncs"] == 1
assert t.hows() == {OWN: 31}
"""
    check(fake_gpu, tier, code)


def test_a_stop_does_not_wait_for_what_has_come(fake_gpu: FakeGpu) -> None:
    """The place of a launch without a section is decided last, but the launch is answered."""
    code = """
r = begin("external")
fakegpu.Engine().run_backward(["b"])
in_thread(lambda: fakegpu.Engine().run_backward(["b"]))
r.gpu_flush(10)
began = time.monotonic()
end(r)
# The grace is 2 s, the silence after which nothing more is awaited 1 s.
assert time.monotonic() - began < 0.9, time.monotonic() - began
"""
    check(fake_gpu, "external", code)


@each_tier
def test_the_thread_that_reads_records_goes_first_where_it_may(
    fake_gpu: FakeGpu, tier: str
) -> None:
    """Only while it records; threads of the program and of CUPTI keep their nice value."""
    code = """
def nices():  # of all threads, by the kernel's list
    found = Counter()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/stat") as stat:
            found[int(stat.read().rpartition(")")[2].split()[16])] += 1
    return found
def allowed():
    own = threading.get_native_id()
    try:
        os.setpriority(os.PRIO_PROCESS, own, before - 1)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, own, before)
    return True
before = os.getpriority(os.PRIO_PROCESS, 0)
# -20 is the kernel's least value.
first = Counter({max(-20, before - 10): 1}) if before > -20 and allowed() else Counter()
r = begin(tier)
until(lambda: nices() - Counter({before: 99}) == first)
r.gpu_pause("x")
until(lambda: set(nices()) == {before})
r.gpu_resume()
until(lambda: nices() - Counter({before: 99}) == first)
end(r)
assert set(nices()) == {before}, nices()
"""
    check(fake_gpu, tier, code)
