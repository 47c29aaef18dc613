"""CUPTI's subscriber slot after a session of torch.profiler, which keeps it."""

from __future__ import annotations

from pathlib import Path

import build_fake
import children
import pytest
from fake_handles import FakeGpu

KINETO = Path(__file__).resolve().parent / "fake" / "fake_kineto.c"

#: Word of the handle, and what singleton() returns, by torch.
FORMS = {
    "2.4": ["-DWORD=23", "-DSHARED"],
    "2.11": ["-DWORD=27", "-DSHARED"],
    "2.14": ["-DWORD=27"],
}

COMMON = """
import ctypes
def work(name, n):
    with profile_section("work"):
        for _ in range(n):
            fakegpu.launch(name, 1000)
def session(library):
    kineto = ctypes.CDLL(library)
    kineto.fake_kineto_handle.restype = ctypes.c_uint64
    assert kineto.fake_kineto_session() == 0
    return kineto
r = begin("auto")
work("before", 3)
r.gpu_pause("torch.profiler")
"""


def build(folder: Path, options: list[str]) -> str:
    soname = "-Wl,-soname,libtorch_cpu.so"
    return str(build_fake.compile_c([KINETO], folder / "libtorch_cpu.so", [*options, soname]))


@pytest.mark.parametrize("torch", FORMS)
def test_the_slot_comes_back_after_a_session(fake_gpu: FakeGpu, tmp_path: Path, torch: str) -> None:
    code = """
kineto = session(sys.argv[1])
assert kineto.fake_kineto_handle() != 0
r.gpu_resume()
status = r.gpu_status()
assert [status[k] for k in ("state", "reason", "tier")] == ["on", "", "callbacks"], status
assert kineto.fake_kineto_handle() == 0
work("after", 2)
r.gpu_pause("torch.profiler")  # of its next sessions, Kineto subscribes in none
r.gpu_resume()
assert r.gpu_status()["tier"] == "callbacks"
work("again", 4)
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 9000
assert t.hows() == {OWN: 9}, t.activity
"""
    children.ok(fake_gpu, COMMON + code, build(tmp_path, FORMS[torch]))


def test_the_switch_leaves_the_slot_to_torch(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    code = """
end(r)
kineto = session(sys.argv[1])
handle = kineto.fake_kineto_handle()
r = begin("auto", takes_slot=False)
status = r.gpu_status()
assert status["tier"] == "external" and "slot" in status["reason"], status
assert kineto.fake_kineto_handle() == handle
work("after", 2)
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 2000
"""
    children.ok(fake_gpu, COMMON + code, build(tmp_path, FORMS["2.14"]))


@pytest.mark.parametrize("refused", [False, True])
def test_a_slot_that_is_not_kinetos_stays_where_it_is(
    fake_gpu: FakeGpu, tmp_path: Path, refused: bool
) -> None:
    """Another tool holds it, or CUPTI refuses to end the subscription."""
    code = """
kineto = ctypes.CDLL(sys.argv[1])
if sys.argv[2] == "True":
    kineto = session(sys.argv[1])
    fakegpu.fail("cuptiUnsubscribe", 999, -1)
else:
    fakegpu.hold_subscriber("another tool")
r.gpu_resume()
status = r.gpu_status()
assert status["tier"] == "external" and "slot" in status["reason"], status
work("after", 2)
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 5000
"""
    children.ok(fake_gpu, COMMON + code, build(tmp_path, FORMS["2.14"]), str(refused))


def test_a_kineto_without_the_function_is_left_alone(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    code = """
session(sys.argv[1])
r.gpu_resume()
assert r.gpu_status()["tier"] == "external"
end(r).check()
"""
    renamed = "-D_ZN9libkineto16CuptiCallbackApi9singletonEv=unknown"
    children.ok(fake_gpu, COMMON + code, build(tmp_path, [*FORMS["2.14"], renamed]))


def test_the_real_kineto_gives_the_slot_back(fake_gpu: FakeGpu) -> None:
    """In a CUDA build of torch; the simulated libcupti stands before torch's."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None:
        pytest.skip("this torch is built without CUDA, and without Kineto's CUPTI")
    code = """
import ctypes, os, torch
library = ctypes.CDLL("libtorch_cpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
result = (ctypes.c_uint64 * 4)()
singleton = library._ZN9libkineto16CuptiCallbackApi9singletonEv
singleton.restype, singleton.argtypes = ctypes.c_uint64, [ctypes.c_void_p]
found = singleton(ctypes.addressof(result))
kineto = result[0] if found == ctypes.addressof(result) else found
r = begin("auto")
r.gpu_pause("torch.profiler")
for _ in range(2):
    # What Kineto does at its first session.
    library._ZN9libkineto16CuptiCallbackApi15initCallbackApiEv(ctypes.c_void_p(kineto))
    r.gpu_resume()
    assert r.gpu_status()["tier"] == "callbacks", r.gpu_status()
    # Without the slot its own callbacks are refused, and it goes on.
    enable = library._ZN9libkineto16CuptiCallbackApi14enableCallbackE20CUpti_CallbackDomainj
    enable.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_uint32]
    enable(kineto, 3, 1)
    with profile_section("work"):
        fakegpu.launch("k", 1000)
    r.gpu_pause("torch.profiler")
t = end(r)
t.check()
assert t.gpu["sum_ns"] == 2000
"""
    done = children.ok(fake_gpu, code, LD_PRELOAD=str(fake_gpu.cupti))
    assert done.stderr == ""
