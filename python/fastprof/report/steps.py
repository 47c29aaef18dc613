"""The steps one by one, and the kinds of time in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import tee
from operator import add
from statistics import fmean
from typing import TypeVar

from fastprof.names import file_name
from fastprof.report.origin import is_own, is_users
from fastprof.report.phase_names import DATA
from fastprof.report.tree import upward
from fastprof.snapshot import NodeTable, Snapshot, Steps

#: Number of places kept of one kind of time.
PLACES = 10

#: The kind of time that fastprof costs.
OWN_KIND = "fastprof"

#: Kinds that contain the wait for a CPU after what they wait for has come.
_MAY_WAIT = ("lock", "io", "data")
#: A smaller part of the steps stays where it is.
_NOTABLE = 0.01

#: A place of the kind ``other``: torch's autograd engine, without the Python functions it calls.
IN_BACKWARD = "backward (at least)"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StepSeriesView:
    """The last measured steps (at most 4096), oldest first; columns of equal length.

    ``first`` is the 0-based index of the first one among all steps.  ``names`` maps each top-level
    section to its ms in each step (0 if it did not run).  ``start_ms`` counts from the start of the
    recording, ``cpu_ms`` is CPU time of the training thread, ``gc_ms`` garbage collection in it,
    ``switches`` counts involuntary context switches, ``faults`` major page faults, ``cpu_wait_ms``
    is time ready to run without a CPU.  An unknown column is empty.
    """

    first: int = 0
    start_ms: tuple[float, ...] = ()
    wall_ms: tuple[float, ...] = ()
    names: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cpu_ms: tuple[float, ...] = ()
    gc_ms: tuple[float, ...] = ()
    switches: tuple[int, ...] = ()
    faults: tuple[int, ...] = ()
    cpu_wait_ms: tuple[float, ...] = ()
    #: The 0-based index of each step; empty: consecutive from ``first`` on.
    number: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.wall_ms)

    @property
    def numbers(self) -> Sequence[int]:
        """The 0-based index of each step."""
        return self.number or range(self.first, self.first + len(self))

    def only(self, rows: Sequence[int]) -> "StepSeriesView":
        """Return the series of some of its rows."""

        def some(column: tuple[_T, ...]) -> tuple[_T, ...]:
            return tuple([column[i] for i in rows]) if column else ()

        numbers = self.numbers
        return StepSeriesView(
            self.first, some(self.start_ms), some(self.wall_ms),
            {name: some(column) for name, column in self.names.items()},
            some(self.cpu_ms), some(self.gc_ms), some(self.switches), some(self.faults),
            some(self.cpu_wait_ms), tuple([numbers[i] for i in rows]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One kind of time in the measured steps: one of ``fastprof.snapshot.steps.SPLIT_KINDS``, or
    :data:`OWN_KIND`.

    ``mean_ms`` is per measured step, ``share`` of the steps' wall time.  ``places`` are
    (function, line or section; ns), largest first.
    """

    name: str
    total_ns: int
    mean_ms: float
    share: float | None
    places: tuple[tuple[str, int], ...] = ()
    #: Its waits for a CPU count as these: sections and functions contain them.
    without_waits: bool = False

    @property
    def total_ms(self) -> float:
        """Time over all measured steps in ms."""
        return self.total_ns / 1e6


def sections_as_recorded(snapshot: Snapshot) -> dict[str, int]:
    """Return the ns of each top-level section in the measured steps, by name, hook included."""
    found: dict[str, int] = {}
    for row in snapshot.steps.rows:
        name = snapshot.keys[row.key].name
        found[name] = found.get(name, 0) + row.sum_ns
    return found


def section_series(snapshot: Snapshot) -> dict[str, Sequence[int]]:
    """Return the same per step of the series: sections with the same name are one."""
    found: dict[str, Sequence[int]] = {}
    for key, column in snapshot.steps.series.sections:
        known = found.setdefault(snapshot.keys[key].name, column)
        if known is not column:
            found[snapshot.keys[key].name] = [*map(add, known, column)]
    return found


def series_view(snapshot: Snapshot) -> StepSeriesView:
    """Return the snapshot's series with names, in ms."""
    series = snapshot.steps.series
    return StepSeriesView(
        first=series.first,
        number=series.number,
        start_ms=_ms(series.start_ns),
        wall_ms=_ms(series.wall_ns),
        names={name: _ms(column) for name, column in section_series(snapshot).items()},
        cpu_ms=_ms(series.cpu_ns),
        gc_ms=_ms(series.gc_ns),
        switches=series.switches,
        faults=series.faults,
        cpu_wait_ms=_ms(series.cpu_wait_ns),
    )


def _ms(column: Sequence[int]) -> tuple[float, ...]:
    return tuple(ns / 1e6 for ns in column)


def split_rows(
    snapshot: Snapshot, costs: Mapping[str, int], waits_ns: int = 0
) -> tuple[SplitRow, ...]:
    """Return the kinds of time in the measured steps, largest first.

    Args:
        costs: fastprof's cost in ns by section of the steps; it becomes a kind of time.
        waits_ns: the part of it that made waits for locks longer.
    """
    steps = snapshot.steps
    n = steps.measured
    if not n:
        return ()
    kinds, places = _with_whole_cpu_wait(steps), _places(snapshot)
    recorded = dict(steps.split)
    places["other"] = {IN_BACKWARD: _off_cpu_in_backward(snapshot)}
    rows = [
        SplitRow(
            name=name,
            total_ns=ns,
            mean_ms=ns / n / 1e6,
            share=ns / steps.sum_ns if steps.sum_ns else None,
            places=_largest(places.get(name, {}), ns),
            without_waits=name in _MAY_WAIT and kinds[name] < recorded[name],
        )
        for name, ns in _without(costs, dict(kinds), waits_ns).items()
    ]
    return tuple(sorted(rows, key=lambda r: -r.total_ns))


def _with_whole_cpu_wait(steps: Steps) -> dict[str, int]:
    """Return the kinds, with the whole wait for a CPU moved to its own kind.

    A sleep, a lock or a section of data also contains the wait after it has its result.  The system
    counts all of it: findings leave out the whole wait, and one report has one figure of it.
    """
    kinds, waited = dict(steps.split), steps.series.cpu_wait_ns
    if "cpu_wait" not in kinds or not waited:
        return kinds
    held = {name: kinds[name] for name in _MAY_WAIT if kinds.get(name)}
    rest = max(0, round(fmean(waited) * steps.measured) - kinds["cpu_wait"])
    if rest < _NOTABLE * steps.sum_ns:
        return kinds  # a section of data has one time in the split and its own row
    left = rest = min(rest, whole := sum(held.values()))
    for name, ns in held.items():
        moved = min(left, -(-rest * ns // whole))
        kinds[name] -= moved
        kinds["cpu_wait"] += moved
        left -= moved
    return kinds


def _without(costs: Mapping[str, int], kinds: dict[str, int], waits_ns: int) -> dict[str, int]:
    """Move fastprof's cost out of loading data, waiting for locks and computing."""
    in_data = sum(ns for name, ns in costs.items() if name in DATA)
    elsewhere = sum(costs.values()) - in_data
    waits_ns = min(waits_ns, elsewhere)
    moved = 0
    parts = (("data", in_data), ("lock", waits_ns), ("compute", elsewhere - waits_ns))
    for kind, ns in parts:
        taken = min(ns, kinds.get(kind, 0))
        if taken:
            kinds[kind] -= taken
            moved += taken
    return {**kinds, OWN_KIND: moved} if moved else kinds


def _largest(places: Mapping[str, int], total_ns: int) -> tuple[tuple[str, int], ...]:
    # Measured separately from the total, or over more than the steps: no part exceeds the total.
    whole = sum(places.values())
    if whole > total_ns:
        places = {text: ns * total_ns // whole for text, ns in places.items()}
    ranked = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    return tuple((text, ns) for text, ns in ranked if ns > 0)[:PLACES]


def _off_cpu_in_backward(snapshot: Snapshot) -> int:
    """Return the least time in ns that the thread was off the CPU in torch's autograd engine.

    The engine waits in C++ (for the other ranks' gradients, for its threads), where no function
    shows it.  If a step was off the CPU for longer than it was outside of the engine, the rest was
    inside.  Waits for a CPU are left out: all of them may have been there.  Automatic sections
    also read the CPU time around backward, which raises this bound.
    """
    steps = snapshot.steps
    series = steps.series
    columns = series.wall_ns, series.cpu_ns, series.autograd_ns
    if not all(columns):
        return 0
    inside = sum(
        max(0, min(wall, wall - cpu) - max(0, wall - engine))
        for wall, cpu, engine in zip(*columns, strict=True)
    )
    of_all = steps.sum_ns / max(1, sum(series.wall_ns))
    engine_ns = sum(series.autograd_ns) * of_all
    off_ns = max(inside * of_all, _off_cpu_as_read(snapshot, engine_ns))
    return max(0, round(off_ns) - _with_whole_cpu_wait(steps).get("cpu_wait", 0))


def _off_cpu_as_read(snapshot: Snapshot, engine_ns: float) -> float:
    """Return the same by readings of the CPU time around calls of backward; 0 without them.

    All Python functions in backward may have been off the CPU, too.
    """
    wall, cpu = (
        ns if isinstance(ns, int) and 0 < ns < 2**63 else 0
        for ns in (snapshot.meta.get(key) for key in ("backward_ns", "backward_cpu_ns"))
    )
    backward_ns = sections_as_recorded(snapshot).get("backward", 0)
    if not 0 < cpu <= wall or not backward_ns:
        return 0.0
    return backward_ns * (1 - cpu / wall) - max(0.0, backward_ns - engine_ns)


def _places(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for place in snapshot.steps.split_places:
        text = _text(snapshot, snapshot.threads[place.thread].nodes, place.node)
        of_kind = out.setdefault(place.kind, {})
        of_kind[text] = of_kind.get(text, 0) + place.ns
    # With external correlation waits have no lines; those from before it are a small part.
    gpu = snapshot.gpu
    lines = gpu.lines if gpu is not None and gpu.tier != "external" else ()
    for line in lines:
        text = f"{line.function} {file_name(line.file)}:{line.line}"
        of_kind = out.setdefault("gpu_wait", {})
        of_kind[text] = of_kind.get(text, 0) + line.blocked_ns
    return out


def _text(snapshot: Snapshot, nodes: NodeTable, node: int) -> str:
    """Return the name of ``node``, and the nearest function of the program above it.

    If no function of the program is above it, name the nearest one that is not fastprof's: its
    wrappers call functions of other packages.
    """
    own = snapshot.keys[nodes.key[node]]
    mine, path = tee(snapshot.keys[nodes.key[i]] for i in upward(nodes, node))
    others = (key for key in path if key.kind == "python" and not is_own(key))
    caller = next(filter(is_users, mine), None) or next(others, None)
    if own.kind == "section" or caller is None:
        return "(thread)" if own.kind == "root" else own.qualname or own.name
    where = f"{caller.qualname or caller.name} {file_name(caller.file)}:{caller.line}"
    return where if own is caller else f"{own.qualname or own.name} in {where}"
