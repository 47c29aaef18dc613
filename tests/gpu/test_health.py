"""Health of a fake NVML's devices, and no harm to the program (S1-22, F19, F49, P9)."""

from __future__ import annotations

import children
import pytest
from fake_handles import FakeGpu
from helpers import sanitized

COMMON = """
import ctypes
NVML = os.environ["FASTPROF_NVML"]
nvml = ctypes.CDLL(NVML)
def calls(name=None):
    return nvml.fake_nvml_calls(name and name.encode())
def script(device=0, **figures):
    for name, values in figures.items():
        made = (ctypes.c_int64 * len(values))(*values)
        assert nvml.fake_nvml_script(name.encode(), device, made, len(values)) == 0
def fail(name, result):
    assert nvml.fake_nvml_fail(name.encode(), result) == 0
def hang(name):
    assert nvml.fake_nvml_hang(name and name.encode()) == 0
def begin_health(**options):
    return begin("callbacks", nvml=NVML, period_s=0.01, **options)
def work(device=0):
    fakegpu.launch("k", 1000, device=device)
def health(r, device=0):
    return r.export()["gpu"]["devices"][device]["health"]
def sampled(r, n=1, device=0):
    def enough():
        work(device)
        found = health(r, device)
        return found and found["reasons"] and found["reasons"]["samples"] >= n
    until(enough)
in_thread(int)  # a sanitizer starts a thread of its own with the first one
own_threads = len(os.listdir("/proc/self/task"))
def off_the_program():
    # Not one call on the main thread, which is the one that trains.
    assert nvml.fake_nvml_main_calls() == 0
"""


def check(gpu: FakeGpu, code: str, **options: str) -> None:
    children.ok(gpu, COMMON + code, **options)


# ---- records ----


def test_s1_22_temperature_clock_power_and_throttling_are_recorded(fake_gpu: FakeGpu) -> None:
    code = """
script(temperature=[60, 40, 90, 70], clock=[1980, 1980, 1200, 1410],
       power=[300000, 100000, 700000, 500000], reasons=[0, 4, 0x4 | 0x40, 0x88, 0x22])
r = begin_health()
sampled(r, 6)
end(r)
found = health(r)
n = found["reasons"]["samples"]
assert n >= 6
assert found["temperature_c"] == [n, 60 + 40 + 90 + 70 * (n - 3), 40, 90, 70]
assert found["sm_clock_mhz"] == [n, 1980 * 2 + 1200 + 1410 * (n - 3), 1200, 1980, 1410]
assert found["power_mw"] == [n, 1100000 + 500000 * (n - 3), 100000, 700000, 500000]
assert found["reasons"] == {
    "samples": n, "throttled": n - 1, "slowed": n - 2, "sw_power_cap": 2, "hw_slowdown": 1,
    "sw_thermal": n - 4, "hw_thermal": 1, "hw_power_brake": 1,
}
gpu = r.export()["gpu"]
assert gpu["health_reason"] == "" and gpu["health_hung"] is False
off_the_program()
"""
    check(fake_gpu, code)


def test_the_samples_so_far_are_in_the_status_and_make_a_segments_clock(
    fake_gpu: FakeGpu,
) -> None:
    code = """
from fastprof.session.history.meanwhile import Meanwhile
script(temperature=[60], clock=[1980, 1200], reasons=[0x40])
r = begin_health()
meanwhile = Meanwhile(r, lambda: (-1, None), lambda: None)
first = meanwhile.since(None)
sampled(r, 6)
found = meanwhile.since(None).gpu_clock
assert first.gpu_clock is None or found is not None
device = r.gpu_status()["health"][0]
assert device["sm_clock_mhz"][0] >= 2, device
sampled(r, device["reasons"]["samples"] + 6)
found = meanwhile.since(None).gpu_clock
assert found.clocks >= 1 and found.clock_mhz == 1200 * found.clocks, found
assert found.temperature_c == 60 * found.temperatures
assert found.slowed == found.judged >= 1
end(r)
assert "health" not in Recorder().gpu_status()
"""
    check(fake_gpu, code)


def test_s1_22_the_device_is_the_one_that_the_program_uses_whatever_its_number(
    fake_gpu: FakeGpu,
) -> None:
    # CUDA_VISIBLE_DEVICES makes the machine's third and fourth device the first and second.
    code = """
for number in range(4):
    script(number, temperature=[50 + number])
r = begin_health()
sampled(r, 2, device=1)
end(r)
assert health(r, 1)["temperature_c"][2:] == [53, 53, 53]
assert health(r, 0) is None
assert calls("nvmlDeviceGetHandleByPciBusId_v2") == 1
off_the_program()
"""
    check(fake_gpu, code, FAKE_CUDA_DEVICES="2", FAKE_CUDA_FIRST="2")


def test_s1_22_a_device_that_does_nothing_is_left_in_peace(fake_gpu: FakeGpu) -> None:
    code = """
r = begin_health()
until(lambda: calls("nvmlInit_v2"))
time.sleep(0.1)
assert calls() == 1, calls()
sampled(r)
end(r)
"""
    check(fake_gpu, code)


def test_s1_22_the_clock_of_an_idle_gpu_is_no_slow_clock(fake_gpu: FakeGpu) -> None:
    code = """
script(clock=[345, 1980], reasons=[1, 0])
r = begin_health()
sampled(r, 3)
end(r)
found = health(r)
assert found["sm_clock_mhz"][2] == 1980
assert found["sm_clock_mhz"][0] == found["temperature_c"][0] - 1
"""
    check(fake_gpu, code)


OLDER = [
    ("nvmlDeviceGetTemperature",),
    ("nvmlDeviceGetCurrentClocksEventReasons",),
    ("nvmlErrorString",),
]


@pytest.mark.parametrize("without", OLDER)
def test_s1_22_releases_with_other_names_tell_the_same(
    fake_gpu: FakeGpu, without: tuple[str, ...]
) -> None:
    code = """
script(reasons=[0x20])
r = begin_health()
sampled(r, 2)
end(r)
found = health(r)
assert found["temperature_c"][2] == 60
assert found["reasons"]["sw_thermal"] == found["reasons"]["samples"]
"""
    check(fake_gpu, code, FASTPROF_NVML=str(fake_gpu.nvml_without(*without)))


def test_s1_22_without_being_asked_nothing_is_loaded(fake_gpu: FakeGpu) -> None:
    code = """
r = begin("callbacks")
work()
time.sleep(0.05)
end(r)
assert NVML not in open("/proc/self/maps").read()
assert health(r) is None
"""
    children.ok(fake_gpu, COMMON.replace("nvml = ctypes.CDLL(NVML)\n", "") + code)


# ---- begin and end ----


def test_no_nvml_call_after_stop_and_each_recording_has_its_own(fake_gpu: FakeGpu) -> None:
    code = """
for i in range(1, 4):
    script(temperature=[60 + i])
    r = begin_health()
    sampled(r, 2)
    r.clear()
    sampled(r, 1)
    end(r)
    before = calls()
    assert health(r)["temperature_c"][2:] == [60 + i] * 3
    assert nvml.fake_nvml_is_initialised() == 0
    time.sleep(0.05)
    work()
    r.export(), r.gpu_status(), r.gpu_flush(0.1), r.gpu_stop(), r.clear()
    assert calls() == before
r = begin_health()
end(r)
assert health(r) is None  # nothing of the recording before
off_the_program()
"""
    check(fake_gpu, code)


def test_a_pause_of_cupti_is_none_of_nvml(fake_gpu: FakeGpu) -> None:
    code = """
r = begin_health()
sampled(r, 1)
r.gpu_pause("x")
before = calls()
until(lambda: calls() > before + 8)
r.gpu_resume()
end(r)
"""
    check(fake_gpu, code)


def test_a_start_by_another_recorder_takes_over(fake_gpu: FakeGpu) -> None:
    code = """
one = begin_health()
sampled(one, 1)
end(one)
two = begin_health()
sampled(two, 1)
end(two)
assert one.export()["gpu"]["devices"] == []
assert health(two) is not None
"""
    check(fake_gpu, code)


# ---- failures ----

FUNCTIONS = """
nvmlInit_v2 nvmlShutdown nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetTemperature
nvmlDeviceGetClockInfo nvmlDeviceGetPowerUsage nvmlDeviceGetCurrentClocksEventReasons
""".split()
FIGURES = {
    "nvmlDeviceGetTemperature": "temperature_c",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetPowerUsage": "power_mw",
    "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_f49_p9_an_nvml_function_that_fails_costs_its_figure_alone(
    fake_gpu: FakeGpu, function: str
) -> None:
    code = f"""
function, figures = {function!r}, {FIGURES!r}
for result in (1, 3, 15, 999):
    fail(function, result)
    before = calls(function)
    r = begin_health()
    if function != "nvmlShutdown":
        until(lambda: work() or calls(function) > before)
    for _ in range(5):
        work()
        time.sleep(0.01)
    t = end(r)
    t.check()
    t.no_faults()
    gpu, found = t.gpu, health(r)
    if function in ("nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2"):
        assert found is None
        assert gpu["health_reason"].startswith(f"{{function}} failed with {{result}} ("), gpu
    else:
        assert gpu["health_reason"] == ""
        if function in figures and found is not None:
            assert found[figures[function]] is None
            assert [name for name, value in found.items() if value is not None]
    assert gpu["health_hung"] is False
    fail(function, 0)
r = begin_health()
sampled(r, 2)
end(r)
assert all(value is not None for value in health(r).values())
off_the_program()
"""
    check(fake_gpu, code)


def test_f49_p9_what_a_device_does_not_support_is_asked_once(fake_gpu: FakeGpu) -> None:
    code = """
script(power=[-1], clock=[-1])
r = begin_health()
sampled(r, 5)
end(r)
found = health(r)
assert found["power_mw"] is None and found["sm_clock_mhz"] is None
assert found["temperature_c"][0] >= 5
assert calls("nvmlDeviceGetPowerUsage") == calls("nvmlDeviceGetClockInfo") == 1
"""
    check(fake_gpu, code)


@pytest.mark.parametrize("missing", [*FIGURES, "nvmlInit_v2"])
def test_f49_p9_a_release_that_lacks_a_function(fake_gpu: FakeGpu, missing: str) -> None:
    both = {
        "nvmlDeviceGetTemperature": ("nvmlDeviceGetTemperatureV",),
        "nvmlDeviceGetCurrentClocksEventReasons": ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    }
    path = fake_gpu.nvml_without(missing, *both.get(missing, ()))
    code = f"""
missing = {missing!r}
r = begin_health()
for _ in range(5):
    work()
    time.sleep(0.02)
if missing != "nvmlInit_v2":
    until(lambda: work() or health(r))
t = end(r)
t.check()
if missing == "nvmlInit_v2":
    assert health(r) is None
    assert t.gpu["health_reason"].endswith("has no function nvmlInit_v2: it is not NVML")
else:
    assert health(r)[{FIGURES!r}[missing]] is None
"""
    check(fake_gpu, code, FASTPROF_NVML=str(path))


def test_f49_p9_no_library_and_no_path(fake_gpu: FakeGpu) -> None:
    code = """
for path in ("/nowhere/libnvidia-ml.so.1", "./libnvidia-ml.so.1", "", DRIVER, "libnone.so.1"):
    r = begin("callbacks", nvml=path)
    work()
    t = end(r)
    t.check()
    assert t.gpu["status"] == "on" and t.gpu["health_reason"], path
    assert health(r) is None
assert calls() == 0
try:
    Recorder().gpu_start([CUPTI], DRIVER, nvml=3)
except TypeError:
    pass
else:
    raise AssertionError
"""
    check(fake_gpu, code)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_p9_an_nvml_call_that_hangs_is_left_alone_and_said_once(
    fake_gpu: FakeGpu, function: str
) -> None:
    code = f"""
function = {function!r}
hang(function)
r = begin_health()
if function != "nvmlShutdown":
    until(lambda: work() or nvml.fake_nvml_hung())
work()
began = time.monotonic()
t = end(r)
limit = 20 * float(os.environ.get("FASTPROF_TEST_TIME_SCALE", "1"))
assert time.monotonic() - began < limit
t.check()
t.no_faults()
assert t.gpu["health_hung"] is True
assert "NVML stopped answering" in t.gpu["health_reason"]
# The next recording does without it, as long as it hangs ...
r = begin_health()
work()
t = end(r)
assert t.gpu["health_hung"] is True and "an earlier recording" in t.gpu["health_reason"]
before = calls()
# ... makes no call when it comes back, and samples again after that.
hang(None)
until(lambda: not nvml.fake_nvml_hung())
until(lambda: len(os.listdir("/proc/self/task")) <= own_threads)
assert calls() == before
r = begin_health()
sampled(r, 2)
t = end(r)
assert t.gpu["health_hung"] is False and t.gpu["health_reason"] == ""
hang(function)
r = begin_health()
if function != "nvmlShutdown":
    until(lambda: work() or nvml.fake_nvml_hung())
print("the program ends")  # with it hanging, and without a stop
"""
    done = children.ok(fake_gpu, COMMON + code)
    assert "the program ends" in done.stdout


# ---- forks ----


@pytest.mark.skipif(sanitized("asan"), reason="ASan's allocator may be locked at a fork")
@pytest.mark.parametrize("hanging", [False, True])
def test_f19_a_forked_child_has_no_sampler(fake_gpu: FakeGpu, hanging: bool) -> None:
    code = f"""
r = begin_health()
sampled(r, 1)
if {hanging}:
    hang("nvmlDeviceGetPowerUsage")
    until(nvml.fake_nvml_hung)
for _ in range(20):
    child = os.fork()
    if child == 0:
        sys.excepthook = lambda *e: (sys.__excepthook__(*e), sys.stderr.flush(), os._exit(1))
        before = calls()
        assert len(os.listdir("/proc/self/task")) <= own_threads
        r.gpu_stop()
        assert r.export()["gpu"]["status"] == "off"
        own = Recorder()
        answer = attach(own, nvml=NVML)
        assert answer["state"] == "off", answer
        own.gpu_stop()
        time.sleep(0.03)
        assert calls() == before
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
if {hanging}:
    hang(None)
sampled(r, 5)
t = end(r)
assert t.gpu["health_hung"] is False
assert nvml.fake_nvml_is_initialised() == 0
off_the_program()
"""
    check(fake_gpu, code)


# ---- a whole run ----

LOOP = """
import fastprof
with fastprof.Profiler(gpu=True, skip_first=0, output=sys.argv[1]) as prof:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with profile_section("forward"):
            fakegpu.launch("k", 1_000_000)
        fakegpu.synchronize()
        prof.step()
        time.sleep(0.01)
        if calls("nvmlDeviceGetPowerUsage") >= 2:
            break
off_the_program()
print(prof.report().to_text(full=True))
"""


def test_s1_22_a_run_has_them_in_the_report_and_in_the_saved_run(
    fake_gpu: FakeGpu, tmp_path: object
) -> None:
    import fastprof

    path = f"{tmp_path}/run.fprof"
    done = children.ok(
        fake_gpu, COMMON + LOOP, path,
        FAKE_NVML_SET="temperature=83,clock=1410,power=500000,reasons=0x24",
    )  # fmt: skip
    assert "GPU temperature, clocks and power" in done.stdout
    report = fastprof.load(path)
    [device] = report.gpu.devices
    row = device.health
    assert (row.temperature_c, row.temperature_max_c) == (83, 83)
    assert (row.sm_clock_mhz, row.power_w, row.throttled, row.slowed) == (1410, 500, 1, 1)
    assert {r.reason for r in row.reasons} == {"power cap", "thermal (software)"}


def test_p9_a_run_with_a_hanging_nvml_ends_and_says_so_once(
    fake_gpu: FakeGpu, tmp_path: object
) -> None:
    code = LOOP.replace('calls("nvmlDeviceGetPowerUsage") >= 2', "nvml.fake_nvml_hung()")
    done = children.ok(
        fake_gpu, COMMON + code, f"{tmp_path}/run.fprof",
        FAKE_NVML_HANG="nvmlDeviceGetClockInfo",
    )  # fmt: skip
    assert done.stdout.count("NVML stopped answering") == 1


def test_s1_22_a_run_without_nvml_has_nothing_about_it(fake_gpu: FakeGpu, tmp_path: object) -> None:
    code = LOOP.replace('calls("nvmlDeviceGetPowerUsage") >= 2', "True")
    done = children.ok(
        fake_gpu, COMMON + code, f"{tmp_path}/run.fprof", FAKE_NVML_FAIL="nvmlInit_v2:12"
    )
    assert "NVML" not in done.stdout
    assert "temperature" not in done.stdout
