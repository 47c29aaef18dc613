"""The steps' part of a snapshot beyond their sums: one row per step, and the kinds of time.

Times are integer nanoseconds.  An empty column is unknown.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, KeyIndex, MaybeEmpty, Row, Table, ThreadIndex
from fastprof.snapshot.kinds import AtMost, Choice, Known, WrongError

#: Kinds of a step's time.  Each nanosecond belongs to one kind only:
#:
#: * ``gc``: the garbage collector ran in the training thread;
#: * ``data``: a section named data or data_loading was open;
#: * ``communication``: a section named synchronization was open, or the thread was in a
#:   function of torch.distributed that waits for other processes;
#: * ``gpu_wait``: a call waited for the GPU;
#: * ``lock``: a function that waits for another thread (acquire, get, join);
#: * ``io``: a function that sleeps, polls, reads or writes;
#: * ``cpu_wait``: off the CPU though ready to run: others had all CPUs, or the container had
#:   used up its share;
#: * ``other``: off the CPU for none of these reasons (the GIL, ``with lock:``);
#: * ``compute``: everything else.
SPLIT_KINDS = (
    "compute", "gpu_wait", "data", "gc", "lock", "communication", "io", "cpu_wait", "other",
)  # fmt: skip

SplitKind = Annotated[str, Choice(*SPLIT_KINDS)]

#: Rows of a series, and its columns of sections.
MAX_SERIES = 4096
_MAX_SECTIONS = 64
#: Rows of ``Steps.split_places``.
MAX_PLACES = 8192

#: A column that is empty if the value is unknown.
_Column = MaybeEmpty[tuple[Count, ...]]


@dataclass(frozen=True, slots=True)
class StepSeries(Table):
    """The last measured steps (at most 4096), oldest first, as columns.

    ``first`` is the 0-based index of the first one among all steps of the run.  ``start_ns`` counts
    from the start of the recording.  ``sections`` holds, per top-level section, its key and its
    time in each step (0 if it did not run); ``sections_left_out`` is the number of sections without
    a column.  ``cpu_ns`` is CPU time of the training thread, ``gc_ns`` garbage collection in it,
    ``switches`` the number of its involuntary context switches, ``faults`` its page faults that
    waited for the disk, ``cpu_wait_ns`` its time ready to run without a CPU; these three are read
    only after steps with some time off the CPU, and then include the little from steps before.
    """

    first: Count = 0
    start_ns: tuple[Count, ...] = ()
    wall_ns: Annotated[tuple[Count, ...], AtMost(MAX_SERIES)] = ()
    sections: Annotated[
        tuple[tuple[KeyIndex, tuple[Count, ...]], ...], AtMost(_MAX_SECTIONS, "columns")
    ] = ()
    cpu_ns: _Column = ()
    gc_ns: _Column = ()
    switches: _Column = ()
    faults: _Column = ()
    cpu_wait_ns: _Column = ()
    sections_left_out: Count = 0
    #: The 0-based index of each step; empty: consecutive from ``first`` on.
    number: _Column = ()
    #: Time of the kind ``communication``, and of torch's autograd engine without the Python
    #: functions that it called; known if functions were recorded.
    communication_ns: _Column = ()
    autograd_ns: _Column = ()

    def __len__(self) -> int:
        return len(self.wall_ns)

    def numbers(self) -> Sequence[int]:
        """Return the 0-based index of each step in the run."""
        return self.number or range(self.first, self.first + len(self))

    def row_of(self, index: int) -> int:
        """Return the row of step ``index`` of the run, or -1."""
        if not self.number:
            row = index - self.first
            return row if 0 <= row < len(self) else -1
        row = bisect_left(self.number, index)
        return row if row < len(self) and self.number[row] == index else -1

    def check(self, known: Known) -> None:
        Table.check(self, known)
        for i, (_, column) in enumerate(self.sections):
            if len(column) != len(self):
                raise WrongError(len(column), f"{len(self)} rows", f".sections[{i}]")


@dataclass(frozen=True, slots=True)
class PlainSteps(Row):
    """Neighbouring steps without and with the function hook, in the middle of a run.

    ``first`` is the 0-based index of the first step without it.  ``plain_ns`` and ``hooked_ns`` are
    the medians of their times, ``sections`` those of the top-level sections in them: (key, without,
    with).  The times do not contain waiting for a CPU, as far as that was recorded.
    """

    first: Count
    plain_ns: Count
    hooked_ns: Count
    sections: tuple[tuple[KeyIndex, Count, Count], ...] = ()


@dataclass(frozen=True, slots=True)
class PlainCpu(Row):
    """CPU time in ns per step, without the function hook and with it, where :class:`PlainSteps`
    with the same ``first`` is: of the training thread, and of all other threads of Python.
    """

    first: Count
    plain_ns: Count
    hooked_ns: Count
    plain_others_ns: Count
    hooked_others_ns: Count


@dataclass(frozen=True, slots=True)
class SplitPlace(Row):
    """A place with ``ns`` of a kind of time in the measured steps.

    ``thread`` is an index into ``Snapshot.threads``, ``node`` a row of its tree: a function that
    waits, a section, or the code that the garbage collector interrupted.
    """

    kind: SplitKind
    thread: ThreadIndex
    node: Count
    ns: Count

    def check(self, known: Known) -> None:
        if not known.has_node(self.thread, self.node):
            raise WrongError(self.node, "a node of the thread", ".node")
