"""Several threads use fastprof's public names for the first time, or fork meanwhile."""

from __future__ import annotations

from helpers import run_child

#: One thread imports ``fastprof.report``, and stops before it is found until `turn` is set, or
#: another thread is about to import one that it needs.
SLOW = """
import _imp, importlib._bootstrap, os, signal, sys, threading
import fastprof

locks = importlib._bootstrap._module_locks
begun, turn = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "fastprof.report" and threading.current_thread() is first:
            begun.set()
            _imp.release_lock()  # as it is between two finders
            for _ in range(10):
                if turn.wait(0.1) or "fastprof.report.figures" in locks:
                    break
            _imp.acquire_lock()

failed = []

def use(name):
    try:
        getattr(fastprof, name)
    except BaseException as error:
        failed.append(error)

sys.meta_path.insert(0, Slow())
first = threading.Thread(target=use, args=("Report",))
first.start()
begun.wait()
"""


def test_threads_that_need_modules_of_each_other_take_turns() -> None:
    # The second has begun fastprof.report.figures, and needs fastprof.report for it.
    code = """
second = threading.Thread(target=use, args=("load",))
second.start()
first.join()
second.join()
assert not failed, failed
assert fastprof.load and fastprof.Report
"""
    run_child(SLOW + code).check()


def test_a_child_forked_during_a_first_use_can_use_it() -> None:
    code = """
pid = os.fork()
if not pid:
    signal.alarm(20)
    fastprof.Report
    os._exit(7)
first.join()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert not failed
"""
    run_child(SLOW + code).check()


def test_a_fork_within_a_first_use_is_no_deadlock() -> None:
    code = """
turn.set()
first.join()

class Forks:
    def find_spec(self, name, path=None, target=None):
        if name == "fastprof.comparison":
            pid = os.fork()
            if not pid:
                fastprof.load
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

sys.meta_path.insert(0, Forks())
assert fastprof.compare and fastprof.merge
"""
    run_child(SLOW + code).check()
