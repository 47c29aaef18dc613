"""The function layer with threads: before and after the start, short-lived, forked."""

from __future__ import annotations

import ctypes
import queue
import re
import sys
import threading
import time
from collections.abc import Callable

import fastprof
import pytest
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from fastprof.errors import BusyError
from helpers import need_running_threads, run_child
from trees import counts


def leaf() -> None:
    pass


def work(n: int = 100) -> None:
    for _ in range(n):
        leaf()


def run_in_threads(n: int, target: Callable[[], object]) -> None:
    threads = [threading.Thread(target=target) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_f15_threads_that_ended_keep_their_figures(backend: str) -> None:
    recorder = Recorder(backend=backend)
    recorder.enable()
    run_in_threads(50, work)
    recorder.disable()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (5000, 0)
    assert counts(snapshot, "work") == (50, 0)
    assert "unbalanced" not in snapshot.counters


def test_f16_two_thousand_threads_are_exact_in_bounded_memory(backend: str) -> None:
    recorder = Recorder(backend=backend)
    recorder.enable()
    for _ in range(250):
        run_in_threads(8, work)
    recorder.disable()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (200_000, 0)
    memory = recorder.memory()
    # Ended threads were joined: there is no record for each thread that ever ran.
    assert memory["threads"] < 200
    assert memory["bytes"] < 16 << 20


def test_threads_running_before_the_start_are_recorded(backend: str) -> None:
    need_running_threads(backend)
    go, done = threading.Event(), threading.Event()

    def early() -> None:
        go.wait()
        work()
        done.set()

    thread = threading.Thread(target=early)
    thread.start()
    recorder = Recorder(backend=backend)
    recorder.enable()
    go.set()
    done.wait()
    recorder.disable()
    thread.join()
    assert counts(take_snapshot(recorder), "leaf") == (100, 0)


def test_a_thread_that_was_idle_between_two_recordings_is_recorded(backend: str) -> None:
    need_running_threads(backend)
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def serve() -> None:
        while asked.get():
            work()
            done.put(1)

    thread = threading.Thread(target=serve, daemon=True)
    seen = []
    for rounds in (1, 2, 3):
        recorder = Recorder(backend=backend)
        recorder.enable()
        if rounds == 1:
            thread.start()
        for _ in range(rounds):
            asked.put(1)
            done.get()
        recorder.disable()
        seen.append(counts(take_snapshot(recorder), "leaf")[0])
    asked.put(0)
    thread.join()
    assert seen == [100, 200, 300]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the hook of a thread costs only that one")
def test_an_idle_thread_keeps_no_hook(backend: str) -> None:
    """While a thread has a profile function, CPython instruments the code of all threads."""
    run_child(
        f"BACKEND = {backend!r}\n"
        """
import dis, io, threading
from fastprof.capture import Recorder
def f(): return len(())
def instrumented():
    f()
    text = io.StringIO()
    dis.dis(f, file=text, adaptive=True)
    return "INSTRUMENTED" in text.getvalue()
begun = threading.Event()
def waits():
    begun.set()
    threading.Event().wait()
threading.Thread(target=waits, daemon=True).start()
begun.wait()
r = Recorder(backend=BACKEND)
r.enable()
assert instrumented()
r.disable()
assert not instrumented()
"""
    ).check()


def test_the_profile_function_of_another_thread_is_left_alone(backend: str) -> None:
    begin, go_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def profile(*args: object) -> None:
        pass

    def other() -> None:
        sys.setprofile(profile)
        begin.set()
        go_on.wait()
        seen.append(sys.getprofile())
        sys.setprofile(None)

    thread = threading.Thread(target=other)
    thread.start()
    begin.wait()
    recorder = Recorder(backend=backend)
    recorder.enable()
    leaf()
    recorder.disable()
    go_on.set()
    thread.join()
    assert seen == [profile]
    assert counts(take_snapshot(recorder), "leaf") == (1, 0)


def test_f17_threads_switching_all_the_time_never_mix(backend: str) -> None:
    def down(n: int) -> None:
        leaf()
        if n:
            down(n - 1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        recorder = Recorder(backend=backend)
        recorder.enable()
        run_in_threads(8, lambda: [down(20) for _ in range(50)])
        recorder.disable()
    finally:
        sys.setswitchinterval(interval)
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "down") == (8 * 50 * 21, 0)
    assert counts(snapshot, "leaf") == (8 * 50 * 21, 0)
    assert "unbalanced" not in snapshot.counters
    assert "unmatched" not in snapshot.counters


def test_f17_a_second_recorder_is_refused_in_any_thread(backend: str) -> None:
    first, second = Recorder(backend=backend), Recorder(backend=backend)
    errors: list[BaseException] = []

    def try_second() -> None:
        try:
            second.enable()
        except BusyError as error:
            errors.append(error)

    first.enable()
    run_in_threads(3, try_second)
    work()
    first.disable()
    assert len(errors) == 3
    assert "fastprof" in str(errors[0])
    assert counts(take_snapshot(first), "leaf") == (100, 0)
    second.enable()
    work()
    second.disable()
    assert counts(take_snapshot(second), "leaf") == (100, 0)


def test_f6_disable_in_another_thread_ends_the_recording_everywhere(backend: str) -> None:
    recorder = Recorder(backend=backend)
    recorder.enable()
    work()
    run_in_threads(1, recorder.disable)
    work()
    assert counts(take_snapshot(recorder), "leaf") == (100, 0)
    # The next recording replaces the hook left in this thread.
    other = Recorder(backend=backend)
    other.enable()
    work()
    other.disable()
    assert counts(take_snapshot(other), "leaf") == (100, 0)
    assert sys.getprofile() is None


def test_f18_on_and_off_while_threads_start_and_end(backend: str) -> None:
    run_child(
        f"""
import threading, time
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot

stop = False

def leaf():
    pass

def churn():
    while not stop:
        threads = [threading.Thread(target=leaf) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()

churners = [threading.Thread(target=churn) for _ in range(3)]
for t in churners: t.start()
recorder = Recorder(backend={backend!r})
for _ in range(200):
    recorder.enable()
    leaf()
    recorder.disable()
stop = True
for t in churners: t.join()
snapshot = take_snapshot(recorder)
assert sum(snapshot.counters.get(k, 0) for k in ("dropped", "dropped_threads")) == 0
""",
        timeout=120,
    ).check()


def test_f19_forks_with_busy_threads_leave_the_parent_exact(backend: str) -> None:
    run_child(
        f"""
import os, threading, warnings
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
warnings.simplefilter("ignore", DeprecationWarning)

def leaf():
    pass

def count(recorder):
    s = take_snapshot(recorder)
    return sum(n for t in s.threads for k, n in zip(t.nodes.key, t.nodes.calls)
               if s.keys[k].name == "leaf")

stop = False
def spin():
    while not stop:
        len("x")

threads = [threading.Thread(target=spin) for _ in range(3)]
for t in threads: t.start()
recorder = Recorder(backend={backend!r})
assert count(recorder) == 0  # each child would import what it needs
recorder.enable()
for i in range(10):
    leaf()
    pid = os.fork()
    if pid == 0:
        assert not recorder.active
        assert count(recorder) == 0
        own = Recorder(backend={backend!r})
        own.enable()
        leaf()
        own.disable()
        os._exit(0 if count(own) == 1 else 3)
    assert os.waitpid(pid, 0)[1] == 0, i
stop = True
for t in threads: t.join()
recorder.disable()
assert count(recorder) == 10
""",
        timeout=120,
    ).check()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="only sys.monitoring sees foreign threads")
def test_a_thread_python_did_not_start_keeps_one_record() -> None:
    """A C thread may get a new thread state at each callback, but it is one thread."""
    libc = ctypes.CDLL(None)
    callback_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

    def body(_: object) -> None:
        work()

    callback = callback_type(body)
    recorder = Recorder(backend="monitoring")
    recorder.enable()
    for _ in range(20):
        ident = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(ident), None, callback, None) == 0
        # ctypes releases the interpreter lock during this call.
        assert libc.pthread_join(ident, None) == 0
    recorder.disable()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (2000, 0)


def test_times_are_of_the_thread_that_spent_them(backend: str) -> None:
    def sleeper() -> None:
        time.sleep(0.05)

    recorder = Recorder(backend=backend)
    recorder.enable()
    run_in_threads(4, sleeper)
    recorder.disable()
    snapshot = take_snapshot(recorder)
    spent = []
    for thread in snapshot.threads:
        for i, k in enumerate(thread.nodes.key):
            if snapshot.keys[k].name == "<built-in method time.sleep>":
                spent.append(thread.nodes.self_ns[i])
    assert len(spent) == 4
    assert min(spent) >= 0.05e9


def test_p9_a_thread_of_the_program_never_dies_of_its_hook(backend: str) -> None:
    """Up to 3.11 sys.setprofile() fails in a thread while another thread is inside it.

    This happens if threads start at once, often with an audit hook in Python.
    """
    result = run_child(
        f"""
import sys, threading, time
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot

def audit(event, args):
    if event == "sys.setprofile":
        time.sleep(0.001)

sys.addaudithook(audit)

def leaf():
    pass

recorder = Recorder(backend={backend!r})
recorder.enable()
for _ in range(10):
    threads = [threading.Thread(target=leaf) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
recorder.disable()
s = take_snapshot(recorder)
calls = sum(n for t in s.threads for k, n in zip(t.nodes.key, t.nodes.calls)
            if s.keys[k].name == "leaf")
assert calls == 80, calls
"""
    ).check()
    assert result.stderr == ""


def test_threads_that_end_before_the_run_have_their_names() -> None:
    import fastprof

    def busy() -> None:
        began = time.thread_time()
        while not done.is_set() or time.thread_time() - began < 0.05:
            sum(range(100))

    done = threading.Event()
    with fastprof.Profiler(gpu=False, skip_first=0, log_every=5) as prof:
        helper = threading.Thread(target=busy, name="augmenter")
        helper.start()
        for _ in range(10):
            prof.step()
        done.set()
        helper.join()
    report = prof.report()
    assert "augmenter" in {thread.name for thread in report.threads}
    screen = report.to_text()
    assert "Other threads, without waits per step: augmenter" in screen
    assert not re.search(r"thread \d{6}", screen)  # an ident


def test_a_thread_whose_name_raises_is_no_harm() -> None:
    ended = threading.Event()
    name = property(lambda thread: thread.missing)
    thread = type("Nameless", (threading.Thread,), {"name": name})(target=ended.wait)
    thread.start()
    try:
        with fastprof.Profiler() as profiler:
            profiler.step()
        names = [tree.name for tree in profiler.snapshot().threads]
    finally:
        ended.set()
        thread.join()
    assert threading.current_thread().name in names
