"""The steps' part of a snapshot beyond their sums: one row per step, and where time went.

Times are integer nanoseconds.  A column that is empty is not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import as_column, as_dict, as_int, as_ints, as_list, as_str, fail

#: What a step's time can be.  Each nanosecond is of one kind only:
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

#: Rows of a series.
MAX_SERIES = 4096
_MAX_SECTIONS = 64
_MAX_PLACES = 8192


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The last measured steps (at most 4096), oldest first, as columns.

    ``first`` is the 0-based index of the first one among all steps of the run.
    ``start_ns`` is since the recording began.  ``sections`` holds, per top-level section,
    its key and its time in each step (0 where it did not run); ``sections_left_out`` says
    how many sections had no room for a column.  ``cpu_ns`` is CPU time of the training
    thread, ``gc_ns`` garbage collection in it, ``switches`` how often it was taken off the
    CPU against its will, ``faults`` how many pages it had to wait for the disk for,
    ``cpu_wait_ns`` how long it was ready to run and had no CPU; these three are asked for
    after steps with some time off the CPU, and have what little there was before.
    """

    first: int = 0
    start_ns: tuple[int, ...] = ()
    wall_ns: tuple[int, ...] = ()
    sections: tuple[tuple[int, tuple[int, ...]], ...] = ()
    cpu_ns: tuple[int, ...] = ()
    gc_ns: tuple[int, ...] = ()
    switches: tuple[int, ...] = ()
    faults: tuple[int, ...] = ()
    cpu_wait_ns: tuple[int, ...] = ()
    sections_left_out: int = 0
    #: The 0-based index of each step; empty: they follow each other from ``first`` on.
    number: tuple[int, ...] = ()
    #: Time of the kind ``communication``, and torch's autograd engine without the Python
    #: functions that it called; known where functions were recorded.
    communication_ns: tuple[int, ...] = ()
    autograd_ns: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.wall_ns)

    def row_of(self, index: int) -> int:
        """Return the row of step ``index`` of the run, or -1."""
        if not self.number:
            row = index - self.first
            return row if 0 <= row < len(self) else -1
        row = bisect_left(self.number, index)
        return row if row < len(self) and self.number[row] == index else -1

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers: what ``json.dumps`` accepts."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in _COLUMNS:
            out[name] = list(out[name])
        out["sections"] = [[key, list(column)] for key, column in self.sections]
        return out


_COLUMNS = (
    "number", "start_ns", "wall_ns", "cpu_ns", "gc_ns", "switches", "faults", "cpu_wait_ns",
    "communication_ns", "autograd_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainSteps:
    """Neighbouring steps without and with the function hook, in the middle of a run.

    ``first`` is the 0-based index of the first step without it.  ``plain_ns`` and
    ``hooked_ns`` are the medians of their wall times, ``sections`` those of the top-level
    sections in them: (key, without, with).
    """

    first: int
    plain_ns: int
    hooked_ns: int
    sections: tuple[tuple[int, int, int], ...] = ()

    def to_list(self) -> list[Any]:
        """Return plain lists and numbers: what ``json.dumps`` accepts."""
        return [self.first, self.plain_ns, self.hooked_ns, [list(s) for s in self.sections]]


def read_plain_steps(value: object, n_keys: int) -> tuple[PlainSteps, ...]:
    """Validate the field ``steps.unprofiled``; None is a run saved before there was one.

    Raises:
        SnapshotError: something else than rows ``[first, plain_ns, hooked_ns, sections]``.
    """
    where = "steps.unprofiled"
    rows = []
    for i, item in enumerate(as_list([] if value is None else value, where)):
        row = as_list(item, f"{where}[{i}]")
        if len(row) != 4:
            raise fail(f"{where}[{i}]", item, "[first, plain_ns, hooked_ns, sections]")
        first, plain_ns, hooked_ns = as_ints(row[:3], f"{where}[{i}]", 3)
        sections = []
        for item in as_list(row[3], f"{where}[{i}].sections"):
            key, plain, hooked = as_ints(item, f"{where}[{i}].sections", 3, first_below=n_keys)
            sections.append((key, plain, hooked))
        rows.append(PlainSteps(first, plain_ns, hooked_ns, tuple(sections)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class SplitPlace:
    """Where ``ns`` of a kind were spent in the measured steps.

    ``thread`` is an index into ``Snapshot.threads``, ``node`` a row of its tree: a
    function that waits, a section, or what the garbage collector interrupted.
    """

    kind: str
    thread: int
    node: int
    ns: int


@dataclass(frozen=True, slots=True)
class StepSplit:
    """Fields of :class:`~fastprof.snapshot.Steps` that are read together."""

    series: StepSeries
    split: tuple[tuple[str, int], ...]
    split_missing: tuple[str, ...]
    split_places: tuple[SplitPlace, ...]
    gc_runs: tuple[int, ...]


def read_series(value: object, n_keys: int) -> StepSeries:
    """Validate the field ``steps.series``; None is a run saved before there was one.

    Raises:
        SnapshotError: columns of different lengths, or a value that cannot be.
    """
    if value is None:
        return StepSeries()
    where = "steps.series"
    s = as_dict(value, where)
    n = len(as_list(s.get("wall_ns"), f"{where}.wall_ns"))
    if n > MAX_SERIES:
        raise fail(f"{where}.wall_ns", n, f"at most {MAX_SERIES} rows")
    columns = {
        # What is not known is empty.
        name: as_column(s, name, where, n) if s.get(name) or name == "start_ns" else ()
        for name in _COLUMNS
    }
    return StepSeries(
        first=as_int(s.get("first"), f"{where}.first"),
        sections=_sections(s.get("sections"), n, n_keys),
        sections_left_out=as_int(s.get("sections_left_out", 0), f"{where}.sections_left_out"),
        **columns,
    )


def _sections(value: object, n: int, n_keys: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    where = "steps.series.sections"
    items = as_list(value, where)
    if len(items) > _MAX_SECTIONS:
        raise fail(where, len(items), f"at most {_MAX_SECTIONS} columns")
    out = []
    for i, item in enumerate(items):
        pair = as_list(item, f"{where}[{i}]")
        if len(pair) != 2:
            raise fail(f"{where}[{i}]", item, "[key, column]")
        key = as_int(pair[0], f"{where}[{i}]", 0, n_keys - 1)
        out.append((key, as_column({"ns": pair[1]}, "ns", f"{where}[{i}]", n)))
    return tuple(out)


def read_split(
    data: dict[Any, Any], n_keys: int, sum_ns: int, tree_sizes: Sequence[int]
) -> StepSplit:
    """Validate what a saved run's ``steps`` say about single steps and kinds of time.

    Args:
        data: the field ``steps``; runs saved before there was this lack all of it.
        n_keys: number of keys.
        sum_ns: the field ``sum_ns``; a split adds up to it.
        tree_sizes: number of nodes per thread.

    Raises:
        SnapshotError: something is of the wrong type, out of range or does not add up.
    """
    return StepSplit(
        series=read_series(data.get("series"), n_keys),
        split=_split(data.get("split", []), sum_ns),
        split_missing=tuple(
            as_str(v, "steps.split_missing")
            for v in as_list(data.get("split_missing", []), "steps.split_missing")
        ),
        split_places=_places(data.get("split_places", []), tree_sizes),
        gc_runs=_gc_runs(data.get("gc_runs", [])),
    )


def _split(value: object, sum_ns: int) -> tuple[tuple[str, int], ...]:
    rows: dict[str, int] = {}
    for i, item in enumerate(as_list(value, "steps.split")):
        pair = as_list(item, f"steps.split[{i}]")
        if len(pair) != 2 or pair[0] not in SPLIT_KINDS or pair[0] in rows:
            raise fail(f"steps.split[{i}]", item, f"[kind, ns], each kind once of {SPLIT_KINDS}")
        rows[pair[0]] = as_int(pair[1], f"steps.split[{i}]")
    if rows and sum(rows.values()) != sum_ns:
        raise fail("steps.split", sum(rows.values()), f"rows that add up to sum_ns ({sum_ns})")
    return tuple(rows.items())


def _places(value: object, tree_sizes: Sequence[int]) -> tuple[SplitPlace, ...]:
    items = as_list(value, "steps.split_places")
    if len(items) > _MAX_PLACES:
        raise fail("steps.split_places", len(items), f"at most {_MAX_PLACES} rows")
    out = []
    for i, item in enumerate(items):
        where = f"steps.split_places[{i}]"
        row = as_list(item, where)
        if len(row) != 4 or row[0] not in SPLIT_KINDS:
            raise fail(where, item, f"[kind, thread, node, ns], kind of {SPLIT_KINDS}")
        thread = as_int(row[1], where, 0, len(tree_sizes) - 1)
        node = as_int(row[2], where, 0, tree_sizes[thread] - 1)
        out.append(SplitPlace(row[0], thread, node, as_int(row[3], where)))
    return tuple(out)


def _gc_runs(value: object) -> tuple[int, ...]:
    items = as_list(value, "steps.gc_runs")
    return tuple(as_ints(items, "steps.gc_runs", 3)) if items else ()
