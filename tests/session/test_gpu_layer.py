"""Start and end of the GPU layer, with a recorder that only lists the calls."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import fastprof
import pytest
from fake_gpu import FakeGpu, found, recorder_with
from fastprof import capture
from fastprof.cli import run_command
from fastprof.errors import BusyError
from fastprof.session.faults import Faults
from fastprof.session.gpu.cuda_init import CudaInit
from fastprof.session.gpu.layer import FLUSH_LIMIT_S, STOP_LIMIT_S, GpuLayer
from helpers import run_child


@pytest.fixture
def fake(monkeypatch) -> FakeGpu:
    """Let every Profiler of the test record with it; simulate that no tool is attached."""
    fake = FakeGpu()
    monkeypatch.setattr("fastprof.capture.options.Recorder", recorder_with(fake))
    monkeypatch.setattr(capture, "gpu_find", found(), raising=False)
    return fake


@pytest.fixture
def layer(monkeypatch):
    """Return a function that creates a layer without a run."""
    made = []

    def make(fake: FakeGpu, wanted="auto", tool=None) -> GpuLayer:
        monkeypatch.setattr(capture, "gpu_find", found(tool), raising=False)
        made.append(GpuLayer(fake, wanted, Faults()))
        return made[-1]

    yield make
    for one in made:
        one.end()


def gpu_calls(fake: FakeGpu) -> list[str]:
    return [n for n in fake.names if n in ("start", "stop", "pause", "resume", "flush")]


def run(steps: int, **options) -> fastprof.Profiler:
    with fastprof.Profiler(functions=False, **options) as prof:
        for _ in range(steps):
            prof.step()
    return prof


# -- starting and ending --------------------------------------------------------------


def test_the_gpu_starts_before_the_hooks_and_ends_after_them(fake) -> None:
    with fastprof.Profiler():
        pass
    assert fake.names == [
        "start", "start_sections", "enable", "disable", "stop_sections", "stop",
    ]  # fmt: skip
    wanted = ("start", ("libcupti.so.13",), "libcuda.so.1", False, "auto", "libnvidia-ml.so.1")
    assert fake.calls[0] == wanted
    assert fake.calls[-1] == ("stop", STOP_LIMIT_S)


def test_true_initialises_cuda_and_auto_does_not(fake) -> None:
    run(1, gpu=True)
    run(1, gpu="auto")
    assert [call[3] for call in fake.calls if call[0] == "start"] == [True, False]


def test_nothing_is_asked_with_gpu_false_or_when_switched_off(fake, monkeypatch) -> None:
    run(200, gpu=False)
    run(200, enabled=False)
    monkeypatch.setattr(fastprof.session.environment.switch, "MODE", "off")
    run(200, gpu=True)
    assert gpu_calls(fake) == []


def test_one_answer_off_ends_it(fake) -> None:
    fake.answers, fake.reason = ["off"], "no NVIDIA driver"
    before = list(sys.meta_path)
    prof = run(1000)
    assert gpu_calls(fake) == ["start"]
    assert sys.meta_path == before
    assert prof.snapshot().notes == ()


def test_a_recording_that_cannot_start_stops_the_gpu(fake, monkeypatch) -> None:
    def busy(self):
        raise RuntimeError("no memory")

    monkeypatch.setattr(fastprof.capture.options.Recorder, "start_sections", busy)
    with pytest.raises(RuntimeError, match="no memory"):
        fastprof.Profiler(functions=False).start()
    assert gpu_calls(fake) == ["start", "stop"]


# -- waiting for CUDA -----------------------------------------------------------------


def test_waiting_asks_at_steps_1_2_4_and_then_every_64(layer) -> None:
    fake = FakeGpu()
    fake.answers = ["waiting"]
    waiting = layer(fake)
    waiting.begin()
    steps, step = [], 0
    while step < 300:
        step = waiting.next_step(step)
        steps.append(step)
        waiting.at_step(step)
    assert steps == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320]
    assert fake.names == ["start"] * 12


def test_it_starts_at_the_step_at_which_cuda_is_in_use(fake, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    fake.answers = ["waiting", "waiting", "waiting", "on"]
    run(100)
    assert gpu_calls(fake) == ["start"] * 4 + ["stop"]


def test_a_run_that_never_uses_cuda_is_not_stopped_in_c(fake) -> None:
    fake.answers = ["waiting"]
    run(10)
    assert set(gpu_calls(fake)) == {"start"}


class FakeTorchCuda(types.ModuleType):
    """The part of torch.cuda that runs queued calls, with calls of others around ours."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self.checked: list[str] = []
        self._queued_calls = [self.call("capability")]
        self._initialization_lock = threading.Lock()
        self._tls = threading.local()
        self._initialized = False

    def call(self, name: str) -> tuple[Callable[[], None], list[str]]:
        return (lambda: self.checked.append(name), ["a traceback"])

    def lazy_init(self) -> None:
        """Like torch: an exception of a queued call would be an error of the program."""
        with self._initialization_lock:
            self._tls.is_initializing = True
            self._queued_calls.extend([self.call("seed"), self.call("seed all")])
            for call, _traceback in self._queued_calls:
                call()
            del self._tls.is_initializing
            self._initialized = True


def test_it_starts_the_moment_torch_initialises_cuda(fake, monkeypatch) -> None:
    cuda = FakeTorchCuda()
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    fake.answers = ["waiting", "on"]
    with fastprof.Profiler(functions=False) as prof:
        assert len(cuda._queued_calls) == 2
        cuda.lazy_init()
        assert gpu_calls(fake) == ["start", "start"]
        prof.step()
    assert cuda.checked == ["capability", "seed", "seed all"]
    assert len(cuda._queued_calls) == 3
    assert gpu_calls(fake) == ["start", "start", "stop"]


def test_torch_imported_after_the_start_is_seen(fake, monkeypatch, tmp_path) -> None:
    """For example under ``fastprof run``, without steps at which to check."""
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    (tmp_path / "imported_later.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    cuda = FakeTorchCuda()
    before = list(sys.meta_path)
    fake.answers = ["waiting", "on"]
    with fastprof.Profiler(functions=False):
        sys.modules["torch.cuda"] = cuda
        import imported_later

        assert imported_later.x == 1
        cuda.lazy_init()
        assert gpu_calls(fake) == ["start", "start"]
    del sys.modules["torch.cuda"], sys.modules["imported_later"]
    assert sys.meta_path == before
    assert cuda.checked == ["capability", "seed", "seed all"]
    assert len(cuda._queued_calls) == 3


def test_a_run_that_ends_while_torch_initialises_leaves_out_no_call(fake, monkeypatch) -> None:
    """One run ends in a call that torch runs, another one in a second thread meanwhile."""
    cuda = FakeTorchCuda()
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    first, second = CudaInit(lambda: None), CudaInit(lambda: None)

    def stop() -> None:
        first.forget()
        other = threading.Thread(target=second.forget)
        other.start()
        other.join()

    first.watch()
    cuda._queued_calls.append((stop, []))
    second.watch()
    cuda._queued_calls.append(cuda.call("last"))
    cuda.lazy_init()
    assert cuda.checked == ["capability", "last", "seed", "seed all"]
    first.forget()
    second.forget()
    assert len(cuda._queued_calls) == 5


@pytest.mark.parametrize("queue", [None, [], [("not", "callable", 3)], ["?"], ({},)])
def test_a_torch_that_keeps_its_calls_otherwise_is_left_alone(monkeypatch, queue) -> None:
    cuda = types.ModuleType("torch.cuda")
    if queue is not None:
        cuda._queued_calls = queue
    kept = None if queue is None else list(queue)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    before = list(sys.meta_path)
    init = CudaInit(lambda: pytest.fail("nothing was initialised"))
    init.watch()
    init.find_spec("anything")
    assert queue is None or list(queue) == kept
    init.forget()
    assert sys.meta_path == before


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("others", ["alone", "among others"])
@pytest.mark.parametrize("imported", ["before", "later"])
def test_random_numbers_of_a_program_that_seeds_first_are_its_own(imported, others) -> None:
    """Uses torch's own seeding and list of calls; a CPU generator replaces CUDA."""
    folder = str(Path(__file__).resolve().parent.parent)
    own, with_it = (
        run_child(SEEDED, which, imported, folder, others, timeout=180).check().stdout
        for which in ("without", "with")
    )
    assert ("['before', 'behind']" in own) == (others == "among others")
    assert with_it == own


SEEDED = """
import sys
if sys.argv[2] == "before":
    import torch
if sys.argv[1] == "with":
    sys.path.append(sys.argv[3])
    from fake_gpu import FakeGpu, found, recorder_with
    import fastprof
    from fastprof import capture
    fake = FakeGpu()
    fake.answers = ["waiting", "on"]
    capture.options.Recorder = recorder_with(fake)
    capture.gpu_find = found()
    prof = fastprof.Profiler(functions=False)
    prof.start()
import torch
torch._C._cuda_getDeviceCount = lambda: 1
torch._C._cuda_init = lambda: None
torch._C._cuda_getDevice = lambda: 0
torch.cuda._cudart = object()
torch.cuda._queued_calls[:] = [
    entry for entry in torch.cuda._queued_calls if "_check" not in entry[0].__name__
]
torch.cuda.device_count = lambda: 1
torch.cuda.default_generators = (torch.Generator(),)
ran = []
if sys.argv[4] == "among others":
    torch.cuda._lazy_call(lambda: ran.append("before"))
torch.manual_seed(11)
if sys.argv[4] == "among others":
    torch.cuda._lazy_call(lambda: ran.append("behind"))
torch.cuda._lazy_init()
if sys.argv[1] == "with":
    assert fake.names.count("start") == 2, fake.names
    prof.stop()
    assert not any("CudaInit" in str(entry[0]) for entry in torch.cuda._queued_calls)
print(ran, torch.randn(4, generator=torch.cuda.default_generators[0]).tolist())
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("imported", ["before", "later"])
def test_the_real_torch_runs_what_is_queued(imported) -> None:
    run_child(REAL_TORCH, imported, timeout=180).check()


REAL_TORCH = """
import sys
from fastprof.session.gpu.cuda_init import CudaInit

told = []
init = CudaInit(lambda: told.append(1))
finders = list(sys.meta_path)
if sys.argv[1] == "before":
    import torch
init.watch()
import torch
ours = [entry for entry in torch.cuda._queued_calls if entry is init._entry]
assert len(ours) == 1
for call, traceback in ours:
    call()
assert told == [1]
init.forget()
assert init._entry not in torch.cuda._queued_calls
assert sys.meta_path[-len(finders):] == finders and init not in sys.meta_path
"""


@pytest.mark.parametrize(("mode", "wanted"), [("auto", "auto"), ("on", True), ("off", False)])
def test_fastprof_run_has_the_option(monkeypatch, tmp_path, mode, wanted) -> None:
    asked = []

    def profiler(**options):
        asked.append(options)
        raise BusyError("enough")

    (tmp_path / "script.py").write_text("")
    monkeypatch.setattr(run_command, "Profiler", profiler)
    with pytest.raises(BusyError):
        run_command.run(["--gpu", mode, "-o", str(tmp_path), str(tmp_path / "script.py")])
    assert [(each["functions"], each["gpu"]) for each in asked] == [(True, wanted)]


def test_two_threads_do_not_ask_at_the_same_time(layer) -> None:
    """One thread initialises CUDA and one runs steps."""
    fake = FakeGpu()
    fake.answers = ["waiting", "on"]
    waiting = layer(fake)
    waiting.begin()
    first = fake.gpu_start

    def slow(*args, **kwargs):
        other = threading.Thread(target=waiting.poll)
        other.start()
        other.join()
        return first(*args, **kwargs)

    fake.gpu_start = slow
    waiting.poll()
    assert fake.names == ["start", "start"]
    assert waiting.state == "on"


def test_a_run_stopped_while_it_was_starting_is_stopped(layer) -> None:
    fake = FakeGpu()
    starting = layer(fake)
    first = fake.gpu_start

    def stopped_meanwhile(*args, **kwargs):
        starting.end()
        return first(*args, **kwargs)

    fake.gpu_start = stopped_meanwhile
    starting.begin()
    assert fake.names == ["start", "stop"]
    assert starting.state == "off"


# -- unavailable parts ---------------------------------------------------------------


def test_f49_asked_for_and_not_there_is_a_line_with_its_cause(fake, caplog) -> None:
    fake.answers, fake.reason = ["off"], "no libcupti was found"
    with caplog.at_level(logging.WARNING, "fastprof"):
        prof = run(3, gpu=True)
    assert [r.getMessage() for r in caplog.records] == [
        "GPU times are not recorded: no libcupti was found"
    ]
    assert "GPU: n/a, because no libcupti was found." in prof.report().to_text()
    caplog.clear()
    prof = run(3, gpu="auto")
    assert not caplog.records
    assert "GPU: n/a, because no libcupti was found." in prof.report().to_text()


def test_f49_a_degraded_layer_is_on_and_says_so(layer) -> None:
    fake = FakeGpu()
    fake.reason = "CUPTI's subscriber slot is held by torch.profiler."
    degraded = layer(fake, wanted=True)
    degraded.begin()
    assert (degraded.state, degraded.reason) == ("on", fake.reason)


def test_f49_an_attached_tool_keeps_cupti_to_itself(fake, monkeypatch) -> None:
    monkeypatch.setattr(capture, "gpu_find", found("Nsight Systems"), raising=False)
    prof = run(200)
    assert gpu_calls(fake) == []
    gpu = prof.snapshot().gpu
    assert gpu.status == "off"
    assert gpu.reason == "the GPU's activity records belong to Nsight Systems"


@pytest.mark.parametrize("method", ["start", "stop", "flush"])
def test_p9_a_collector_that_raises_is_reported_once_and_the_run_goes_on(
    fake, caplog, method
) -> None:
    fake.broken = {method}
    with caplog.at_level(logging.WARNING, "fastprof"):
        with fastprof.Profiler(functions=False) as prof:
            for _ in range(100):
                with fastprof.profile_section("forward"):
                    prof.step()
            prof.report()
            prof.report()
    snapshot = prof.snapshot()
    told = f"GPU collection failed and was switched off: OSError: {method} is broken"
    assert [r.getMessage() for r in caplog.records] == [told]
    assert snapshot.notes == (told,)
    assert snapshot.counters["gpu_errors"] == 1
    assert snapshot.steps.count == 100
    assert gpu_calls(fake).count(method) == 1


@pytest.mark.parametrize("value", ["1", "0", None])
def test_recording_does_not_resume_where_torch_ends_cupti_after_each_session(
    fake, layer, monkeypatch, caplog, value
) -> None:
    if value is None:
        monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    else:
        monkeypatch.setenv("TEARDOWN_CUPTI", value)
    one = layer(fake, True)
    one.begin()
    one._pause("torch.profiler")
    one._resume()
    assert gpu_calls(fake) == ["start", "pause"] + ["resume"] * (value != "1")
    assert ("TEARDOWN_CUPTI=1" in caplog.text) == (value == "1")
    one.end()
    assert gpu_calls(fake)[-1] == "stop"


@pytest.mark.parametrize("name", ["attached_tool", "driver_path", "cupti_paths"])
def test_p9_a_failing_search_for_libraries_is_reported(fake, monkeypatch, name) -> None:
    def fails(*args, **kwargs):
        raise PermissionError("/proc/self/maps")

    module = found()
    setattr(module, name, fails)
    monkeypatch.setattr(capture, "gpu_find", module, raising=False)
    prof = run(10)
    assert gpu_calls(fake) == []
    assert "GPU collection failed" in prof.snapshot().notes[0]


def test_p9_an_invalid_answer_is_counted(fake, monkeypatch) -> None:
    monkeypatch.setattr(fake, "gpu_start", lambda *args, **kwargs: {})
    prof = run(10)
    assert prof.snapshot().counters["gpu_errors"] == 1


# -- reports and children -------------------------------------------------------------


def test_a_report_flushes_with_a_limit_and_metrics_do_not(fake, capsys) -> None:
    with fastprof.start_training_profiling(1) as run:
        prof = run.profiler
        for _ in range(5):
            prof.step()
        assert "flush" not in fake.names
        prof.report()
        assert fake.calls[-1] == ("flush", FLUSH_LIMIT_S)
    prof.report()
    assert fake.names.count("flush") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("answer", ["on", "waiting"])
def test_f20_a_forked_child_does_not_call_the_collector(fake, answer) -> None:
    fake.answers = [answer]
    before = list(sys.meta_path)
    with fastprof.Profiler(functions=False) as prof:
        begun = len(fake.calls)
        child = os.fork()
        if child == 0:
            try:
                for _ in range(100):
                    prof.step()
                prof.report()
                prof.stop()
                clean = gpu_calls(fake) == ["start"] and sys.meta_path == before
                os._exit(0 if clean else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert len(fake.calls) == begun
