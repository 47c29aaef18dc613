"""Simulated behaviour of a real CUPTI, a busy device and other profilers."""

from __future__ import annotations

import children
import pytest
from fake_handles import FakeGpu

each_tier = pytest.mark.parametrize("tier", ["callbacks", "external"])

COMMON = """
tier = sys.argv[1]

def device(t):
    return t.gpu["devices"][0]["whole"]

def work(n=20, ns=100_000):
    with profile_section("work"):
        for _ in range(n):
            fakegpu.launch("k", ns)
        fakegpu.synchronize()

def kernels(t):
    return sum(count for count, _, _ in t.activity.values())

now = time.monotonic_ns
#: In a build several times slower, activities come after their time is folded; see FAULTS.
SLOW = float(os.environ.get("FASTPROF_TEST_TIME_SCALE", "1")) > 1

def between(least, ns, most):
    # Between two readings of the clock; 1 % for conversions.
    assert 0.99 * least - 1e6 <= ns <= 1.01 * most + 1e6, (least, ns, most)
"""


def check(gpu: FakeGpu, tier: str, code: str, **options: str) -> None:
    children.ok(gpu, COMMON + code, tier, **options)


# -- CUPTI's clock ----------------------------------------------------------------------


@each_tier
@pytest.mark.parametrize("when", ["before", "between", "twice", "unseen"])
def test_after_another_profilers_clock_times_are_right(
    fake_gpu: FakeGpu, tier: str, when: str
) -> None:
    """Kineto registers a clock of ticks in each of its sessions, and does not remove it."""
    code = """
when = sys.argv[2]
if when == "before":
    fakegpu.foreign_clock()
before = now()
r = begin(tier)
begun = now()
work()
inside = around = 0
for _ in range({"between": 1, "twice": 2, "unseen": 1, "before": 0}[when]):
    r.gpu_flush(1.0)
    if when == "unseen":  # nobody tells that it comes
        fakegpu.foreign_clock()
        time.sleep(0.1)
    else:
        since = now()
        r.gpu_pause("torch.profiler")
        paused = now()
        fakegpu.foreign_clock()
        time.sleep(0.1)
        inside += now() - paused
        r.gpu_resume()
        around += now() - since
    work()
ended = now()
t = end(r)
over = now()
t.check()
spoiled = {"before": 1, "between": 1, "twice": 1 + 3, "unseen": 1}[when]
t.no_faults(but={"misdated", "taken"})
c = t.counters
assert c["stale"] == c["expired_launches"] == c["invalid"] == 0, c
assert c["misdated"] == spoiled, c
assert c["clocks_taken_back"] == (2 if when == "twice" else 1), c
(own,) = [row for key, row in t.activity.items() if key[3] == "k"]
n = c["kernels"]
assert n == {"before": 20, "between": 40, "twice": 60, "unseen": 40}[when]
assert own[0] == n - spoiled and abs(own[1] / own[0] / 100_000 - 1) < 0.01, own
between(inside, t.gpu["paused_ns"], around)
busy = device(t)["busy_ns"]
assert abs(busy - own[1]) < 0.05 * own[1] + 1e6, (busy, own)
between(ended - begun, device(t)["wall_ns"] + t.gpu["paused_ns"], over - before)
"""
    children.ok(fake_gpu, COMMON + code, tier, when)


@each_tier
def test_a_clock_that_cannot_be_taken_back_is_a_reason(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
fakegpu.set("clock_refused", 1)
fakegpu.foreign_clock()
answer = attach(Recorder(), tier)
assert answer["state"] == "off" and "replaced CUPTI's clock" in answer["reason"], answer
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_clock_that_shows_in_records_only_is_taken_back(fake_gpu: FakeGpu, tier: str) -> None:
    """If cuptiGetTimestamp does not return the time of a registered clock."""
    code = """
fakegpu.set("clock_follows", 0)
r = begin(tier)
work()
r.gpu_pause("torch.profiler")
fakegpu.foreign_clock()
r.gpu_resume()
work(1)
until(lambda: Tables(r).counters["clocks_taken_back"])
work()
t = end(r)
t.check()
c = t.counters
assert 1 <= c["misdated"] <= 8 and c["stale"] == 0, c
count = kernels(t)
assert count >= 38 and abs(t.gpu["sum_ns"] / count / 100_000 - 1) < 0.01, (count, c)
"""
    check(fake_gpu, tier, code)


@each_tier
@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_wall_clock_that_is_stepped_changes_no_time(
    fake_gpu: FakeGpu, tier: str, step_s: int
) -> None:
    code = """
step = int(sys.argv[2]) * 10**9
before = now()
r = begin(tier)
begun = now()
work()
time.sleep(0.1)
fakegpu.set("step_ns", step)
time.sleep(0.1)
work()
since = now()
r.gpu_pause("torch.profiler")
paused = now()
fakegpu.set("step_ns", 0)
inside = now() - paused
r.gpu_resume()
around = now() - since
work()
ended = now()
t = end(r)
over = now()
t.check()
c = t.counters
assert c["clock_steps"] == 2 and c["stale"] == c["misdated"] == c["late"] == 0, c
(own,) = [row for key, row in t.activity.items() if key[3] == "k"]
assert own[0] == 60 and abs(own[1] / own[0] / 100_000 - 1) < 0.01, own
between(inside, t.gpu["paused_ns"], around)
between(ended - begun, device(t)["wall_ns"] + t.gpu["paused_ns"], over - before)
assert abs(device(t)["busy_ns"] - own[1]) < 0.05 * own[1] + 1e6
"""
    children.ok(fake_gpu, COMMON + code, tier, str(step_s))


# -- a busy device ----------------------------------------------------------------------


@each_tier
def test_a_device_that_is_always_busy_is_shown_busy(fake_gpu: FakeGpu, tier: str) -> None:
    """The host is far ahead: buffers come back when full and when their activities have ended."""
    code = """
r = begin(tier, functions=False)
with profile_section("work"):
    for _ in range(4):
        fakegpu.launch("k", 50_000, count=2000)
time.sleep(0.45)
t = end(r)
t.check()
t.no_faults()
c = t.counters
assert (c["late"] == 0 or SLOW) and c["kernels"] == 8000, c
line = device(t)
assert t.gpu["sum_ns"] == 8000 * 50_000, t.gpu
assert line["busy_ns"] == t.gpu["sum_ns"] or c["late"], line
assert t.of("k") == {(("work",), None, OWN): 8000}, t.activity
"""
    check(fake_gpu, tier, code)


@each_tier
def test_one_kernel_longer_than_any_patience(fake_gpu: FakeGpu, tier: str) -> None:
    """With launches waiting behind it: 100 flush periods deliver no record."""
    code = """
r = begin(tier, functions=False, period_s=0.01)
with profile_section("work"):
    fakegpu.launch("long", 1_000_000_000)
    fakegpu.launch("k", 50_000, count=300)
time.sleep(1.1)
t = end(r)
t.check()
t.no_faults()
assert t.counters["late"] == 0, t.counters
assert device(t)["busy_ns"] == t.gpu["sum_ns"] == 1_000_000_000 + 300 * 50_000
assert t.of("k") == {(("work",), None, OWN): 300}, t.activity
"""
    check(fake_gpu, tier, code)


@each_tier
@pytest.mark.parametrize("how", ["stop", "pause"])
def test_the_end_waits_for_a_queue_that_delivers_nothing(
    fake_gpu: FakeGpu, tier: str, how: str
) -> None:
    code = """
r = begin(tier)
with profile_section("work"):
    fakegpu.launch("k", 1_000_000, count=500)
if sys.argv[2] == "pause":
    r.gpu_pause("torch.profiler")
t = end(r)
t.check()
t.no_faults()
assert t.counters["kernels"] == 500 and t.counters["late"] == 0, t.counters
"""
    children.ok(fake_gpu, COMMON + code, tier, how)


def test_a_captured_launch_is_not_waited_for(fake_gpu: FakeGpu) -> None:
    code = """
r = begin(tier, functions=False)
with profile_section("capture"):
    fakegpu.capture_begin()
    fakegpu.launch("k", 1000, count=50)
    graph = fakegpu.instantiate(fakegpu.capture_end())
with profile_section("replay"):
    for _ in range(5):
        fakegpu.replay(graph)
        fakegpu.synchronize()
began = time.monotonic()
t = end(r)
assert time.monotonic() - began < 0.15
t.check()
t.no_faults()
assert t.of("k") == {(("replay",), ("capture",), CAPTURED): 250}, t.activity
"""
    check(fake_gpu, "callbacks", code)


# -- releases of CUPTI that have defects ------------------------------------------------


@each_tier
def test_kernels_stay_on_where_switching_them_off_can_hang(fake_gpu: FakeGpu, tier: str) -> None:
    """Before CUDA 13.0 with update 1; no recording contains work between recordings."""
    code = """
with recorded(tier) as first:
    work(5)
work(7)
with recorded(tier) as second:
    work(3)
    first.recorder  # of the process
    second.recorder.gpu_pause("torch.profiler")
    work(4)
    second.recorder.gpu_resume()
    work(6)
for recording, n in (first, 5), (second, 9):
    assert recording.tables.counters["kernels"] == n, recording.tables.counters
assert fakegpu.counters()["calls"]["cuptiActivityDisable"] > 0
"""
    code = code.replace("with recorded(tier)", "with ours(tier)")
    ours = """
class Ours(Recording):
    def check(self):  # of what the simulation delivered, some is between recordings
        self.tables.check()
        self.tables.no_faults()

@contextmanager
def ours(tier):
    recording = Ours(tier, {})
    yield recording
    recording.finish()
    recording.check()
"""
    children.ok(
        fake_gpu,
        COMMON + "from contextlib import contextmanager\n" + ours + code,
        tier,
        cupti=fake_gpu.release(12080),
        FAKE_CUPTI_RELEASE="12080",
    )


GRAPHS = """
def graph_run():
    r = begin(tier, functions=False)
    with profile_section("capture"):
        fakegpu.capture_begin()
        fakegpu.launch("g", 1000, count=3)
        graph = fakegpu.instantiate(fakegpu.capture_end())
    with profile_section("replay"):
        for _ in range(4):
            fakegpu.replay(graph)
            fakegpu.launch("k", 1000)
        fakegpu.synchronize()
    began = time.monotonic()
    t = end(r)
    t.check()
    assert t.of("k") == {(("replay",), None, OWN): 4}, t.activity
    return t
graph_run()
t = graph_run()
"""


@each_tier
@pytest.mark.parametrize("release", [13000, 13010])
def test_graphs_of_a_second_recording_have_no_wrong_place(
    fake_gpu: FakeGpu, tier: str, release: int
) -> None:
    """Their records have other calls' ids, before CUDA 13.1 with update 1."""
    code = """
wrong = int(sys.argv[2]) < 13010
t.no_faults(but={"expired_launches"} if tier == "external" else set())
assert t.counters["graph_ids"] == (12 if wrong else 0), t.counters
places = {key[0] for key in t.of("g")}
assert places == ({None} if wrong else {("replay",)}), t.activity
"""
    children.ok(
        fake_gpu, COMMON + GRAPHS + code, tier, str(release), FAKE_CUPTI_RELEASE=str(release)
    )


# -- others in the process --------------------------------------------------------------


@each_tier
def test_another_client_that_ends_cupti_is_noticed(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
work()
r.gpu_flush(1.0)
fakegpu.foreign_finalize()
name = "unheard" if tier == "external" else "silent"
for _ in range(100):
    work(1, 1000)
    time.sleep(0.01)
t = end(r, 0.3)
c = t.counters
assert c["kernels"] == 20
if tier == "external":
    assert c["unheard"] > 10, c
"""
    check(fake_gpu, tier, code)


def test_the_second_interface_is_named(fake_gpu: FakeGpu) -> None:
    code = """
fakegpu.use_v2(True)
answer = attach(Recorder(), "auto")
assert answer["state"] == "off" and "second interface" in answer["reason"], answer
fakegpu.use_v2(False)
assert attach(Recorder(), "auto")["state"] == "on"
"""
    check(fake_gpu, "auto", code)


@each_tier
def test_a_second_copy_that_the_driver_does_not_know_is_passed_over(
    fake_gpu: FakeGpu, tier: str
) -> None:
    """For example Triton's beside torch's: it returns its version, and then refuses everything."""
    code = """
r = Recorder(skip_steps=0)
answer = r.gpu_start([sys.argv[2], CUPTI], DRIVER, tier=tier, initialise=True, period_s=0.02)
assert answer["state"] == "on", answer
r.start_sections()
work(3)
t = end(r)
assert t.counters["kernels"] == 3 and t.gpu["cupti_path"] == CUPTI, t.gpu["cupti_path"]
"""
    other = fake_gpu.variant("cuptiGetLastError")
    children.ok(fake_gpu, COMMON + code, tier, str(other), FAKE_CUPTI_ONLY=str(fake_gpu.cupti))


@each_tier
def test_ids_are_taken_back_before_another_profiler_records(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
with profile_section("outer"):
    fakegpu.launch("k", 1000)
    before = fakegpu.counters()["calls"]
    r.gpu_pause("torch.profiler")
    after = fakegpu.counters()["calls"]
    popped = after["cuptiActivityPopExternalCorrelationId"] - before[
        "cuptiActivityPopExternalCorrelationId"]
    assert (popped > 0) == (tier == "external"), popped
    r.gpu_resume()
    fakegpu.launch("k", 1000)
    fakegpu.synchronize()
t = end(r)
t.check()
t.no_faults()
assert t.counters["kernels"] == 2
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_kernels_name_that_is_another_ones_later(fake_gpu: FakeGpu, tier: str) -> None:
    """A module is unloaded, and the next one has its names at the same addresses."""
    code = """
with recorded(tier) as recording:
    with profile_section("work"):
        fakegpu.launch("first_kernel", 1000, count=5)
        fakegpu.synchronize()
        recording.recorder.gpu_flush(1.0)
        fakegpu.unload("first_kernel", "other_kernel")
        fakegpu.launch("other_kernel", 1000, count=3)
        fakegpu.synchronize()
names = Counter()
for (_, _, _, what), row in recording.tables.activity.items():
    names[what] += row[0]
assert names == {"first_kernel": 5, "other_kernel": 3}, names
"""
    check(fake_gpu, tier, code)


@each_tier
def test_the_roots_gradient_is_launched_by_the_calling_thread(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
engine = fakegpu.Engine()
with recorded(tier) as recording:
    with profile_section("step"):
        engine.run_backward(["b"] * 6, 2, root="root")
        fakegpu.synchronize()
t = recording.tables
((site, via, how), n), = t.of("root").items()
assert n == 1 and how == OWN and site[0] == "step", t.activity
assert {how for _, _, how in t.of("b")} == {INHERITED}, t.activity
"""
    check(fake_gpu, tier, code)


@each_tier
def test_devices_whose_clock_is_early(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
fakegpu.set("skew_ns", 30_000)
with recorded(tier, faults={"negative_delay"}) as recording:
    work(50, 20_000)
t = recording.tables
assert t.counters["late"] == 0
(delay,) = [row[7] for row in t.gpu["host"] if row[6]]
assert delay >= 0
"""
    check(fake_gpu, tier, code)


@each_tier
def test_no_buffer_is_two_threads_at_once(fake_gpu: FakeGpu, tier: str) -> None:
    """More threads than the 512 buffers and the 64 that are lent when those are full."""
    code = """
done = threading.Barrier(541)
def launch():
    fakegpu.launch("k", 1000, count=3)
    done.wait()
fakegpu.set("launch_latency_ns", 300_000_000)
threading.stack_size(256 * 1024)
r = begin(tier, functions=False)
threads = [threading.Thread(target=launch) for _ in range(540)]
for t in threads: t.start()
done.wait()
for t in threads: t.join()
t = end(r)
t.check()
assert fakegpu.counters()["buffers_shared"] == 0
assert t.counters["kernels"] >= 600, t.counters
"""
    check(fake_gpu, tier, code)


@each_tier
def test_threads_write_into_one_buffer_at_once(fake_gpu: FakeGpu, tier: str) -> None:
    """Without a buffer per thread; only CUPTI writes into a buffer until it gives it back."""
    code = """
fakegpu.set("per_thread", 0)
def launch():
    for _ in range(100):
        fakegpu.launch("k", 1000, count=50)
# A launch has a few periods for all its records.  Threads that want one lock need more than 60 ms.
with recorded(tier, functions=False, period_s=1.0) as recording:
    with profile_section("work"):
        in_thread(launch, 4)
        fakegpu.synchronize()
assert recording.tables.counters["kernels"] == 20_000
assert fakegpu.counters()["buffers_completed"] > 8
"""
    check(fake_gpu, tier, code)


def test_the_runtimes_callbacks_come_back_where_the_driver_is_silent(fake_gpu: FakeGpu) -> None:
    """They are switched off after 1000 calls that called the driver; the next may not call it."""
    code = """
def callbacks_of_a_launch():
    before = fakegpu.counters()["callbacks"]
    fakegpu.launch("k", 1000)
    return fakegpu.counters()["callbacks"] - before
r = begin(tier, functions=False)
with profile_section("work"):
    fakegpu.launch("k", 1000, count=1000)
    until(lambda: callbacks_of_a_launch() == 2)  # of the driver alone
    fakegpu.set("driver_hidden", 1)
    fakegpu.launch("silent", 1000, count=5)
    fakegpu.synchronize()
    until(lambda: callbacks_of_a_launch() == 2)  # of the runtime
    fakegpu.launch("seen", 1000, count=5)
    fakegpu.set("driver_hidden", 0)
    time.sleep(0.1)
    assert callbacks_of_a_launch() == 4  # they stay
    fakegpu.synchronize()
t = end(r)
t.check()
assert t.of("seen") == {(("work",), None, OWN): 5}, t.of("seen")
assert t.of("silent") == {(None, None, UNKNOWN): 5}, t.of("silent")
"""
    check(fake_gpu, "callbacks", code)


@each_tier
def test_a_wrong_id_of_a_graph_is_noticed_in_any_release(fake_gpu: FakeGpu, tier: str) -> None:
    """A graph's kernel has the id of a launch that is not a graph's."""
    code = """
fakegpu.set("graph_ids_wrong", 2)  # the id of the next call
r = begin(tier, functions=False)
with profile_section("capture"):
    fakegpu.capture_begin()
    fakegpu.launch("g", 1000, count=3)
    graph = fakegpu.instantiate(fakegpu.capture_end())
for i in range(4):
    with profile_section("replay"):
        fakegpu.replay(graph)
    with profile_section("other"):
        fakegpu.memset(64, 1000)
    fakegpu.synchronize()
    r.gpu_flush(1.0)
t = end(r)
t.check()
assert t.counters["graph_ids"] >= 9, t.counters
assert sum(n for key, n in t.of("g").items() if key[0] == ("other",)) == 0, t.of("g")
"""
    check(fake_gpu, tier, code, FAKE_CUPTI_RELEASE="13010")
