"""Tells exit handlers whether the program failed: the interpreter does not."""

import sys
from threading import main_thread

from fastprof._core import exit_failed, watch_exit


def watch() -> None:
    """Note from now on with which status the program ends."""
    watch_exit(main_thread().ident or 0)


def failed() -> bool:
    """Return whether the program ends by an exception, or with another status than 0."""
    return exit_failed() or hasattr(sys, "last_value")
