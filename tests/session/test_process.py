"""Forks, signals and exits during a run; each in a child process."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from helpers import run_child

BEGIN = """
import os, signal, sys, threading, time
import fastprof
from fastprof import profile_section

def steps(count, prof, seconds=0):
    for _ in range(count):
        with profile_section("forward"):
            if seconds:
                time.sleep(seconds)
        prof.step()
"""


def test_f19_a_forked_child_stops_silently_and_the_parent_goes_on(tmp_path) -> None:
    code = (
        BEGIN
        + """
log = []
with fastprof.start_training_profiling(
    1, stream=sys.stderr, output=sys.argv[1],
    logger=lambda metrics, step: log.append(step),
) as run:
    prof = run.profiler
    steps(5, prof)
    for how in ("return", "exit", "_exit"):
        pid = os.fork()
        if pid == 0:
            before = len(log)
            assert not prof.running
            prof.step()
            with profile_section("in_child"):
                pass
            list(prof.loader(range(3), "main"))
            list(prof.loader(range(3), "main", split="val"))
            assert len(log) == before
            with fastprof.Profiler(functions=True) as own:
                steps(3, own)
            assert own.report().section("forward").count == 3
            prof.stop()
            if how == "return":
                break
            (sys.exit if how == "exit" else os._exit)(0)
        assert os.waitpid(pid, 0)[1] == 0
    else:
        steps(5, prof)
        assert prof.steps == 10
        print(prof.report().in_phase("all").section("forward").count, len(log))
"""
    )
    output = tmp_path / "run.fprof"
    result = run_child(code, str(output)).check()
    assert result.stdout == "10 10\n"
    assert result.stderr.count("=== Final") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.fprof"]


def test_f19_a_fork_while_another_thread_makes_a_report() -> None:
    """No lock that it holds at that moment may stay locked in the child."""
    code = (
        BEGIN
        + """
from fastprof.findings import measured_functions as facts
with fastprof.Profiler() as prof:
    steps(30, prof)
    # All modules are imported: an import under way is Python's own lock.
    prof.report().to_text(full=True)
    inside, go, walk = threading.Event(), threading.Event(), facts.walk
    def waits(*arguments):
        inside.set()
        go.wait()
        return walk(*arguments)
    facts.walk = waits
    texts = []
    thread = threading.Thread(target=lambda: texts.append(prof.report().to_text(full=True)))
    thread.start()
    assert inside.wait(20)
    pid = os.fork()
    facts.walk = walk
    if pid == 0:
        signal.alarm(30)
        with fastprof.Profiler() as own:
            steps(30, own)
        assert own.snapshot().steps.count == 30
        assert "forward" in own.report().to_text(full=True)
        os._exit(0)
    go.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
    steps(5, prof)
assert prof.steps == 35 and "forward" in texts[0]
"""
    )
    run_child(code).check()


def test_f19_forks_with_busy_threads() -> None:
    code = (
        BEGIN
        + """
stop = threading.Event()
counts = [0, 0, 0]
def busy(i):
    while not stop.is_set():
        with profile_section("busy"):
            counts[i] += 1
with fastprof.Profiler(functions="auto") as prof:
    threads = [threading.Thread(target=busy, args=(i,)) for i in range(3)]
    for t in threads: t.start()
    for i in range(12):
        pid = os.fork()
        if pid == 0:
            # Functions in some children only: each of these measures the hook's cost anew.
            with fastprof.Profiler(functions=i % 6 == 0) as own:
                steps(2, own)
            report = own.report()
            report.save(f"child-{os.getpid()}.fprof")
            sys.exit(0 if report.section("forward").count == 2 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    for t in threads: t.join()
assert prof.report().section("busy").count == sum(counts), (prof.report(), counts)
"""
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run_child(code, cwd=folder, timeout=300).check()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_f20_pools_of_every_start_method(method) -> None:
    code = (
        BEGIN
        + f"""
import multiprocessing
def work(x):
    with profile_section("in_worker"):
        return x + 1
if __name__ == "__main__":
    with fastprof.Profiler() as prof:
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            for batch in prof.loader(pool.imap(work, range(8)), "main"):
                prof.step()
    assert prof.steps == 8
    assert prof.snapshot().loaders[0].batches == 8
"""
    )
    result = run_child(code, timeout=120).check()
    assert (result.stdout, result.stderr) == ("", "")


def test_f22_keyboardinterrupt_passes_and_what_was_recorded_is_saved(tmp_path) -> None:
    code = (
        BEGIN
        + """
with fastprof.Profiler(output=sys.argv[1]) as prof:
    steps(100, prof)
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        steps(1, prof)
"""
    )
    output = tmp_path / "run.fprof"
    result = run_child(code, str(output))
    assert result.returncode in (-signal.SIGINT, 1)
    assert result.stderr.rstrip().endswith("KeyboardInterrupt")
    assert load(output).in_phase("all").section("forward").count >= 100


def test_f22_sigterm_leaves_the_last_complete_file(tmp_path) -> None:
    code = (
        BEGIN
        + """
from fastprof.session.output import files
files.SAVE_EVERY_S = 0.0
with fastprof.Profiler(output=sys.argv[1]) as prof:
    steps(50, prof)
    while not os.path.exists(sys.argv[1]):
        steps(1, prof)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    )
    output = tmp_path / "run.fprof"
    assert run_child(code, str(output)).returncode == -signal.SIGTERM
    assert load(output).steps.count >= 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.fprof"]


def test_f21_a_kill_in_the_middle_of_saving_leaves_a_complete_file(tmp_path) -> None:
    code = (
        BEGIN
        + """
from fastprof.session.output.files import Outputs
from fastprof.session.output import files
files.SAVE_EVERY_S = 0.0
with fastprof.Profiler(output=sys.argv[1]) as prof:
    for i in range(10**9):
        prof._run.parts.of(Outputs)._due = 0.0
        with profile_section("forward"):
            pass
        prof.step()
        if i == 0:
            print("saved", flush=True)
"""
    )
    import random
    import subprocess
    import time

    from helpers import child_env

    output = tmp_path / "run.fprof"
    script = tmp_path / "script.py"
    script.write_text(code)
    random_times = random.Random(1)
    for _ in range(10):
        process = subprocess.Popen(
            [sys.executable, str(script), str(output)],
            stdout=subprocess.PIPE,
            env=child_env(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"saved\n"
        time.sleep(random_times.uniform(0, 0.05))
        process.kill()
        process.wait()
        process.stdout.close()
        assert load(output).steps.count >= 1


@pytest.mark.parametrize(
    ("ending", "returncode"),
    [("sys.exit(3)", 3), ("raise SystemExit(4)", 4), ("1 / 0", 1), ("sys.exit('no')", 1)],
)
def test_the_target_ends_in_the_loop_and_its_status_stays(tmp_path, ending, returncode) -> None:
    code = (
        BEGIN
        + f"""
with fastprof.Profiler(output=sys.argv[1]) as prof:
    steps(5, prof)
    with profile_section("last"):
        {ending}
"""
    )
    output = tmp_path / "run.fprof"
    run_child(code, str(output)).check(returncode=returncode)
    report = load(output)
    whole = report.in_phase("all")  # on a busy machine the end is a phase
    assert whole.section("forward").count == 5
    assert whole.section("last").count == 1


def test_os_exit_in_the_loop_ends_the_process_as_it_would(tmp_path) -> None:
    code = (
        BEGIN
        + """
from fastprof.session.output import files
files.SAVE_EVERY_S = 0.0
with fastprof.Profiler(output=sys.argv[1]) as prof:
    steps(5, prof)
    os._exit(7)
"""
    )
    output = tmp_path / "run.fprof"
    run_child(code, str(output)).check(returncode=7)
    assert load(output).steps.count >= 1, "what was saved in between is there"


def test_f24_the_interpreter_exits_while_a_run_is_going_on(tmp_path) -> None:
    code = (
        BEGIN
        + """
prof = fastprof.Profiler(output=sys.argv[1]).start()
steps(5, prof)
"""
    )
    output = tmp_path / "run.fprof"
    result = run_child(code, str(output)).check()
    assert (result.stdout, result.stderr) == ("", "")
    assert load(output).in_phase("all").section("forward").count == 5


def test_f24_without_an_output_the_report_is_printed_at_exit() -> None:
    code = (
        BEGIN
        + """
prof = fastprof.Profiler().start()
steps(5, prof, seconds=0.01)  # the text has no row for a section with almost no time
"""
    )
    result = run_child(code).check()
    assert result.stdout == ""
    assert re.search(r"^forward +\d", result.stderr, re.MULTILINE), result.stderr


def test_f24_daemon_threads_and_finalizers_at_exit() -> None:
    code = (
        BEGIN
        + """
import atexit
class Late:
    def __del__(self):
        with profile_section("late"):
            pass
keep = Late()
def forever():
    while True:
        with profile_section("daemon"):
            time.sleep(0.0001)
threading.Thread(target=forever, daemon=True).start()
prof = fastprof.Profiler().start()
atexit.register(lambda: steps(1, prof))
steps(50, prof)
sys.exit(5)
"""
    )
    run_child(code).check(returncode=5)


def test_f24_a_training_report_at_exit_is_printed_once() -> None:
    code = (
        BEGIN
        + """
fastprof.start_training_profiling(2)
for _ in range(3):
    with profile_section("forward"):
        pass
    fastprof.step()
"""
    )
    result = run_child(code).check()
    assert result.stdout.count("=== Profiling Report (Step 2) ===") == 1
    assert result.stdout.count("=== Final Profiling Summary (3 steps) ===") == 1
    assert result.stderr == ""


def test_f23_signal_handlers_may_use_sections_and_step() -> None:
    code = (
        BEGIN
        + """
handled = 0
def handler(signum, frame):
    global handled
    handled += 1
    with profile_section("in_handler"):
        pass
with fastprof.Profiler(functions="auto") as prof:
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    count = 0
    while handled < 100:
        steps(10, prof)
        count += 10
    signal.setitimer(signal.ITIMER_REAL, 0)
report = prof.report()
assert report.in_phase("all").section("in_handler").count == handled
assert report.in_phase("all").section("forward").count == count == prof.steps
"""
    )
    run_child(code).check()


def test_p6_a_whole_run_opens_no_socket(tmp_path) -> None:
    code = (
        BEGIN
        + """
def hook(event, args):
    if event.startswith("socket."):
        print("used", event)
sys.addaudithook(hook)
with fastprof.Profiler(output=[sys.argv[1], sys.argv[1] + ".json"]) as prof:
    steps(5, prof)
prof.report().to_text()
fastprof.load(sys.argv[1])
"""
    )
    assert run_child(code, str(tmp_path / "run.fprof")).check().stdout == ""


def load(path):
    import fastprof

    return fastprof.load(path)


@pytest.mark.parametrize("begin", ["", "fastprof.Profiler().start()"])
def test_an_interrupted_process_dies_by_the_signal(begin: str) -> None:
    code = f"import os, signal, fastprof\n{begin}\nos.kill(os.getpid(), signal.SIGINT)\n"
    result = run_child(code, env={} if begin else {"FASTPROF": "1"})
    assert result.returncode == -signal.SIGINT


def test_an_interrupt_that_a_console_of_the_program_caught_is_not_its_end() -> None:
    code = """if True:
        import sys, fastprof
        profiler = fastprof.Profiler().start()
        def typed(): raise KeyboardInterrupt
        def console():
            try:
                typed()
            except KeyboardInterrupt as error:  # as code.InteractiveInterpreter does
                sys.last_type, sys.last_value = type(error), error
                sys.last_traceback = error.__traceback__.tb_next
        console()
    """
    run_child(code).check()
