"""A fault of CUPTI or of the driver costs data, never the program (F19, F20, F24, F49, P8, P9)."""

from __future__ import annotations

import shutil
from pathlib import Path

import children
import pytest
from fake_handles import FakeGpu
from helpers import examples, sanitized

TIERS = ["callbacks", "external"]
each_tier = pytest.mark.parametrize("tier", TIERS)
FUNCTIONS = """
cuptiGetVersion cuptiGetResultString cuptiSubscribe cuptiUnsubscribe cuptiEnableCallback
cuptiActivityRegisterCallbacks cuptiActivityEnable cuptiActivityDisable cuptiActivityFlushAll
cuptiActivityGetNextRecord cuptiActivityGetNumDroppedRecords cuptiGetTimestamp
cuptiActivityPushExternalCorrelationId cuptiActivityPopExternalCorrelationId
cuptiActivityEnableRuntimeApi cuptiActivityEnableDriverApi cuptiGetGraphNodeId
""".split()
# Functions without which nothing can be recorded.
VITAL = {"cuptiGetVersion", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable"}

WORK = """
fakegpu.set("launch_latency_ns", 20000)
tier = sys.argv[1]
def work(n=10):
    for _ in range(n):
        with profile_section("work"):
            fakegpu.launch("k", 1000)
        fakegpu.Engine().run_backward(["b"])
    fakegpu.item(100)
def work_and_graph():
    fakegpu.capture_begin()
    fakegpu.launch("k")
    graph = fakegpu.instantiate(fakegpu.capture_end())
    work()
    fakegpu.replay(graph)
"""


def check(gpu: FakeGpu, tier: str, code: str, **options: object) -> None:
    children.ok(gpu, WORK + code, tier, **options)


# ---- functions that fail ----

#: Error code, and the number of calls before the first that fails; ".ci/run" tries the first two.
FAILURES = ((12, 0), (35, 5), (35, 0), (999, 0), (12, 1))[: examples(8)]


@each_tier
@pytest.mark.parametrize("function", FUNCTIONS)
def test_f49_p9_a_function_that_fails(fake_gpu: FakeGpu, tier: str, function: str) -> None:
    code = f"""
function, vital = {function!r}, {function in VITAL}
for code, after in {FAILURES!r}:
    fakegpu.fail(function, code, after)
    r = Recorder(skip_steps=0)
    answer = attach(r, tier, patience_s=10)
    r.start_sections()
    r.enable()
    work_and_graph()
    r.gpu_flush(10)
    r.gpu_pause("x")
    r.gpu_resume()
    work()
    t = end(r, 0.02)
    t.check()
    if answer["state"] == "off":
        assert answer["reason"], (code, after)
        assert t.gpu["status"] == "off" and t.gpu["reason"]
    elif vital and after == 0:
        raise AssertionError(("it is on", code))
    assert t.all["sections"] is not None
    fakegpu.fail(function, 0)
# Nothing of it is left: the next recording is whole.
if function == "cuptiUnsubscribe":
    sys.exit()  # the slot is lost for good
with recorded(tier, faults={{"stale", "cupti_errors"}}) as it:
    work()
assert UNKNOWN not in it.tables.hows()
"""
    check(fake_gpu, tier, code, timeout=240)


@each_tier
def test_f49_everything_fails(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
for function in {FUNCTIONS!r}:
    fakegpu.fail(function, 999)
r = Recorder(skip_steps=0)
answer = attach(r, tier)
assert answer["state"] == "off" and "999" in answer["reason"], answer
r.start_sections()
work()
end(r).check()
"""
    check(fake_gpu, tier, code)


@each_tier
def test_f49_everything_fails_while_recording(fake_gpu: FakeGpu, tier: str) -> None:
    code = f"""
r = begin(tier)
work()
r.gpu_flush(10)
for function in {FUNCTIONS!r}:
    fakegpu.fail(function, 999)
work()
time.sleep(0.1)
t = end(r, 0.05)
t.check()
assert t.counters["cupti_errors"] > 0
"""
    check(fake_gpu, tier, code)


# ---- functions that hang ----

# Walking a buffer and reading a clock never wait: the collector does both under its lock.
PURE = {"cuptiActivityGetNextRecord", "cuptiGetTimestamp"}
HANGS = [
    name
    for name in FUNCTIONS
    if name not in ("cuptiGetVersion", "cuptiGetResultString")  # on the caller's thread
    and name not in PURE
    and "ExternalCorrelation" not in name
    and "GraphNode" not in name
]


@pytest.mark.slow
@each_tier
@pytest.mark.parametrize("function", HANGS)
@pytest.mark.parametrize("when", ["start", "running"])
def test_f49_p9_a_function_that_hangs(
    fake_gpu: FakeGpu, tier: str, function: str, when: str
) -> None:
    code = f"""
function, when = {function!r}, {when!r}
if when == "start":
    fakegpu.slow(function, 3_600_000)
r = Recorder(skip_steps=0)
began = time.monotonic()
answer = attach(r, tier, patience_s=0.3)
r.start_sections()
r.enable()
fakegpu.slow(function, 3_600_000)
work()
time.sleep(0.1)
r.gpu_flush(0.2)
in_thread(work)
r.gpu_pause("x")
r.gpu_resume()
end(r, 0.1).check(final=False)
limit = 20 * float(os.environ.get("FASTPROF_TEST_TIME_SCALE", "1"))
assert time.monotonic() - began < limit
assert r.gpu_status()["state"] == "off"
again = Recorder()
if not attach(again, tier, patience_s=0.3)["state"] == "on":
    assert again.gpu_status()["reason"]
del r, again
print("the program ends")
"""
    done = children.ok(fake_gpu, WORK + code, tier, timeout=30)
    assert "the program ends" in done.stdout


@each_tier
def test_f49_a_slow_start_is_waited_for(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
fakegpu.slow("cuptiActivityEnable", 100)
with recorded(tier) as it:
    fakegpu.slow("cuptiActivityEnable", 0)
    work()
"""
    check(fake_gpu, tier, code)


# ---- driver and library ----


def test_f49_a_driver_that_does_not_work(fake_gpu: FakeGpu) -> None:
    code = """
r = Recorder()
answer = attach(r)
assert answer["state"] == "off" and "cuInit failed with 100" in answer["reason"], answer
assert fakegpu.counters()["total_calls"] == 0
assert r.export()["gpu"]["status"] == "off"
"""
    children.ok(fake_gpu, code, ready=False, FAKE_CUDA_INIT="100")


@each_tier
def test_f49_waiting_until_the_program_uses_cuda(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
r = Recorder(skip_steps=0)
r.start_sections()
for _ in range(3):
    answer = attach(r, tier, initialise=False)
    assert answer["state"] == "waiting" and answer["reason"], answer
assert fakegpu.counters()["total_calls"] == 0
fakegpu.init()
assert attach(r, tier, initialise=False)["state"] == "on"
work()
t = end(r)
t.check()
assert t.counters["launches"] == 21
"""
    check(fake_gpu, tier, code, ready=False)


def test_f49_a_driver_older_than_cupti(fake_gpu: FakeGpu) -> None:
    code = """
r = Recorder()
answer = attach(r)
assert answer["state"] == "off" and "CUDA 13" in answer["reason"], answer
"""
    children.ok(fake_gpu, code, FAKE_CUDA_VERSION="12040")


def test_f49_no_library_that_is_one(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    (tmp_path / "libcupti.so").write_text("this is no library")
    code = f"""
r = Recorder()
for paths in ([], [{str(tmp_path / "libcupti.so")!r}], ["/nowhere/libcupti.so"], [DRIVER]):
    answer = r.gpu_start(paths, DRIVER, initialise=True)
    assert answer["state"] == "off" and answer["reason"], answer
answer = r.gpu_start(["/nowhere/libcupti.so", CUPTI], DRIVER, initialise=True)
assert answer["state"] == "on", answer
r.gpu_stop()
assert r.export()["gpu"]["cupti_path"] == CUPTI
"""
    children.ok(fake_gpu, code)


def test_p8_a_library_in_the_working_directory_is_not_loaded(
    fake_gpu: FakeGpu, tmp_path: Path
) -> None:
    shutil.copy(fake_gpu.cupti, tmp_path / "libcupti.so")
    shutil.copy(fake_gpu.cupti, tmp_path / "libcupti-here.so")
    code = f"""
os.chdir({str(tmp_path)!r})
r = Recorder()
for path in ("libcupti-here.so", "./libcupti-here.so"):
    answer = r.gpu_start([path], DRIVER, initialise=True)
    assert answer["state"] == "off" and answer["reason"], answer
assert {str(tmp_path)!r} not in open("/proc/self/maps").read()
"""
    children.ok(fake_gpu, code)


# ---- the end of the program ----

ENDS = {
    "with a stop": "end(r)",
    "without a stop": "",
    "an exception": "raise KeyError('loop')",
    "SIGINT": "signal.raise_signal(signal.SIGINT)",
    "SystemExit": "sys.exit(3)",
    "os._exit": "os._exit(0)",
    "recorder gone": "del r",
}


@each_tier
@pytest.mark.parametrize("how", ENDS)
def test_f24_the_program_ends(fake_gpu: FakeGpu, tier: str, how: str) -> None:
    code = f"""
import atexit
atexit.register(lambda: work(1))
r = begin(tier)
work()
{ENDS[how]}
"""
    status = {"an exception": 1, "SIGINT": -2, "SystemExit": 3}.get(how, 0)
    done = children.run(fake_gpu, WORK + code, tier)
    assert done.end != "hang", done.stderr
    assert done.returncode == status, done.stderr
    assert "Fatal" not in done.stderr


@each_tier
def test_f24_a_daemon_thread_launches_during_the_exit(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
def forever():
    while True:
        work(3)
r = begin(tier)
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.1)
"""
    for _ in range(3):
        check(fake_gpu, tier, code)


def test_f24_a_buffer_comes_back_at_the_exit(fake_gpu: FakeGpu) -> None:
    code = """
import ctypes
fakegpu.set("hold_buffers", 100)
r = begin("callbacks")
work()
r.gpu_flush(10)
# Run by the C library, after the interpreter.
deliver = ctypes.cast(ctypes.CDLL(CUPTI).fake_cupti_deliver_held, ctypes.c_void_p)
assert ctypes.CDLL(None).__cxa_atexit(deliver, None, None) == 0
"""
    check(fake_gpu, "callbacks", code)


# ---- forks ----

#: Unlike the C library's and TSan's, ASan's allocator is not unlocked in a forked child.  The child
#: hangs if a thread without the interpreter's lock, such as the collector's, allocates during the
#: fork.
forks_among_threads = pytest.mark.skipif(
    sanitized("asan"), reason="ASan's allocator may be locked at a fork"
)


@each_tier
@forks_among_threads
def test_f19_a_forked_child_records_itself_without_the_gpu(fake_gpu: FakeGpu, tier: str) -> None:
    code = """
stop = threading.Event()
def busy():
    while not stop.is_set():
        work(1)
        time.sleep(0.001)
r = begin(tier)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        sys.excepthook = lambda *e: (sys.__excepthook__(*e), sys.stderr.flush(), os._exit(1))
        # Any call of the fake's would wait for a lock that another thread held.
        gpu = r.export()["gpu"]
        assert gpu["status"] == "off" and gpu["reason"], gpu["reason"]
        assert r.gpu_status()["state"] == "off"
        own = Recorder(skip_steps=0)
        answer = attach(own, tier)
        assert answer["state"] == "off" and "fork" in answer["reason"], answer
        own.start_sections()
        own.enable()
        with profile_section("child"):
            pass
        own.disable()
        own.stop_sections()
        assert any(key[3] == "child" for key in own.export()["keys"])
        r.gpu_stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
t = end(r)
t.check()
seen = delivered()
assert t.gpu["sum_ns"] == seen["sum_ns"], (t.gpu["sum_ns"], seen)
assert t.counters["launches"] == seen["launches"]
"""
    check(fake_gpu, tier, code)


@each_tier
@pytest.mark.parametrize(
    "method", [pytest.param("fork", marks=forks_among_threads), "spawn", "forkserver"]
)
def test_f20_worker_processes(fake_gpu: FakeGpu, tmp_path: Path, tier: str, method: str) -> None:
    (tmp_path / "f20_worker.py").write_text("def double(x):\n    return 2 * x\n")
    code = f"""
import multiprocessing
sys.path.insert(0, {str(tmp_path)!r})
import f20_worker
if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    with recorded(tier) as it:
        work()
        with multiprocessing.Pool(2) as pool:
            assert pool.map(f20_worker.double, range(20)) == list(range(0, 40, 2))
        work()
    assert it.tables.counters["launches"] == 42
"""
    guarded = "import sys\nsys.argv = sys.argv or ['x', 'auto']\n"
    children.ok(fake_gpu, guarded + WORK + code, tier)


# ---- off ----


def test_fastprof_0_makes_no_collector(fake_gpu: FakeGpu) -> None:
    code = """
import fastprof
threads = os.listdir("/proc/self/task")
r = Recorder()
answer = attach(r)
assert answer["state"] == "off" and answer["reason"], answer
assert fakegpu.counters()["total_calls"] == 0
assert os.listdir("/proc/self/task") == threads
"""
    children.ok(fake_gpu, code, FASTPROF="0")


@pytest.mark.skipif(sanitized(), reason="a sanitizer keeps what is freed")
def test_f37_a_thousand_recordings_do_not_grow(fake_gpu: FakeGpu) -> None:
    code = """
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
def some(n):
    for i in range(n):
        r = begin(("callbacks", "external")[i % 2])
        work(1)
        in_thread(lambda: work(1))
        r.gpu_flush(10)
        end(r)
some(50)
before = rss()
some(150)
assert rss() - before < 8 << 20, rss() - before
until(lambda: len(os.listdir("/proc/self/task")) == 1)  # a joined one is there for a moment
assert len(os.listdir("/proc/self/fd")) < 20
"""
    check(fake_gpu, "auto", code, timeout=240)


# ---- descriptors ----


@each_tier
def test_p9_a_program_that_closes_all_files_keeps_its_own_as_they_are(
    fake_gpu: FakeGpu, tier: str, tmp_path: Path
) -> None:
    code = f"""
r = begin(tier)
os.closerange(3, 100)
mine = [os.open({str(tmp_path)!r} + f"/{{i}}", os.O_RDWR | os.O_CREAT) for i in range(20)]
for file in mine:
    os.write(file, b"data"), os.lseek(file, 0, os.SEEK_SET)
for _ in range(3):
    work()
    r.gpu_flush()
found = end(r)
for file in mine:
    assert os.lseek(file, 0, os.SEEK_CUR) == 0
    assert os.read(file, 99) == b"data"
assert found.counters["launches"]
"""
    check(fake_gpu, tier, code)
