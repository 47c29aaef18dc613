"""Notices moments at which the processor is disturbed, by the time that reading the clock takes.

A neighbour on the same core slows readings of the clock and hooked calls by about the same factor
(measured: 1.4 to 1.5), and other code hardly.  This module is imported when a profiler is created,
so it imports nothing else.
"""

from fastprof.clock import time

perf_counter_ns = time.perf_counter_ns

#: Readings that are timed together, and how often; a sample takes some 20 us.
_READS, _TIMES = 20, 20
#: A reading that takes longer than the shortest of the process by this factor is disturbed.
_DISTURBED = 1.2

_least = [float("inf")]


def sample() -> float:
    """Return the least time of some readings, in ns; remember it if none was shorter."""
    # No generator: 3.13.0 crashes if there is no memory for its frame.
    found = _timed()
    for _ in range(_TIMES - 1):
        found = min(found, _timed())
    found /= _READS
    _least[0] = min(_least[0], found)
    return found


def is_disturbed(read_ns: float) -> bool:
    """Return whether readings that took ``read_ns`` were slower than others in this process."""
    return read_ns > _DISTURBED * _least[0]


def _timed() -> float:
    began = perf_counter_ns()
    for _ in range(_READS):
        perf_counter_ns()
    return perf_counter_ns() - began
