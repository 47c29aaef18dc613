"""Switches of the GPU layer thrown by several threads, by several recorders, and while it is read."""

from __future__ import annotations

import children
import pytest
from fake_handles import FakeGpu

TIERS = ["callbacks", "external"]
each_tier = pytest.mark.parametrize("tier", TIERS)

COMMON = """
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
