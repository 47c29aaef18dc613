"""Exit handlers know the status with which the program ends, and it notices nothing."""

from __future__ import annotations

import pytest
from helpers import run_child

TOLD = """
import atexit, sys, threading
real = sys.exit
from fastprof.capture import exit_status
atexit.register(lambda: print(exit_status.failed(), sys.exit is real))
exit_status.watch()

class Compares:
    def __ne__(self, other):
        raise RuntimeError("compared")
    def __bool__(self):
        raise RuntimeError("asked")
    def __str__(self):
        return "why"

class Mine(SystemExit):
    def __init__(self, code):
        super().__init__(code)

def end(how, *arguments):
    # A frame between: as in most programs.
    how(*arguments)

def caught(status):
    try:
        end(sys.exit, status)
    except SystemExit as ended:
        return ended
"""


@pytest.mark.parametrize(
    ("end", "status", "failed"),
    [
        ("pass", 0, False),
        ("sys.exit()", 0, False),
        ("end(sys.exit, 0)", 0, False),
        ("raise SystemExit", 0, False),
        ("raise SystemExit(None)", 0, False),
        ("raise SystemExit(False)", 0, False),
        ("caught(3)", 0, False),
        ("kept = caught(3)", 0, False),
        ("caught(3); raise SystemExit(0)", 0, False),
        ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", 0, False),
        ("end(sys.exit, 3)", 3, True),
        ("raise SystemExit(3)", 3, True),
        ("raise SystemExit(True)", 1, True),
        ("raise SystemExit(Compares())", 1, True),
        ("raise SystemExit(2, 3)", 1, True),
        ("raise Mine(3)", 3, True),
        ("raise caught(3)", 3, True),
        ("1 / 0", 1, True),
    ],
)
def test_an_exit_handler_knows_whether_the_program_failed(end, status, failed):
    result = run_child(f"{TOLD}{end}\n")
    assert result.returncode == status
    assert result.stdout == f"{failed} True\n"


def test_no_collection_frees_an_exit_that_is_being_freed() -> None:
    """3.11 may collect where it makes the object of a frame, to which fastprof's question led."""
    code = """
import gc
gc.set_threshold(1)
def dropped():
    e = SystemExit(1)
    del e
for _ in range(20_000):
    dropped()
"""
    run_child(TOLD + code, env={"PYTHONMALLOC": "debug"}).check()
