"""Converts the C recorder's export to a frozen :class:`~fastprof.snapshot.Snapshot`.

``Recorder.export()`` returns a dict of plain values:

=============  ==========================================================================
keys           [(kind, file, line, name, qualname)]
forms          [(key, form)]: of CALL_FORMS, where it is not the first
threads        [(ident, ended, (parent, key, calls, resumes, self_ns, phase, idle_ns))],
               oldest first; the one with ended=1 is the sum of threads that have ended
sections       [(key, thread, count, sum_ns, outer_ns, min_ns, max_ns, errors, open,
               [(low_ns, high_ns, count)], phase)]
phases         [(phase, ns, times it began)]; phases are indices of RUN_PHASES
plain_steps    the same, but ``apart``, ``skipped`` and ``unprofiled``, of the steps without the
               function hook; None if there are none
steps          None or a dict with the fields of ``snapshot.Steps``, ``thread``: the index of
               theirs (None: not exported), and ``spent``: the input of
               :mod:`fastprof.capture.split` (None: no memory)
counters       {name: count}
outliers       None or a dict with the fields of ``snapshot.outliers.OutlierSnapshot``
gpu            absent, None, or a dict with the fields of ``fastprof.snapshot.gpu.GpuSnapshot``
folded         number of contexts without a separate row because of ``fold_imports``
trace          None, or a dict: see ``capture.trace.trace_from_export``
=============  ==========================================================================
"""

import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, starmap
from typing import Any, TypeVar

from fastprof._core import Recorder
from fastprof.capture.calibrate import calibration
from fastprof.capture.split import late_gpu_wait, make_split
from fastprof.capture.trace import trace_from_export
from fastprof.errors import SnapshotError
from fastprof.guards import dropped
from fastprof.snapshot import (
    Histogram,
    Key,
    NodeTable,
    SectionStats,
    Snapshot,
    StepRow,
    Steps,
    ThreadTree,
)
from fastprof.snapshot.codec import read
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.snapshot.kinds import Known
from fastprof.snapshot.memory import MemorySnapshot
from fastprof.snapshot.outliers import OutlierSnapshot
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.snapshot.steps import PlainSteps, SplitPlace, StepSeries
from fastprof.snapshot.trace import TraceSnapshot

T = TypeVar("T")
MetaValue = str | int | float | bool | None


def take_snapshot(
    recorder: Recorder,
    *,
    meta: Mapping[str, MetaValue] | None = None,
    notes: Sequence[str] = (),
    fold_own: bool = False,
    memory: Mapping[str, Any] | None = None,
    trace_names: Mapping[int, str] | None = None,
    noted_names: Mapping[int, str] | None = None,
    fold_imports: Callable[[str, str], int] | None = None,
) -> Snapshot:
    """Return the data of ``recorder`` as a snapshot; it may continue to record.

    Args:
        meta: metadata to add to those found here (rank, start time ...).
        notes: sentences for the reader of the report.
        fold_own: show fastprof's own functions as one, ``(fastprof)``.
        memory: the fields of :class:`~fastprof.snapshot.memory.MemorySnapshot`, or None.
        trace_names: include the trace; names of threads that may have ended, by ident.
        noted_names: the same for the threads' trees.
        fold_imports: fold the calls of libraries in imports of set-up per module; classifies
            code by file and name, see ``Recorder.export``.
    """
    # First, because measuring uses the hook, which is impossible while this recorder is active.
    cost = None
    if recorder.backend is not None and not recorder.external_timer:
        cost = calibration(recorder.backend)
    data = recorder.export(trace=trace_names is not None, fold_imports=fold_imports)
    if fold_own:
        fold_own_functions(data)
    threads = _threads(data["threads"], noted_names or {})
    more_notes: list[str] = []
    steps = _steps(data["steps"])
    plain = None if data.get("plain_steps") is None else _steps(data["plain_steps"])
    known = Known(
        {"keys": len(data["keys"]), "threads": len(threads)},
        trees=[len(t.nodes) for t in threads],
        steps=range(steps.skipped, steps.count),
    )
    gpu = gpu_snapshot(data.get("gpu"), known)
    keys = _keys(data)
    outliers = _checked(OutlierSnapshot, data.get("outliers"), "outliers", known, more_notes)
    thread = (data["steps"] or {}).get("thread")
    if gpu is not None and thread is not None:
        spent = data["steps"]["spent"]
        places = (spent or {}).get("places", ())
        late_ns = late_gpu_wait(gpu, threads[thread].nodes, thread, keys, steps, places)
        if late_ns is not None:
            steps = _with_split(steps, spent, late_ns)
    return Snapshot(
        meta={**_meta(recorder, data), **(meta or {})},
        duration_ns=max(0, data["duration_ns"]),
        keys=keys,
        threads=threads,
        sections=tuple(_section(row) for row in data["sections"]),
        steps=steps,
        plain_steps=plain,
        calibration=cost,
        counters={name: n for name, n in data["counters"].items() if n},
        gpu=gpu,
        memory=_checked(MemorySnapshot, memory, "memory", known, more_notes),
        trace=_checked(TraceSnapshot, _trace(data, trace_names or {}), "trace", known, more_notes),
        outliers=outliers,
        notes=(*notes, *more_notes),
        phases=_phases(data.get("phases", ())),
    )


def gpu_snapshot(data: Mapping[str, Any] | None, known: Known) -> GpuSnapshot | None:
    """Freeze the collector's data; inconsistent data switches the GPU part off and raises nothing.

    It makes the checks of a saved run, so that every saved run can be read back.

    Args:
        data: the field ``gpu`` of an export.
        known: the sizes of its other tables.
    """
    try:
        return None if data is None else read(GpuSnapshot, data, "gpu", known)
    except SnapshotError as error:
        return GpuSnapshot("off", f"The data of the GPU collector is inconsistent: {error}.")


#: Part -> the beginning of the note if it is left out.
_PARTS = {
    "memory": "GPU memory was left out, because its figures are inconsistent",
    "trace": "The trace was left out, because it is inconsistent",
    "outliers": "The slowest steps were left out, because their figures are inconsistent",
}


def _checked(what: type[T], data: object, part: str, known: Known, notes: list[str]) -> T | None:
    try:
        return None if data is None else read(what, data, part, known)
    except SnapshotError as error:
        notes.append(f"{_PARTS[part]}: {error}.")
        return None


def _trace(data: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any] | None:
    if data.get("trace") is None:
        return None
    return trace_from_export(
        data["trace"], {**names, **thread_names()}, max(0, data["duration_ns"])
    )


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: The profiler's own work in a loop is the package without these: the demo's network is a
#: program like any other, and wrappers replace functions of other packages.
_NOT_OWN = (
    os.path.join(_PACKAGE, "cli") + os.sep,
    os.path.join(_PACKAGE, "session", "patching", "wrapping.py"),
)


#: Private base classes that define the methods of a public class, and that class.
_PUBLIC = {"torch._C.TensorBase.": "Tensor.", "torch._C._FunctionBase.": "Function."}
_PRIVATE = tuple(_PUBLIC)


def key_from(description: tuple[str, str, int, str, str], form: str = "short") -> Key:
    """Return the key that the recorder describes by ``(kind, file, line, name, qualname)``."""
    kind, file, line, name, qualname = description
    if qualname.startswith(_PRIVATE):
        for private, public in _PUBLIC.items():
            if qualname.startswith(private):
                qualname = public + qualname.removeprefix(private)
    return Key(kind, file, line, name, qualname, form)


def _keys(data: Mapping[str, Any]) -> tuple[Key, ...]:
    # There may be a million: no call of Python's for each but that of the class.
    described = data["keys"]
    keys = list(starmap(Key, described))
    odd = {i: "short" for i, one in enumerate(described) if one[4].startswith(_PRIVATE)}
    for i, form in (odd | dict(data.get("forms", ()))).items():
        keys[i] = key_from(described[i], form)
    return tuple(keys)


def fold_own_functions(data: dict[str, Any]) -> None:
    """Give fastprof's functions, and the C functions they call, one common key.

    The profiler's work in the loop (emitting metrics, handing out batches) is time of
    the loop and stays in the table, but not as twenty rows about the profiler.  Functions
    of the program that it calls (a logger, a dataset) keep their names.
    """
    keys = data["keys"]
    files = {
        file
        for file in {k[1] for k in keys}
        if file.startswith(_PACKAGE) and not file.startswith(_NOT_OWN)
    }
    own = {i for i, k in enumerate(keys) if k[1] in files and k[0] == "python"}
    if not own:
        return
    folded = len(keys)
    data["keys"] = [*keys, ("python", "~", 0, "(fastprof)", "(fastprof)")]
    for _ident, _ended, (parent, key, *_) in data["threads"]:
        # Parents come first, and most nodes are not below one of ours.
        ours = [key_ in own for key_ in key]
        for i, above in islice(enumerate(parent), 1, None):
            if ours[i] or (ours[above] and keys[key[i]][0] in ("c", "type")):
                ours[i] = True
                key[i] = folded
    if data.get("trace") is not None:
        keys, *rest = data["trace"]["events"]
        data["trace"]["events"] = ([folded if k in own else k for k in keys], *rest)


def _meta(recorder: Recorder, data: Mapping[str, Any]) -> dict[str, MetaValue]:
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": sys.platform,
        "machine": platform.machine(),
        "pid": os.getpid(),
        "backend": data["backend"],
        "clock": data["clock"],
        "timer": "external" if recorder.external_timer else "internal",
        "fell_back": data["fell_back"],
        **({"imports_folded": True} if data.get("folded") else {}),
        "new_threads_lost": data["new_threads_lost"],
        "ended_threads": data["ended_threads"],
        "sync": recorder.sync,
    }


def thread_names() -> dict[int, str]:
    """Return the names of Python's threads by their ident."""
    # Read the registry without threading's lock: a signal handler that interrupted a holder
    # of the lock may take a snapshot.
    names = {}
    for ident, thread in dict(getattr(threading, "_active", {})).items():
        with dropped():  # the property of a class of the program
            name = thread.name
            if isinstance(name, str):
                names[ident] = name
    return names


def _threads(rows: Sequence[Any], noted: Mapping[int, str]) -> tuple[ThreadTree, ...]:
    names = thread_names()
    trees = []
    for ident, ended, columns in rows:
        known = names.get(ident) or noted.get(ident) or f"thread {ident}"
        name = "(ended threads)" if ended else known
        trees.append(
            ThreadTree(
                ident=ident,
                name=name,
                ended=bool(ended) or ident not in names,
                nodes=NodeTable(*map(tuple, columns)),
            )
        )
    return tuple(trees)


def _phases(rows: Sequence[tuple[int, int, int]]) -> tuple[PhaseTime, ...]:
    """Return the phases; none for a run that never began one."""
    told = [row for row in rows if row[2]]
    if not told:
        return ()
    return tuple(PhaseTime(RUN_PHASES[p], ns, n) for p, ns, n in rows if ns or n)


def _histogram(rows: Sequence[Sequence[int]]) -> Histogram:
    return Histogram(tuple((low, high, count) for low, high, count in rows))


def _section(row: Sequence[Any]) -> SectionStats:
    key, thread, count, sum_ns, outer_ns, min_ns, max_ns, errors, open_, hist, phase = row
    return SectionStats(
        key, thread, count, sum_ns, outer_ns, min_ns, max_ns, errors, open_, _histogram(hist), phase
    )


def _steps(data: Mapping[str, Any] | None) -> Steps:
    if data is None:
        return Steps()
    fields = dict(data)
    hist = _histogram(fields.pop("hist"))
    rows = tuple(StepRow(*row) for row in fields.pop("rows"))
    recent = tuple(fields.pop("recent_ns"))
    series = fields.pop("series", None)
    spent = fields.pop("spent", None)
    blocks = fields.pop("unprofiled", ())
    keys = [key for key, _column in (series or {}).get("sections", ())]
    steps = Steps(
        **fields, recent_ns=recent, hist=hist, rows=rows, unprofiled=_plain_steps(blocks, keys)
    )
    if series is None:
        return steps
    n = steps.measured
    has_gc = spent is not None and n > 0 and spent["gc_steps"] == n
    steps = replace(
        steps,
        series=_series(series, has_gc=has_gc),
        gc_runs=tuple(spent["gc_runs"]) if spent is not None and has_gc else (),
    )
    return _with_split(steps, spent)


def _with_split(
    steps: Steps, spent: Mapping[str, Any] | None, gpu_wait_ns: int | None = None
) -> Steps:
    """Return the steps with their time by kind; the arguments are those of :func:`make_split`."""
    split = make_split(spent, steps.measured, steps.sum_ns, gpu_wait_ns)
    kinds = {name for name, _ns in split.rows}
    places = (spent or {}).get("places", ())
    return replace(
        steps,
        split=split.rows,
        split_missing=split.missing,
        split_places=tuple(SplitPlace(*place) for place in places if place[0] in kinds),
    )


def _plain_steps(blocks: Sequence[Any], keys: Sequence[int]) -> tuple[PlainSteps, ...]:
    """``blocks``: (first, steps without the hook, steps with it), as (wall_ns, wait_ns, sections).

    The wait for a CPU is that of other programs; where in the step it was is unknown.
    """
    rows = []
    for first, *sides in blocks:
        if not all(sides):
            continue  # the run ended within the block
        plain, hooked = ([_running(*step) for step in side] for side in sides)
        sections = tuple(
            (key, _median([step[1][i] for step in plain]), _median([step[1][i] for step in hooked]))
            for i, key in enumerate(keys[: len(plain[0][1])])
        )
        plain_ns, hooked_ns = (_median([step[0] for step in side]) for side in (plain, hooked))
        rows.append(PlainSteps(first, plain_ns, hooked_ns, sections))
    return tuple(rows)


def _running(wall_ns: int, wait_ns: int, sections: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Return the times of a step and of its sections without its wait for a CPU."""
    if not wait_ns:
        return wall_ns, sections
    running_ns = max(0, wall_ns - wait_ns)
    return running_ns, [ns * running_ns // max(1, wall_ns) for ns in sections]


def _median(values: list[int]) -> int:
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2


def _series(data: Mapping[str, Any], *, has_gc: bool) -> StepSeries:
    if not data:
        return StepSeries()
    fields: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in data.items()
    }
    fields["sections"] = tuple((key, tuple(column)) for key, column in data["sections"])
    if not has_gc:
        fields["gc_ns"] = ()
    return StepSeries(**fields)
