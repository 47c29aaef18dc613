"""The fake driver and the module ``fakegpu``, as tests of whole programs use them."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

from fake_handles import FakeGpu


def run(fake_gpu: FakeGpu, code: str, **env: str) -> object:
    """Return the child's last output as JSON."""
    done = fake_gpu.run(f"import fakegpu, json\n{code}", **env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_launches_of_the_module_take_the_devices_time(fake_gpu: FakeGpu) -> None:
    code = """
fakegpu.set_time(1000)
fakegpu.launch("k", 500, count=2)
fakegpu.run_backward(["a", "b", "c"], threads=2, duration_ns=10)
fakegpu.Engine().run_backward(["d"], duration_ns=10)
fakegpu.memcpy("HtoD", 64, duration_ns=5)
fakegpu.item(duration_ns=5)
print(json.dumps([fakegpu.now(), fakegpu.counters()["launches"], fakegpu.get("waits")]))
"""
    assert run(fake_gpu, code) == [1000 + 2 * 500 + 4 * 10 + 2 * 5, 8, 1]


def test_a_graph_is_captured_and_replayed(fake_gpu: FakeGpu) -> None:
    code = """
fakegpu.set_time(0)
fakegpu.capture_begin()
fakegpu.launch("k", 7, count=3)
graph = fakegpu.instantiate(fakegpu.capture_end())
fakegpu.synchronize()
before = fakegpu.now()
fakegpu.replay(graph)
fakegpu.synchronize()
print(json.dumps([before, fakegpu.now(), fakegpu.get("graph_launches")]))
"""
    assert run(fake_gpu, code) == [0, 21, 1]


def test_cupti_before_the_driver_is_refused_and_seen(fake_gpu: FakeGpu) -> None:
    code = """
import ctypes, os
cupti = ctypes.CDLL(os.environ["FASTPROF_CUPTI"])
first = cupti.cuptiActivityEnable(10)
fakegpu.init()
print(json.dumps([first, cupti.cuptiActivityEnable(10), fakegpu.get("before_init")]))
"""
    assert run(fake_gpu, code, ready=False) == [15, 0, 1]


def test_the_environment_plans_faults(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    code = """
import ctypes, os
cupti = ctypes.CDLL(os.environ["FASTPROF_CUPTI"])
version = ctypes.c_uint32()
cupti.cuptiGetVersion(ctypes.byref(version))
results = [cupti.cuptiActivityEnable(10), cupti.cuptiActivityEnable(10), version.value]
print(json.dumps([*results, cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None)]))
"""
    report = tmp_path / "report.json"
    env = {
        "FAKE_CUPTI_VERSION": "26",
        "FAKE_CUPTI_FAIL": "cuptiActivityEnable:999:1",
        "FAKE_CUPTI_HOLDER": "nsys",
        "FAKE_CUPTI_REPORT": str(report),
    }
    assert run(fake_gpu, code, **env) == [0, 999, 26, 39]
    counted = json.loads(report.read_text(encoding="utf-8"))
    assert counted["calls"]["cuptiActivityEnable"] == 2
    assert counted["total_calls"] == 4


def test_a_wrong_environment_is_not_ignored(fake_gpu: FakeGpu) -> None:
    done = fake_gpu.run("import fakegpu", FAKE_CUPTI_SET="no_such_option=1")
    assert done.returncode != 0
    assert "cannot understand" in done.stderr


def test_the_driver_is_not_there_before_cuinit(fake_gpu: FakeGpu) -> None:
    cuda = ctypes.CDLL(str(fake_gpu.driver))
    cuda.fake_cuda_reset()
    number = ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(number)) == 3
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGetCount(ctypes.byref(number)) == 0
    assert number.value == 1
    assert cuda.cuDeviceGetAttribute(ctypes.byref(number), 16, 0) == 0
    assert number.value == 132
    assert cuda.cuDeviceGetAttribute(ctypes.byref(number), 16, 1) == 101
    cuda.fake_cuda_reset()


def test_the_driver_fails_as_told_and_in_a_forked_child(fake_gpu: FakeGpu) -> None:
    code = """
import ctypes, os
cuda = ctypes.CDLL(os.environ["FASTPROF_CUDA_DRIVER"])
before = cuda.cuInit(0)
fakegpu.init()
child = os.fork()
if child == 0:
    os._exit(cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
print(json.dumps([before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
"""
    assert run(fake_gpu, code, ready=False, FAKE_CUDA_INIT="100") == [100, 3]
