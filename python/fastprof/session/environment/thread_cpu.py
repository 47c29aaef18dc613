"""CPU time of the threads that run Python."""

import sys
import threading
from collections.abc import Mapping

from fastprof.clock import time
from fastprof.guards import own_errors

#: With more threads a reading would cost too much.
_MOST_THREADS = 64


def thread_cpu() -> Mapping[int, int]:
    """Return the CPU time in ns of each thread of ``threading``, by its number in the system.

    The calling thread's number is 0.  Empty: unknown on this system, or too many threads.  It never
    releases the GIL, which the other threads would keep for some milliseconds.
    """
    if sys.platform != "linux":
        return {}
    # Without the lock of `threading`, which the program may hold.
    threads = list(getattr(threading, "_active", {}).values())
    if len(threads) > _MOST_THREADS:
        return {}
    own, found = threading.get_native_id(), {0: time.thread_time_ns()}
    for thread in threads:
        try:
            number = thread.native_id  # a class of the program may have its own
            if isinstance(number, int) and number not in (0, own):
                # Linux's name for a thread's clock.  Unlike pthread_getcpuclockid(), it is safe for
                # a thread that has ended.
                found[number] = time.clock_gettime_ns(~number << 3 | 6)
        except own_errors():
            continue
    return found


def cpu_between(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[int, int] | None:
    """Return the CPU time in ns of the calling thread, and of all others, between two readings.

    None: unknown.
    """
    if not before or not after:
        return None
    spent = {number: max(0, ns - before.get(number, 0)) for number, ns in after.items()}
    own = spent.pop(0)
    return own, sum(spent.values())
