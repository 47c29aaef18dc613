"""Kinds of time in steps: each kind is at least the planted time, and all add up."""

from __future__ import annotations

import gc
import os
import queue
import select
import socket
import threading
import time
import tracemalloc
import types

import pytest
from fastprof._core import Recorder, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from hook_child import ok

MS = 1_000_000
#: Linux reports how long a thread is ready without a CPU.
CPU_WAIT = ["cpu_wait"] if os.path.exists("/proc/thread-self/schedstat") else []
#: The clock's scale is exact to 1e-4, the operating system's clocks less.
NEARLY = 0.99


class Steps:
    """A recorder that steps; ``with Steps(backend) as run: ...; run.step()``."""

    def __init__(self, backend, *, skip=0, functions=True, **options):
        self.recorder = Recorder(backend=backend, skip_steps=skip, **options)
        self.functions = functions

    def __enter__(self):
        self.recorder.start_sections()
        if self.functions:
            self.recorder.enable()
        self.recorder.mark()
        self.step = self.recorder.step
        return self

    def __exit__(self, *error):
        self.recorder.disable()
        self.recorder.stop_sections()

    def snapshot(self):
        snapshot = take_snapshot(self.recorder)
        steps = snapshot.steps
        if steps.split:
            assert sum(ns for _, ns in steps.split) == steps.sum_ns
        assert all(ns >= 0 for _, ns in steps.split)
        assert Snapshot.from_dict(snapshot.to_dict()) == snapshot
        return snapshot


def spent(run):
    return dict(run.snapshot().steps.split)


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow_gc(phase, info):
    # fastprof's callback comes after it, so it is timed at the end of a collection.
    if phase == "stop":
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _no_collection_of_its_own():
    gc.disable()
    yield
    gc.enable()
    assert not [entry for entry in gc.callbacks if "fastprof" in repr(entry)]


def planted(run):
    lock = threading.Lock()
    lock.acquire()
    for _ in range(3):
        with profile_section("data"):
            time.sleep(0.01)
        lock.acquire(timeout=0.01)
        time.sleep(0.01)
        with profile_section("synchronization"):
            time.sleep(0.01)
        gc.collect()
        burn(0.01)
        run.step()


def test_each_kind_is_at_least_what_was_planted(backend):
    gc.callbacks.append(slow_gc)
    try:
        with Steps(backend) as run:
            planted(run)
    finally:
        gc.callbacks.remove(slow_gc)
    split = spent(run)
    for kind in ("data", "lock", "io", "communication", "gc", "compute"):
        assert split[kind] >= 30 * MS * NEARLY, (kind, split)
    steps = run.snapshot().steps
    assert steps.gc_runs == (0, 0, 3)
    assert [sentence.partition(":")[0] for sentence in steps.split_missing] == ["gpu_wait"]


def test_both_hooks_find_the_same_places(backend):
    gc.callbacks.append(slow_gc)
    try:
        with Steps(backend) as run:
            planted(run)
    finally:
        gc.callbacks.remove(slow_gc)
    snapshot = run.snapshot()
    nodes, keys = snapshot.threads[0].nodes, snapshot.keys
    # Where the thread waits for a CPU depends on the machine's other programs.
    told = [p for p in snapshot.steps.split_places if p.kind != "cpu_wait"]
    found = {(p.kind, keys[nodes.key[p.node]].qualname) for p in told}
    assert {p.thread for p in snapshot.steps.split_places} == {0}
    assert found == {
        ("data", "data"),
        ("lock", "_thread.lock.acquire"),
        ("io", "time.sleep"),
        ("communication", "synchronization"),
        ("gc", "gc.collect"),
    }


def collect_in_many_functions():
    """Collect garbage in more functions than a recording has places."""
    scope = {"gc": gc}
    for i in range(300):
        exec(f"def collect_{i}(): gc.collect(0)\ncollect_{i}()", scope)


def kinds_with_places(run):
    return {place.kind for place in run.snapshot().steps.split_places}


def test_places_of_steps_have_room_after_imports_that_collect_garbage(backend):
    """Imports filled the table: no run of a script knew its sections' wait for a CPU."""
    with Steps(backend, skip=1) as run:
        collect_in_many_functions()
        run.step()
        with profile_section("data"):
            time.sleep(0.001)
        gc.collect()
        run.step()
    assert {"data", "gc"} <= kinds_with_places(run)


def test_collections_in_steps_leave_room_for_other_places(backend):
    with Steps(backend) as run:
        collect_in_many_functions()
        run.step()
        with profile_section("data"):
            time.sleep(0.001)
        run.step()
    assert {"data", "gc"} <= kinds_with_places(run)


def test_a_lock_that_another_thread_holds_is_waited_for(backend):
    lock, held, wanted = threading.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            wanted.wait()
            time.sleep(0.02)

    def ask():
        wanted.set()
        lock.acquire()
        lock.release()

    with Steps(backend) as run:
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        ask()
        thread.join()
        run.step()
    rows = [row for row in build_report(run.snapshot()).steps.split if row.name == "lock"]
    # The holder may begin its nap before we wait, so the length is uncertain.
    assert rows[0].total_ns > 0
    assert any("ask test_step_split.py:" in text for text, _ns in rows[0].places), rows


def test_waiting_in_the_data_section_is_data(backend):
    with Steps(backend) as run:
        with profile_section("data_loading"):
            queue.SimpleQueue().put(1)
            time.sleep(0.02)
        run.step()
    split = spent(run)
    assert split["data"] >= 20 * MS * NEARLY
    assert split["io"] == split["lock"] == 0


def simple_queue():
    with pytest.raises(queue.Empty):
        queue.SimpleQueue().get(timeout=0.001)


def rlock():
    lock = threading.RLock()
    lock.acquire()


def pipes():
    read, write = os.pipe()
    os.write(write, b"x")
    os.read(read, 1)
    os.close(read)
    os.close(write)


def sockets():
    a, b = socket.socketpair()
    a.sendall(b"x")
    b.recv(1)
    a.close()
    b.close()


def files(path):
    stream = open(path, "wb")  # noqa: SIM115
    stream.write(b"x" * 100_000)
    os.fsync(stream.fileno())
    stream.close()


@pytest.mark.parametrize(
    ("kind", "wait", "names"),
    [
        ("lock", simple_queue, {"SimpleQueue.get"}),
        ("lock", rlock, {"RLock.acquire"}),
        ("io", pipes, {"posix.read", "posix.write"}),
        ("io", sockets, {"socket.sendall", "socket.recv"}),
        ("io", files, {"BufferedWriter.write", "BufferedWriter.close", "posix.fsync"}),
        ("io", lambda: select.select([], [], [], 0.001), {"select.select"}),
    ],
)
def test_functions_that_wait_are_known_by_name(backend, kind, wait, names, tmp_path):
    arguments = (str(tmp_path / "file"),) if wait is files else ()
    with Steps(backend) as run:
        for _ in range(20):
            wait(*arguments)
        run.step()
    snapshot = run.snapshot()
    nodes, keys = snapshot.threads[0].nodes, snapshot.keys
    found = {
        keys[nodes.key[p.node]].qualname for p in snapshot.steps.split_places if p.kind == kind
    }
    assert names <= {".".join(name.split(".")[-2:]) for name in found}, found


def test_time_off_the_cpu_for_no_known_reason_is_other(backend):
    lock = threading.Lock()

    def hold():
        with lock:
            held.set()
            time.sleep(0.3)

    held = threading.Event()
    with Steps(backend, functions=False) as run:
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        with lock:  # no call that a hook could see
            pass
        thread.join()
        run.step()
    split = spent(run)
    assert split["other"] >= 150 * MS
    assert "lock" not in split


def test_without_its_signal_a_kind_has_no_row(backend):
    with Steps(backend, functions=False) as run:
        time.sleep(0.01)
        run.step()
    steps = run.snapshot().steps
    assert steps.split_missing == (
        "data: no section named data or data_loading ran in the steps",
        "lock: functions were not recorded",
        "io: functions were not recorded",
        "communication: functions were not recorded, and no section named synchronization ran",
        "gpu_wait: waiting for the GPU was not recorded",
    )
    assert [kind for kind, _ in steps.split] == ["compute", "gc", *CPU_WAIT, "other"]


def test_functions_in_some_steps_only_are_not_enough(backend):
    with Steps(backend) as run:
        run.step()
        run.recorder.disable()
        run.step()
        run.step()
        run.recorder.enable()
        run.step()
        run.step()
    missing = dict(s.split(": ", 1) for s in run.snapshot().steps.split_missing)
    assert missing["lock"] == "functions were recorded in only 2 of 5 steps"


def test_warm_up_is_in_no_kind(backend):
    with Steps(backend, skip=1) as run:
        time.sleep(0.05)
        run.step()
        time.sleep(0.001)
        run.step()
    steps = run.snapshot().steps
    assert dict(steps.split)["io"] <= steps.sum_ns
    assert steps.series.first == 1
    assert len(steps.series) == 1


def test_the_series_has_a_row_per_step(backend):
    with Steps(backend, skip=2) as run:
        for i in range(10):
            with profile_section("forward"):
                burn(0.001)
            if i % 2:
                with profile_section("sometimes"):
                    gc.collect()
            run.step()
    snapshot = run.snapshot()
    steps, series = snapshot.steps, snapshot.steps.series
    assert series.wall_ns == steps.recent_ns
    assert series.first == 2
    assert abs(sum(series.wall_ns) - steps.sum_ns) <= len(series)
    columns = {snapshot.keys[key].name: column for key, column in series.sections}
    for row in steps.rows:
        column = columns[snapshot.keys[row.key].name]
        assert abs(sum(column) - row.sum_ns) <= len(series)
    assert [ns > 0 for ns in columns["sometimes"]] == [False, True] * 4
    assert [ns > 0 for ns in series.gc_ns] == [False, True] * 4
    assert min(series.cpu_ns) >= 1 * MS * NEARLY
    assert len(series.switches) == len(series.faults) == 8
    assert series.communication_ns == series.autograd_ns == (0,) * 8
    for i, start in enumerate(series.start_ns[1:]):
        assert abs(start - series.start_ns[i] - series.wall_ns[i]) <= 2
    view = build_report(snapshot).steps.series
    assert view.names["sometimes"] == tuple(ns / 1e6 for ns in columns["sometimes"])


# ---- the collector ----


def test_f13_the_hook_does_nothing_it_should_not(backend):
    before = list(gc.callbacks)
    with Steps(backend) as run:
        (hook,) = [entry for entry in gc.callbacks if entry not in before]
        for arguments in (
            (), ("start",), (1, 2), ("start", {}), ("stop", None), ("stop", {}),
            ("stop", {"generation": "x"}), ("start", {}), ("start", {}),
            ("stop", {"generation": 10**30}), ("stop", {"generation": -1}), ("x", {}),
        ):  # fmt: skip
            assert hook(*arguments) is None
        run.step()
    assert gc.callbacks == before
    assert run.snapshot().steps.gc_runs == (0, 0, 0)
    assert hook("start", {}) is None


def test_finalizers_may_do_anything_in_a_collection(backend):
    class Loop:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with profile_section("in a finalizer"):
                time.sleep(0.005)
            [[] for _ in range(10_000)]
            gc.collect()
            run.step()

    with Steps(backend) as run:
        run.step()
        Loop()
        gc.collect()
        run.step()
    split = spent(run)
    assert split["gc"] >= 5 * MS * NEARLY
    assert split["io"] <= run.snapshot().steps.sum_ns - split["gc"]


def test_a_note_says_that_the_program_emptied_the_callbacks(backend):
    with Steps(backend) as run:
        gc.callbacks.clear()
        gc.collect()
        run.step()
    steps = run.snapshot().steps
    assert "gc: the garbage collector was not recorded" in steps.split_missing
    assert steps.series.gc_ns == ()
    assert steps.gc_runs == ()


@pytest.mark.parametrize("put_back", [False, True])
def test_f8_a_collection_that_empties_the_callbacks_ends(backend, put_back):
    taken = []

    def empties(phase, info):
        taken[:] = [entry for entry in gc.callbacks if entry is not empties]
        gc.callbacks.clear()

    saved = list(gc.callbacks)
    lock = threading.Lock()
    lock.acquire()
    with Steps(backend) as run:
        gc.callbacks.append(empties)  # after ours, which sees only the begin
        gc.collect()
        if put_back:
            gc.callbacks[:] = taken
        run.step()
        run.step()
        for _ in range(3):
            lock.acquire(timeout=0.01)
            run.step()
        gc.collect()
        run.step()
    assert gc.callbacks == saved[: len(saved) * put_back]
    gc.callbacks[:] = saved
    split, steps = spent(run), run.snapshot().steps
    assert split["lock"] >= 30 * MS * NEARLY
    assert split.get("gc", 0) < steps.sum_ns - split["lock"]
    assert steps.gc_runs == ((0, 0, 1) if put_back else ())
    missing = "gc: the garbage collector was not recorded"
    assert (missing in steps.split_missing) != put_back


def test_f8_after_emptied_callbacks_the_next_start_has_one_entry(backend):
    saved = list(gc.callbacks)
    with Steps(backend) as run:
        earlier = [entry for entry in gc.callbacks if entry not in saved]
        gc.callbacks[:] = saved
    gc.callbacks.extend(earlier)  # the program restores the old callbacks
    with run:
        gc.collect()
        run.step()
    assert gc.callbacks == saved + earlier
    gc.callbacks[:] = saved
    assert run.snapshot().steps.gc_runs == (0, 0, 1)


def test_callbacks_copied_and_put_back_count_once(backend):
    saved = list(gc.callbacks)
    with Steps(backend) as run:
        gc.callbacks[:] = gc.callbacks * 2
        gc.collect()
        run.step()
    assert gc.callbacks == saved
    assert run.snapshot().steps.gc_runs == (0, 0, 1)


def test_collections_in_other_threads_are_not_the_training_thread_s(backend):
    with Steps(backend) as run:
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
        run.step()
    assert spent(run)["gc"] == 0
    assert run.snapshot().steps.gc_runs == (0, 0, 0)
    assert run.recorder.export()["steps"]["spent"]["gc_elsewhere"] == 1


def test_two_recorders_have_a_hook_each(backend):
    with Steps(backend) as first:
        gc.collect()
        first.step()
    with Steps(backend) as second:
        gc.collect()
        gc.collect()
        second.step()
    assert first.snapshot().steps.gc_runs == (0, 0, 1)
    assert second.snapshot().steps.gc_runs == (0, 0, 2)


def test_f25_a_recorder_that_goes_takes_its_hook_along(backend):
    before = list(gc.callbacks)
    run = Steps(backend)
    run.__enter__()
    assert len(gc.callbacks) == len(before) + 1
    hook = gc.callbacks[-1]
    del run.step
    del run
    assert gc.callbacks == before
    assert hook("start", {}) is None


@pytest.mark.skipif(not CPU_WAIT, reason="this system does not tell")
def test_time_ready_without_a_cpu_is_distinguished_from_waiting(backend):
    ok(
        """
import os, subprocess, sys, time
from fastprof._core import Recorder, profile_section
from fastprof.capture.convert import take_snapshot

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "print(flush=True)\\nwhile 1: pass"],
                           stdout=subprocess.PIPE) for _ in range(3)]
for other in others:
    other.stdout.readline()

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

recorder = Recorder(backend=BACKEND, skip_steps=1)
recorder.start_sections(); recorder.enable(); recorder.mark()
for _ in range(6):
    with profile_section("data"):
        burn(0.02)
    burn(0.04)
    time.sleep(0.001)
    recorder.step()
recorder.disable(); recorder.stop_sections()
for other in others:
    other.kill()
    other.communicate()
steps = take_snapshot(recorder).steps
split = dict(steps.split)
# A quarter of the CPU is left for this thread, and it needed 40 ms outside of data.
assert split["cpu_wait"] > 5 * 40e6, split
# Of the latter is what a host takes from a virtual machine.
assert split["cpu_wait"] > split["other"], split
# What it waited in data is of that kind.
assert split["data"] > 5 * 40e6, split
ready = sum(steps.series.cpu_wait_ns)
assert split["cpu_wait"] * 1.2 < ready <= steps.sum_ns, (ready, split)
""",
        backend,
    )


@pytest.mark.skipif(not CPU_WAIT, reason="this system does not tell")
def test_p9_a_program_that_closes_all_files_loses_that_figure_alone(backend):
    ok(
        """
import os
from fastprof._core import Recorder
from fastprof.capture.convert import take_snapshot

recorder = Recorder(backend=BACKEND, skip_steps=0)
recorder.start_sections(); recorder.enable(); recorder.mark()
os.closerange(3, 100)
mine = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
for _ in range(3):
    os.sched_yield()
    time_up = [x * x for x in range(1000)]
    import time; time.sleep(0.001)
    recorder.step()
recorder.disable(); recorder.stop_sections()
steps = take_snapshot(recorder).steps
assert sum(ns for _, ns in steps.split) == steps.sum_ns
assert "cpu_wait" not in dict(steps.split), steps.split
assert any(text.startswith("cpu_wait: ") for text in steps.split_missing)
del recorder
for file in mine:
    os.fstat(file)  # none of them was closed with the recorder
""",
        backend,
    )


@pytest.mark.skipif(not CPU_WAIT, reason="this system does not tell")
def test_p9_a_recorder_that_is_stopped_has_no_file_open(backend):
    ok(
        """
import os
from fastprof._core import Recorder
from fastprof.capture.convert import take_snapshot

def files():
    return sorted(os.listdir("/proc/self/fd"))

before = files()
kept = []
for again in range(2):
    recorder = Recorder(backend=BACKEND, skip_steps=0)
    for part in range(2):
        recorder.start_sections(); recorder.enable(); recorder.mark()
        for _ in range(3):
            os.sched_yield()
            recorder.step()
        assert len(files()) == len(before) + 1
        recorder.disable(); recorder.stop_sections()
        assert files() == before
    kept.append(recorder)
    missing = take_snapshot(recorder).steps.split_missing
    assert not any(text.startswith("cpu_wait") for text in missing), missing
""",
        backend,
    )


def test_f19_a_forked_child_has_no_hook(backend):
    ok(
        """
import gc, os, warnings
warnings.simplefilter("ignore")
from fastprof._core import Recorder
before = len(gc.callbacks)
r = Recorder(backend=BACKEND, skip_steps=0); r.start_sections(); r.enable(); r.mark()
gc.collect(); r.step()
pid = os.fork()
if pid == 0:
    assert len(gc.callbacks) == before
    gc.collect()
    r.start_sections(); r.mark(); gc.collect(); r.step(); r.stop_sections()
    assert r.export()["steps"]["spent"]["gc_runs"] == (0, 0, 1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
gc.collect(); r.step()
assert r.export()["steps"]["spent"]["gc_runs"] == (0, 0, 2)
r.disable(); r.stop_sections()
""",
        backend,
    )


def test_f37_recorders_that_step_leave_nothing_behind(backend):
    def once():
        with Steps(backend) as run:
            for i in range(5):
                with profile_section(f"part {i}"):
                    time.sleep(0)
                run.step()
        run.recorder.export()

    once()
    gc.collect()
    tracemalloc.start()
    try:
        once()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            once()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # One series alone has 160 KiB.
    assert grown < 100_000


def test_clear_while_stepping_forgets_the_steps(backend):
    with Steps(backend) as run:
        gc.collect()
        time.sleep(0.01)
        run.step()
        run.recorder.clear()
        run.step()
        run.recorder.mark()
        run.step()
    steps = run.snapshot().steps
    assert steps.gc_runs == (0, 0, 0)
    assert dict(steps.split)["io"] == 0
    assert steps.count == 1


def test_waits_in_deep_or_many_contexts_are_only_left_out(backend):
    def deep(n):
        if n:
            deep(n - 1)
        time.sleep(0)

    with Steps(backend, max_depth=16, max_nodes=64) as run:
        for i in range(50):
            types.FunctionType(deep.__code__.replace(co_name=f"deep{i}"), globals(), "d", None,
                               deep.__closure__)(30)  # fmt: skip
            run.step()
    assert spent(run)["io"] >= 0


def test_a_collection_in_which_the_recording_ends_is_over_for_the_next_one():
    class Stops:
        def __del__(self):
            run.recorder.stop_sections()

    with Steps("auto", functions=False) as run:
        cycle = Stops()
        cycle.itself = cycle
        del cycle
        gc.collect()
        assert not run.recorder.recording
        run.recorder.start_sections()
        run.recorder.mark()
        for _ in range(3):
            burn(0.002)
            run.step()
        split = spent(run)
    assert split.get("gc", 0) == 0
    assert run.snapshot().steps.gc_runs == (0, 0, 0)


def test_steps_of_a_few_us_ask_the_operating_system_seldom(backend):
    beyond_ns = []
    for _ in range(3):
        with Steps(backend, functions=False) as run:
            for _ in range(2000):
                with profile_section("data"):
                    pass
                run.step()
            burn(0.05)
            run.step()
        spent_on = run.recorder.export()["steps"]["spent"]
        # There are three readings per step; some are real on any machine, and nearly all are if a
        # section takes 20 us.
        assert 0 < spent_on["cpu_reckoned"] < 6003
        assert spent_on["cpu_steps"] == 2001
        steps = run.snapshot().steps
        assert spent_on["cpu_ns"] >= 50 * MS * NEARLY
        assert min(steps.series.cpu_ns) >= 0
        beyond_ns.append(spent_on["cpu_ns"] - steps.sum_ns * 1.001)
    # Estimates are corrected: CPU time and wall time agree.  What a hypervisor takes between the
    # readings of the two clocks counts as CPU time: that may happen once.
    assert min(beyond_ns) <= 40_000


def test_the_cpu_time_of_a_short_sleep_is_wrong_by_20_us_at_most(backend):
    with Steps(backend, functions=False) as run:
        for _ in range(50):
            with profile_section("data"):
                time.sleep(0.001)
            run.step()
    spent_on = run.recorder.export()["steps"]["spent"]
    assert spent_on["covered_ns"] >= 50 * MS * NEARLY
    off_ns = spent_on["covered_ns"] - spent_on["covered_cpu_ns"]
    assert off_ns >= 50 * (MS - 40_000) * NEARLY
