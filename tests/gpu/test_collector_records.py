"""CUPTI's deliveries, whole or broken: nothing is counted twice, nothing is invented."""

from __future__ import annotations

import build_fake
import children
import pytest
from fake_handles import FakeGpu

TIERS = ["callbacks", "external"]
RELEASES = [11080, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090]
RELEASES += [13000, 13010, 13020, 13040, 13050]

# Launches, copies, memsets in two sections and a function; waits; a backward.
PROGRAM = """
fakegpu.set("launch_latency_ns", 20000)
engine = fakegpu.Engine()
def layer(n):
    for _ in range(n):
        fakegpu.launch("gemm", 3000)
def program(rounds=20):
    for i in range(rounds):
        with profile_section("forward"):
            layer(5)
            fakegpu.memcpy("HtoD", 4096, 700)
        with profile_section("backward"):
            engine.run_backward(["dgemm", "wgemm", "relu"], threads=2, duration_ns=500)
        with profile_section("optimizer"):
            fakegpu.memset(64, 300)
            fakegpu.launch("adam", 1000, driver_only=True)
        if i % 5 == 4:
            fakegpu.item(100)
EACH = 5 * 3000 + 700 + 3 * 500 + 300 + 1000
def sections(t, what):
    found = Counter()
    for (site, via, how), n in t.of(what).items():
        found[next(x for x in via or site if x in ("forward", "backward", "optimizer"))] += n
    return dict(found)
"""

EVERYTHING = """
    t = it.tables
    assert t.gpu["sum_ns"] == 20 * EACH + 4 * 100
    assert sections(t, "gemm") == {"forward": 100}
    assert sections(t, "dgemm") == sections(t, "wgemm") == sections(t, "relu") == {"backward": 20}
    assert sections(t, "adam") == sections(t, "memset") == {"optimizer": 20}
    assert sections(t, "HtoD") == {"forward": 20}
    assert t.counters["launches"] == 20 * 11 + 4
    assert t.counters["syncs"] == 4
    assert UNKNOWN not in t.hows()
"""


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "options",
    [
        "",
        "deliver_thread=1",
        "per_thread=1",
        "shuffle=7",
        "shuffle_buffers=3,per_thread=1",
        "kernel_first=1",
        "external_twice=1",
        "name_copies=9",
        "lock_callbacks=1,deliver_thread=1",
        "drift_ppb=50000",
        "offset_ns=86400000000000",
    ],
)
def test_everything_arrives_however_it_is_delivered(
    fake_gpu: FakeGpu, tier: str, options: str
) -> None:
    code = f"""
with recorded({tier!r}) as it:
    program()
if 1:{EVERYTHING}
"""
    children.ok(fake_gpu, PROGRAM + code, FAKE_CUPTI_SET=options)


@pytest.mark.parametrize("tier", TIERS)
def test_external_ids_of_others_are_not_ours(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
import ctypes
cupti = ctypes.CDLL(CUPTI)
for kind in (1, 2, 3, 4):
    assert cupti.cuptiActivityPushExternalCorrelationId(kind, ctypes.c_uint64(1 << 28 | 3)) == 0
with recorded({tier!r}) as it:
    program()
if 1:{EVERYTHING}
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("release", RELEASES)
def test_every_release(fake_gpu: FakeGpu, tier: str, release: int) -> None:
    code = f"""
with recorded({tier!r}) as it:
    program()
if 1:{EVERYTHING}
"""
    children.ok(
        fake_gpu,
        PROGRAM + code,
        cupti=fake_gpu.release(release),
        FAKE_CUPTI_RELEASE=str(release),
        FAKE_CUDA_VERSION="13050",
    )


WANTED = ["cuptiActivityPushExternalCorrelationId", "cuptiActivityPopExternalCorrelationId"]
WANTED += ["cuptiActivityEnableRuntimeApi", "cuptiActivityEnableDriverApi", "cuptiGetGraphNodeId"]


@pytest.mark.parametrize("missing", WANTED)
@pytest.mark.parametrize("tier", TIERS)
def test_a_function_may_be_missing(fake_gpu: FakeGpu, tier: str, missing: str) -> None:
    if tier == "external" and "ExternalCorrelation" in missing:
        expected = "r.gpu_status()['state'] == 'off'"
        code = f"""
r = Recorder()
answer = attach(r, "external")
assert answer["state"] == "off" and "external" in answer["reason"], answer
assert r.export()["gpu"]["status"] == "off"
assert {expected}
"""
    else:
        code = f"""
with recorded({tier!r}) as it:
    program()
if 1:{EVERYTHING}
"""
    children.ok(fake_gpu, PROGRAM + code, cupti=fake_gpu.variant(missing))


@pytest.mark.parametrize("function", ["cuptiActivityFlushAll", "cuptiSubscribe", "cuptiGetVersion"])
def test_f49_a_library_without_a_needed_function_is_no_libcupti(
    fake_gpu: FakeGpu, function: str
) -> None:
    code = f"""
r = Recorder()
answer = attach(r)
assert answer["state"] == "off" and {function!r} in answer["reason"], answer
assert r.export()["gpu"]["reason"] == answer["reason"]
"""
    children.ok(fake_gpu, code, cupti=fake_gpu.variant(function))


# (option, counter of the fault, is it among the delivered records)
FAULTS = [
    ("zero_end_every", "incomplete"),
    ("zero_start_every", "zero_time"),
    ("zero_both_every", "zero_time"),
    ("backwards_every", "invalid"),
]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("option", "counter"), FAULTS)
def test_f49_a_record_without_times_is_counted_never_time(
    fake_gpu: FakeGpu, tier: str, option: str, counter: str
) -> None:
    code = f"""
fakegpu.set({option!r}, 3)
with recorded({tier!r}, faults={{{counter!r}, "expired_launches"}}, timeout_s=0.1) as it:
    for _ in range(30):
        fakegpu.launch("k", 1000)
    fakegpu.memcpy("HtoD", 10, 1000)
    fakegpu.memset(10, 1000)
    fakegpu.memcpy("PtoP", 10, 1000)
t = it.tables
assert t.counters[{counter!r}] == 11
assert t.gpu["sum_ns"] == 22 * 1000
assert sum(row[12] for row in t.gpu["kernels"]) == 20
assert t.counters["kernels"] == 30
assert UNKNOWN not in t.hows()
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_f49_dropped_records_are_counted(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
fakegpu.set("drop_every", 4)
faults = {{"dropped", "expired_launches"}}
with recorded({tier!r}, faults=faults, timeout_s=0.1) as it:
    for _ in range(40):
        fakegpu.launch("k", 1000)
t = it.tables
assert t.counters["dropped"] == 10
assert t.gpu["sum_ns"] == 30 * 1000
assert t.counters["expired_launches"] == 10
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_f49_records_dropped_after_the_last_buffer_are_counted(
    fake_gpu: FakeGpu, tier: str
) -> None:
    """No buffer comes back with the number."""
    code = f"""
with recorded({tier!r}, faults={{"dropped", "expired_launches"}}, timeout_s=0.1) as it:
    fakegpu.launch("k", 1000)
    it.recorder.gpu_flush(1.0)
    fakegpu.set("drop_every", 1)
    for _ in range(5):
        fakegpu.launch("k", 1000)
assert it.tables.counters["dropped"] == 5
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("when", ["before", "during a pause"])
def test_records_dropped_under_another_profiler_are_not_ours(
    fake_gpu: FakeGpu, tier: str, when: str
) -> None:
    code = f"""
def other():
    fakegpu.set("drop_every", 1)
    fakegpu.other_enable(10, True)
    fakegpu.launch("k", 1000, count=7)
    fakegpu.synchronize()
    fakegpu.other_enable(10, False)
    fakegpu.set("drop_every", 0)

if {when!r} == "before":
    other()
with recorded({tier!r}) as it:
    fakegpu.launch("k", 1000)
    if {when!r} != "before":
        it.recorder.gpu_pause("another")
        other()
        it.recorder.gpu_resume()
        fakegpu.launch("k", 1000)
assert it.tables.counters["dropped"] == 0
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_f49_lost_records_leave_their_launches(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
fakegpu.set("lose_every", 4)
with recorded({tier!r}, faults={{"expired_launches"}}, timeout_s=0.1) as it:
    for _ in range(40):
        fakegpu.launch("k", 1000)
t = it.tables
assert t.gpu["sum_ns"] == 30 * 1000
assert t.counters["launches"] == 40
assert t.counters["expired_launches"] == 10
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("cut", [1, 10, 200, 10000])
def test_f49_a_truncated_buffer(fake_gpu: FakeGpu, tier: str, cut: int) -> None:
    code = f"""
faults = {{"truncated", "expired_launches"}}
with recorded({tier!r}, faults=faults, timeout_s=0.1) as it:
    for _ in range(10):
        fakegpu.launch("k", 1000)
    fakegpu.set("truncate_bytes", {cut})
t = it.tables
if {cut} < 1000:
    assert t.counters["truncated"] == 1
    assert 0 < t.gpu["sum_ns"] < 10000
else:
    assert t.gpu["sum_ns"] == 0
"""
    # No flush before the end, so that there is only one buffer.
    code = code.replace("timeout_s=0.1", "timeout_s=0.1, period_s=30")
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_f49_kinds_that_nobody_asked_for(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
fakegpu.set("foreign_every", 2)
with recorded({tier!r}, faults={{"unknown_kind"}}) as it:
    program()
assert it.tables.counters["unknown_kind"] == (20 * 11 + 4) // 2
if 1:{EVERYTHING}
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("release", [12020, 13000])
@pytest.mark.parametrize("tier", TIERS)
def test_f49_a_kind_that_the_iterator_refuses(fake_gpu: FakeGpu, tier: str, release: int) -> None:
    code = f"""
fakegpu.set("unknown_every", 7)
faults = {{"truncated", "expired_launches"}}
with recorded({tier!r}, faults=faults, timeout_s=0.1) as it:
    for _ in range(40):
        fakegpu.launch("k", 1000)
t = it.tables
assert t.counters["truncated"] >= 1
assert t.gpu["sum_ns"] <= 40000
"""
    children.ok(fake_gpu, PROGRAM + code, FAKE_CUPTI_RELEASE=str(release))


@pytest.mark.parametrize("tier", TIERS)
def test_a_running_kernel_is_incomplete_and_never_time(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
faults = {{"incomplete", "zero_time", "expired_launches"}}
with recorded({tier!r}, faults=faults, timeout_s=0.05) as it:
    fakegpu.launch("short", 1000)
    fakegpu.launch("endless", 3600 * 10**9)
    fakegpu.launch("queued", 1000)
t = it.tables
assert t.gpu["sum_ns"] == 1000
assert (t.counters["incomplete"], t.counters["zero_time"]) == (1, 1)  # not begun
assert t.counters["kernels"] == 3
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_the_end_waits_for_what_runs_without_synchronizing(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
with recorded({tier!r}) as it:
    fakegpu.launch("slow", 80_000_000)
assert it.tables.gpu["sum_ns"] == 80_000_000
assert it.delivered["waits"] == 0
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_a_kernel_without_a_name(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
with recorded({tier!r}) as it:
    fakegpu.launch(None, 1000)
    fakegpu.launch("k", 1000)
    fakegpu.launch("_Z3addPfS_", 1000)
assert it.tables.gpu["sum_ns"] == 3000
names = [row[0] for row in it.tables.gpu["kernels"]]
assert len(names) == 3 and all(isinstance(n, str) and n for n in names), names
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_one_name_at_many_addresses_is_one_row(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
with recorded({tier!r}) as it:
    fakegpu.launch("k", 1000, count=1000)
assert [(r[0], r[12]) for r in it.tables.gpu["kernels"]] == [("k", 1000)]
"""
    children.ok(fake_gpu, PROGRAM + code, FAKE_CUPTI_SET="name_copies=100")


@pytest.mark.parametrize("tier", TIERS)
def test_correlation_ids_wrap(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
fakegpu.set("correlation", 2**32 - 100)
# Ids are given from there after an unsubscribe.
end(begin("callbacks"))
with recorded({tier!r}) as it:
    program()
if 1:{EVERYTHING}
assert it.recorder.gpu_status()["state"] == "off"
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_two_devices_do_not_mix(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
with recorded({tier!r}) as it:
    for device in (0, 1, 2):
        with profile_section(f"on {{device}}"):
            fakegpu.launch("k", 1000 * (device + 1), device=device)
            fakegpu.synchronize(device=device)
t = it.tables
assert [(r[1], r[13]) for r in t.gpu["kernels"]] == [(0, 1000), (1, 2000), (2, 3000)]
assert [d["whole"]["busy_ns"] for d in t.gpu["devices"]] == [1000, 2000, 3000]
"""
    children.ok(fake_gpu, PROGRAM + code, FAKE_CUDA_DEVICES="3")


def test_f49_a_buffer_delivered_after_the_end_is_accepted_silently(fake_gpu: FakeGpu) -> None:
    code = """
for tier in ("callbacks", "external"):
    fakegpu.set("hold_buffers", 1000)
    r = begin(tier)
    fakegpu.launch("held", 1000)
    t = end(r, 0.05)
    assert t.gpu["sum_ns"] == 0
    with silence():
        fakegpu.deliver_held()
        fakegpu.complete_foreign()
    assert Tables(r).gpu["sum_ns"] == 0
    # Nor does the next recording have what the last one left behind.
    with recorded(tier, faults={"stale"}) as it:
        fakegpu.launch("own", 1000)
    assert set(it.tables.of("own").values()) == {1}
    assert "held" not in [row[0] for row in it.tables.gpu["kernels"]]
"""
    children.ok(fake_gpu, PROGRAM + code)


@pytest.mark.parametrize("tier", TIERS)
def test_a_buffer_of_the_recording_before_is_not_of_this_one(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
fakegpu.set("hold_buffers", 1)
r = begin({tier!r})
with profile_section("old"):
    fakegpu.launch("old", 1000)
end(r, 0.05)
r = begin({tier!r})
with profile_section("new"):
    fakegpu.launch("new", 1000)
    fakegpu.deliver_held()
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 1000
assert t.counters["stale"] == (1 if {tier!r} == "callbacks" else 2)  # with its calls
assert not t.of("old") and sum(t.of("new").values()) == 1
"""
    children.ok(fake_gpu, PROGRAM + code)


def test_what_the_drivers_callbacks_tell_as_well_the_runtimes_are_not_asked_for(
    fake_gpu: FakeGpu,
) -> None:
    code = """
def callbacks_per_launch():
    before = fakegpu.counters()["callbacks"]
    with profile_section("work"):
        for _ in range(100):
            fakegpu.launch("k", 10)
    return (fakegpu.counters()["callbacks"] - before) / 100
# Not of delays: on a busy machine the two clocks may be read further apart than one takes here.
with recorded("callbacks", faults={"negative_delay"}) as it:
    assert callbacks_per_launch() == 4
    until(lambda: callbacks_per_launch() == 2)
    with profile_section("copies"):
        fakegpu.memcpy("HtoD", 10, 1000, wait=True)  # a wait has both ends, as before
assert it.tables.counters["launches"] == it.tables.counters["kernels"] + 1
assert it.tables.hows() == {0: it.tables.counters["kernels"] + 1}  # all at their own places
"""
    children.ok(fake_gpu, code)


def test_a_full_set_of_buffers_discards_and_says_so(fake_gpu: FakeGpu) -> None:
    code = """
fakegpu.set("hold_buffers", 10**6)
r = begin("callbacks", period_s=10)
for _ in range(560):
    fakegpu.launch("k", 0, count=10)
    assert r.gpu_flush(10.0)
assert fakegpu.get("buffers_held") == 560
fakegpu.deliver_held()
t = end(r)
t.check()
# Some are ours, the others were lent to be thrown away.
assert 0 < t.counters["discarded"] < 560
assert t.counters["kernels"] == 5600 - 10 * t.counters["discarded"]
assert t.counters["launches"] == 5600
"""
    children.ok(fake_gpu, code)


def test_releases_are_those_that_the_fake_has() -> None:
    assert set(build_fake.SINCE.values()) <= set(RELEASES)
