"""Keeps the garbage collector away from what fastprof does between the program's steps.

A report or a table of operators is many objects and no cycle.  Made while the collector is
on, they would have it walk all that the program has, in the program's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run the block without a collection; the program's own setting is as before after it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
