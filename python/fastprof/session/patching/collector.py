"""Keeps the garbage collector out of fastprof's work between the program's steps.

A report or a table of operators is many objects without cycles.  With the collector on, creating
them would make it walk all of the program's objects, in the program's time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run the block without a collection; then restore the program's own setting."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
