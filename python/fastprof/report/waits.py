"""Waits: functions without those of idle threads, and the wait for child processes.

An idle thread sits in one call: the thread that pins memory, those of executors and queues.  Their
waits cost the training nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastprof.report.functions import FunctionRows
from fastprof.report.model import Report
from fastprof.report.rows import OWN_COST, FunctionRow, ThreadTable
from fastprof.report.threads import training_thread
from fastprof.snapshot import Key

#: Functions in which such a thread waits.
_WAITS = frozenset((
    "_thread.lock.acquire", "_thread.RLock.acquire", "lock.acquire", "RLock.acquire",
    "_queue.SimpleQueue.get", "SimpleQueue.get", "select.poll.poll", "poll.poll",
    "select.epoll.poll", "epoll.poll", "select.select", "time.sleep",
))  # fmt: skip

#: Functions that wait for processes of :mod:`multiprocessing`, with the ends of their files' paths.
_FOR_CHILDREN = {
    "BaseProcess.join": "multiprocessing/process.py",
    "ProcessContext.join": "torch/multiprocessing/spawn.py",
}


@dataclass(frozen=True, slots=True)
class Functions:
    """The rows of the function table; ``hidden_ms`` is the time that other threads waited."""

    rows: Sequence[FunctionRow]
    hidden_ms: float


def without_waits(report: Report) -> Functions:
    """Return the functions of all threads, with waits of the training thread only."""
    training = training_thread(report.view) if len(report.threads) > 1 else -1
    if training < 0 or not any(map(is_wait, report.view.keys)):
        return Functions(report.functions, 0.0)
    idle: dict[tuple[str, str], list[FunctionRow]] = {}
    for i, thread in enumerate(report.threads):
        for row in thread.functions if i != training else ():
            if is_wait(row):
                idle.setdefault((row.qualname, row.name), []).append(row)
    if not idle:
        return Functions(report.functions, 0.0)
    rows = []
    for row in report.functions:
        waits = idle.get((row.qualname, row.name), []) if is_wait(row) else []
        if not waits:
            rows.append(row)
        elif sum(w.calls for w in waits) < row.calls:
            rows.append(_less(row, waits))
    whole = sum(row.self_ms for row in rows)
    rows = [replace(row, share=row.self_ms / whole if whole else None) for row in rows]
    hidden_ms = sum(w.self_ms for waits in idle.values() for w in waits)
    return Functions(tuple(sorted(rows, key=lambda row: -row.self_ms)), hidden_ms)


def wait_for_children(report: Report) -> FunctionRow | None:
    """Return the function in which the training thread waited longest for child processes.

    None if it waited in none.  Programs that :mod:`subprocess` starts are not meant.
    """
    if not any(key.qualname in _FOR_CHILDREN for key in report.view.keys):
        return None  # no need to make all rows
    thread = training_thread(report.view)
    rows = [
        row
        for row in (report.threads[thread].functions if thread >= 0 else ())
        if (file := _FOR_CHILDREN.get(row.qualname)) and row.file.replace("\\", "/").endswith(file)
    ]
    return max(rows, key=lambda row: row.cum_ms, default=None)


def busy_ms(thread: ThreadTable) -> float:
    """Return the time of a thread in the program's functions other than waits, in ms.

    In no function a thread may wait, in a call that began before the recording saw it.
    """
    rows = thread.functions
    if isinstance(rows, FunctionRows):
        return rows.self_ms(computes)
    return sum(row.self_ms for row in rows if computes(row))


def leading_threads(report: Report, least: float) -> list[int]:
    """Return the numbers of the threads whose functions matter most; one at least, if any.

    Steps belong to the training thread.  In a run without steps any thread may do the work: those
    that compute, most first.

    Args:
        least: leave out threads that compute less than this share of the first one's time.
    """
    training = training_thread(report.view)
    if report.steps.count or len(report.threads) < 2:
        return [training]
    busy = {i: ms for i, thread in enumerate(report.threads) if (ms := busy_ms(thread))}
    most = max(busy.values(), default=0.0)
    found = [i for i in busy if busy[i] >= least * most]
    return sorted(found, key=lambda i: (-busy[i], i)) or [training]


def is_wait(row: FunctionRow | Key) -> bool:
    """Return whether it is a function in which an idle thread waits."""
    return row.kind == "c" and row.qualname in _WAITS


def computes(row: FunctionRow | Key) -> bool:
    """Return whether it is a function of the program that is no wait."""
    return row.qualname != OWN_COST and not is_wait(row)


def _less(row: FunctionRow, waits: list[FunctionRow]) -> FunctionRow:
    return replace(
        row,
        calls=row.calls - sum(w.calls for w in waits),
        primitive_calls=row.primitive_calls - sum(w.primitive_calls for w in waits),
        self_ms=max(0.0, row.self_ms - sum(w.self_ms for w in waits)),
        cum_ms=max(0.0, row.cum_ms - sum(w.cum_ms for w in waits)),
        raw_self_ms=max(0.0, row.raw_self_ms - sum(w.raw_self_ms for w in waits)),
        raw_cum_ms=max(0.0, row.raw_cum_ms - sum(w.raw_cum_ms for w in waits)),
    )
