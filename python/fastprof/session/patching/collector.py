"""Keeps the garbage collector out of fastprof's work.

A report or a table of operators is many objects without cycles.  With the collector on, creating
them would make it walk all of the program's objects, in the program's time, and in a command that
reads a large run all of the report's, again and again.
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
