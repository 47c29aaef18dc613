"""Exceptions from outside that come while C code of fastprof calls functions in Python."""

from __future__ import annotations

import pytest
from helpers import run_child

BEGIN = """
import signal, sys, threading
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
def leaf(): pass
def handler(number, frame): raise TimeoutError("from outside")
signal.signal(signal.SIGALRM, handler)
recorder = Recorder(backend="setprofile")
recorder.enable()
"""

IS_RECORDED = """
recorder.resume_functions()
leaf()
recorder.disable()
snapshot = take_snapshot(recorder)
print("leaf" in [key.name for key in snapshot.keys])
"""


def passed(code: str, end: str = "") -> str:
    return run_child(BEGIN + code + end).check().stdout


@pytest.mark.parametrize("when", ["before", "after"])
def test_p9_a_handlers_exception_does_not_end_the_recording_when_the_hook_is_set_again(
    when: str,
) -> None:
    out = passed(
        f"""
recorder.pause_functions(unhook=True)
real = threading.setprofile
def setprofile(hook):
    if {when == "after"}: real(hook)
    threading.setprofile = real
    signal.raise_signal(signal.SIGALRM)
threading.setprofile = setprofile
try:
    recorder.rehook()
    for _ in range(100): pass
except TimeoutError as error:
    print(error)
""",
        IS_RECORDED,
    )
    assert out == "from outside\nTrue\n"


def test_p9_the_hook_can_be_set_after_exceptions_at_each_attempt() -> None:
    out = passed(
        """
recorder.pause_functions(unhook=True)
real = threading.setprofile
def setprofile(hook):
    signal.raise_signal(signal.SIGALRM)
threading.setprofile = setprofile
try:
    try:
        recorder.rehook()
    except TimeoutError:  # the other one may come as early as here
        for _ in range(100): pass
except TimeoutError:
    print("twice")
threading.setprofile = real
recorder.rehook()
""",
        IS_RECORDED,
    )
    assert out == "twice\nTrue\n"


def test_p9_a_handlers_exception_passes_that_comes_while_another_error_is_judged() -> None:
    out = passed("""
armed = False
def hook(event, args):
    global armed
    if armed and event == "object.__getattr__" and args[1] == "tb_frame":
        armed = False
        signal.raise_signal(signal.SIGALRM)
sys.addaudithook(hook)
def getprofile():
    raise KeyError("fastprof's own")
threading.getprofile = getprofile
armed = True
try:
    recorder.disable()
    for _ in range(100): pass
except TimeoutError as error:
    print(error)
assert not armed
""")
    assert out == "from outside\n"
