"""Switching the GPU layer by several threads and recorders, and during reading."""

from __future__ import annotations

import sys

import children
import pytest
from fake_handles import FakeGpu

TIERS = ["callbacks", "external"]
each_tier = pytest.mark.parametrize("tier", TIERS)

COMMON = """
fakegpu.set("launch_latency_ns", 20000)
tier = sys.argv[1]
def at_once(*functions):
    barrier, results = threading.Barrier(len(functions)), []
    def call(function):
        barrier.wait()
        results.append(function())
    threads = [threading.Thread(target=call, args=(f,)) for f in functions]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(results) == len(functions)
    return results
"""


def check(gpu: FakeGpu, tier: str, code: str, **options: str) -> None:
    children.ok(gpu, COMMON + code, tier, **options)


@each_tier
def test_f17_recorders_that_start_at_once_do_not_share_the_collector(
    fake_gpu: FakeGpu, tier: str
) -> None:
    code = """
sys.setswitchinterval(1e-5)
for _ in range(60):
    rs = [Recorder() for _ in range(4)]
    answers = at_once(*[lambda r=r: attach(r, tier)["state"] for r in rs])
    assert answers.count("on") == 1 and set(answers) <= {"on", "off", "waiting"}, answers
    for r in rs:
        r.gpu_stop()
with recorded(tier):
    with profile_section("after"):
        fakegpu.launch("k", 1000)
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_start_that_fails_leaves_the_recording_before_as_it_was(
    fake_gpu: FakeGpu, tier: str
) -> None:
    code = """
r = begin(tier)
with profile_section("work"):
    fakegpu.launch("k", 1000)
before = end(r).gpu
other = Recorder()
assert other.gpu_start([CUPTI], "/nowhere/libcuda.so.1")["state"] == "off"
assert other.gpu_start(["/nowhere/libcupti.so"], DRIVER)["state"] == "off"
assert before["devices"][0]["name"] and before["cupti_version"]
assert Tables(r).gpu == before
with recorded(tier):
    pass
gpu = Tables(r).gpu
assert gpu["status"] == "off" and "another fastprof recording" in gpu["reason"], gpu["reason"]
"""
    check(fake_gpu, tier, code)


def test_f50_paths_that_change_while_they_are_read(fake_gpu: FakeGpu) -> None:
    code = """
class Path:
    def __fspath__(self):
        paths.clear()
        assert attach(r)["state"] == "waiting"
        return CUPTI
r = Recorder()
paths = [Path(), "".join(["/nowhere", "/libcupti.so"])]
assert r.gpu_start(paths, DRIVER, initialise=True)["state"] == "on"
r.gpu_stop()
assert Tables(r).gpu["cupti_path"] == CUPTI
for wrong in (5, None, [5], [None]):
    try:
        r.gpu_start(wrong, DRIVER)
    except TypeError:
        continue
    assert False, wrong
"""
    check(fake_gpu, "auto", code)


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="a collection never runs within the C function that reads"
)
@each_tier
def test_a_recording_that_begins_while_another_is_read(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
import gc
begun, collections, after = [], 0, None
def collected(phase, info):
    # A collection runs wherever an object is made, so also within an export.
    global collections
    collections += phase == "start"
    if after is not None and collections > after and not begun:
        begun.append(Recorder())
        assert attach(begun[0], tier)["state"] == "on"
        for i in range(50):
            fakegpu.launch(f"other{i}" * 20, 1000)
        begun[0].gpu_stop()
with recorded(tier) as it:
    with profile_section("work"):
        for i in range(50):
            fakegpu.launch(f"k{i}", 1000)
names = [row[0] for row in it.tables.gpu["kernels"]]
gc.callbacks.append(collected)
gc.set_threshold(1)
Tables(it.recorder)
collections = 0
Tables(it.recorder)  # as often as the next one
after, collections = collections // 2, 0
again = Tables(it.recorder)
gc.callbacks.remove(collected)
assert [row[0] for row in again.gpu["kernels"]] == names and len(names) == 50
assert begun and len(Tables(begun[0]).gpu["kernels"]) == 50
"""
    check(fake_gpu, tier, code)


@each_tier
def test_a_stop_while_another_thread_pauses(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
fakegpu.launch("long", 400_000_000)
thread = threading.Thread(target=r.gpu_pause, args=("x",))
thread.start()
time.sleep(0.05)
r.gpu_stop()
assert r.gpu_status()["state"] == "off"
thread.join()
assert r.gpu_status()["state"] == "off" and r.gpu_status()["reason"] != "x"
with silence():
    fakegpu.launch("k", 1000)
end(r).check()
with recorded(tier):
    fakegpu.launch("k", 1000)
"""
    check(fake_gpu, tier, code)


@each_tier
def test_steps_of_a_pause_are_no_measured_steps(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = begin(tier)
def steps(n):
    for _ in range(n):
        fakegpu.launch("k", 1000)
        r.step()
steps(4)  # the first began before the recording
r.gpu_pause("x")
steps(5)
r.gpu_resume()
steps(3)  # the first began in the pause
assert end(r).gpu["devices"][0]["step_count"] == 3 + 2
"""
    check(fake_gpu, tier, code)


@each_tier
def test_steps_without_the_function_hook_are_no_measured_steps(
    fake_gpu: FakeGpu, tier: str
) -> None:
    code = """
r = begin(tier)
r.plan_unprofiled(3)
for count in range(9):
    if count == 6:
        r.end_unprofiled(True)
    fakegpu.launch("k", 1000)
    fakegpu.synchronize()
    r.step()
    if count == 2:
        assert r.begin_unprofiled()
device = end(r).gpu["devices"][0]
# The first began before the recording; three had no hook.
assert (device["step_count"], device["steps"]["kernel_ns"]) == (5, 5000), device
"""
    check(fake_gpu, tier, code)


def test_functions_of_the_interpreter_push_no_ids(fake_gpu: FakeGpu) -> None:
    """A pair of ids costs more than such a call, and those calls are the most frequent."""
    code = """
def pairs(work):
    before = fakegpu.get("calls.cuptiActivityPushExternalCorrelationId")
    for _ in range(100):
        work()
    return fakegpu.get("calls.cuptiActivityPushExternalCorrelationId") - before

r = begin("external", functions=True)
some = []
assert pairs(lambda: (len(some), some.append(1), isinstance(some, list), str(1), dict())) <= 1
if sys.version_info >= (3, 12):  # before, a call of a type has no event
    assert pairs(lambda: float(1.5)) >= 100  # of a tensor: waits for the device
assert pairs(lambda: fakegpu.launch("k", 10)) >= 100
t = end(r)
t.check()
assert {key[3] for key in t.activity} == {"k"}
"""
    children.ok(fake_gpu, code)
