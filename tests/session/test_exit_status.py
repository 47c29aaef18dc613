"""The argument of sys.exit is recorded, and the program notices nothing."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import pytest
from fastprof.session.patching import exit_status


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.setattr(exit_status, "_failed", False)
    monkeypatch.delattr(sys, "last_value", raising=False)
    exit_status.watch()


class Compares:
    """Like an array: comparing it, or testing its truth, raises."""

    def __ne__(self, other):
        raise RuntimeError("compared")

    __hash__ = None

    def __bool__(self):
        raise RuntimeError("asked")


@pytest.mark.parametrize(
    ("status", "failed"),
    [(None, False), (0, False), (False, False), (3, True), ("why", True), (Compares(), True)],
)
def test_the_program_ends_with_what_it_gave(watched, status, failed):
    with pytest.raises(SystemExit) as ended:
        sys.exit(status)
    assert ended.value.code is status
    assert exit_status.failed() is failed


def test_a_thread_that_ends_itself_does_not_end_the_program(watched):
    def end():
        with suppress(SystemExit):  # like the interpreter
            sys.exit(3)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert exit_status.failed() is False
