"""Function rows: of a whole recording, of each thread, and of one section."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice
from operator import eq
from typing import Any, SupportsIndex, overload

from fastprof.report.correct import Correction, correct
from fastprof.report.flat import (
    TRANSPARENT,
    Flat,
    PairSums,
    Row,
    flatten,
    merged,
    node_groups,
    pair_sums_of,
)
from fastprof.report.gpu import GpuTables, use_of
from fastprof.report.gpu_tree import Use
from fastprof.report.rows import UNACCOUNTED, EdgeRow, FunctionRow, ThreadTable, key_of
from fastprof.report.threads import training_thread
from fastprof.report.tree import at_or_below, joined, top_sections
from fastprof.snapshot import Key, Snapshot

_FUNCTIONS = ("python", "c", "type")


def function_groups(snapshot: Snapshot) -> list[int]:
    """Return the row number of each key: the first key with the same text."""
    first: dict[Key, int] = {}
    return [
        first.setdefault(key, i) if key.kind in _FUNCTIONS else TRANSPARENT
        for i, key in enumerate(snapshot.keys)
    ]


def section_groups(snapshot: Snapshot, name: str) -> list[list[int]]:
    """Return the group of each node of each thread: functions in section ``name``, and the section.

    Nodes outside of the section are transparent.
    """
    groups = function_groups(snapshot)
    own = [key.kind == "section" and key.name == name for key in snapshot.keys]
    first = own.index(True) if True in own else TRANSPARENT
    out = []
    for tree in snapshot.threads:
        nodes = tree.nodes
        inside = at_or_below(nodes, own)
        # The section inside itself is transparent, as other sections are.
        out.append(
            [
                TRANSPARENT if not here else groups[key] if inside[above] else first
                for key, above, here in zip(nodes.key, nodes.parent, inside, strict=True)
            ]
        )
    return out


def functions_outside(snapshot: Snapshot, *, correct_times: bool) -> tuple[FunctionRow, ...]:
    """Return the functions that the training thread calls outside of sections."""
    if not snapshot.threads:
        return ()
    thread = training_thread(snapshot)
    column = correct(snapshot, enabled=correct_times).self_ns[thread]
    nodes, groups = snapshot.threads[thread].nodes, function_groups(snapshot)
    outside = [top < 0 for top in top_sections(nodes, snapshot.keys)]
    raw = tuple(ns * is_outside for ns, is_outside in zip(nodes.self_ns, outside, strict=True))
    own = [ns * is_outside for ns, is_outside in zip(column, outside, strict=True)]
    node_group = [
        groups[key] if is_outside else TRANSPARENT
        for key, is_outside in zip(nodes.key, outside, strict=True)
    ]
    return function_rows(snapshot, flatten(replace(nodes, self_ns=raw), node_group, own))


def split_by_section(snapshot: Snapshot, kind: str) -> dict[str, float]:
    """Return the ms per measured step of a kind of time, by outermost section, as far as known."""
    found: dict[str, float] = {}
    tops: dict[int, list[int]] = {}
    for place in snapshot.steps.split_places:
        if place.kind != kind or not snapshot.steps.measured:
            continue
        if place.thread not in tops:
            tops[place.thread] = top_sections(snapshot.threads[place.thread].nodes, snapshot.keys)
        key = tops[place.thread][place.node]
        name = snapshot.keys[key].name if key >= 0 else UNACCOUNTED
        found[name] = found.get(name, 0.0) + place.ns / snapshot.steps.measured / 1e6
    return found


def section_table(snapshot: Snapshot, columns: Sequence[Sequence[int]], name: str) -> Flat:
    """Return the functions inside the section ``name``, and a row for the section itself."""
    total = Flat()
    for tree, node_group, column in zip(
        snapshot.threads, section_groups(snapshot, name), columns, strict=True
    ):
        total.add(flatten(tree.nodes, node_group, column))
    return total


_Links = dict[int, list[tuple[int, Row]]]


class FunctionRows(Sequence[FunctionRow]):
    """The rows of a table, most self time first.

    A row is made when it is read: most outputs show a few of some 100,000.
    """

    __slots__ = (
        "_all_self", "_flat", "_gpu", "_keep", "_kept", "_keys", "_linked", "_make", "_sorted",
        "_sums",
    )  # fmt: skip

    def __init__(
        self,
        keys: Sequence[Key],
        make: Callable[[], Flat],
        gpu: Mapping[int, Use] | None = None,
        sums: Callable[[], PairSums] | None = None,
    ) -> None:
        """Prepare the rows of the table that ``make`` returns.

        Args:
            gpu: the GPU work per group.
            sums: returns the table's columns; given if a pass over all rows shall leave nothing in
                memory, and the next one make them anew.
        """
        self._keep = sums is None
        self._sums = sums
        self._keys = keys
        self._make = make
        self._gpu = gpu
        self._all_self = 0
        self._flat: Flat | None = None
        self._sorted: list[int] | None = None
        self._linked: tuple[_Links, _Links] | None = None
        self._kept: tuple[FunctionRow, ...] | None = None

    def table(self) -> Flat:
        """Return the sums per function and per pair of functions."""
        if not self._keep:
            return self._make()
        if self._flat is None:
            self._flat = self._make()
        return self._flat

    def _order(self) -> list[int]:
        """Return the functions by self time, equal ones by number."""
        if self._sorted is None:
            rows = self.table().rows
            # Two sorts whose keys exist need less time and memory than one by new tuples.
            order = sorted(group for group, row in rows.items() if not _is_empty(row))
            order.sort(key=lambda group: rows[group].self_ns, reverse=True)
            self._sorted = order
            self._all_self = sum([row.self_ns for row in rows.values()])
        return self._sorted

    def __len__(self) -> int:
        if self._sorted is None and not self._keep:
            return sum([not _is_empty(row) for row in self.table().rows.values()])
        return len(self._order())

    def self_ms(self, counted: Callable[[Key], bool] = lambda key: True) -> float:
        """Return the self time of all rows, or of some functions', without making the rows."""
        keys, sums = self._keys, dict[int, int]()
        self.add_self_times(sums)
        return sum([ns for group, ns in sums.items() if counted(keys[group])]) / 1e6

    def add_self_times(self, sums: dict[int, int]) -> Sequence[Key]:
        """Add the self times in ns per function to ``sums``; return the functions."""
        if self._sums is None:
            for group, row in self.table().rows.items():
                if not _is_empty(row):
                    sums[group] = sums.get(group, 0) + row.self_ns
        else:
            s = self._sums()
            columns = zip(s.callee, s.self_ns, s.calls, s.resumes, s.raw_ns, strict=True)
            for group, ns, calls, resumes, raw_ns in islice(columns, 1, None):
                if calls or resumes or raw_ns:
                    sums[group] = sums.get(group, 0) + ns
        return self._keys

    def first_keys(self, most: int) -> list[Key]:
        """Return the functions of the first rows, at most ``most``, without making the rows."""
        return [self._keys[group] for group in self._order()[:most]]

    @overload
    def __getitem__(self, index: SupportsIndex) -> FunctionRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FunctionRow, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        if not self._keep:
            return FunctionRows(self._keys, self._make, self._gpu)[index]
        if self._kept is not None:
            return self._kept[index]
        order, rows = self._order(), self.table().rows
        if isinstance(index, slice):
            chosen = order[index]
            linked = self._linked or _links(self.table(), set(chosen))
            return tuple([self._row(group, rows[group], linked) for group in chosen])
        group = order[index]
        return self._row(group, rows[group], self._all_links())

    def __iter__(self) -> Iterator[FunctionRow]:
        if not self._keep:
            return iter(FunctionRows(self._keys, self._make, self._gpu))
        if self._kept is None:
            linked, rows = self._all_links(), self.table().rows
            made = (self._row(group, rows[group], linked) for group in self._order())
            if len(self) > _KEPT:
                return made
            self._kept = tuple(made)
        return iter(self._kept)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (FunctionRows, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _all_links(self) -> tuple[_Links, _Links]:
        if self._linked is None:
            self._linked = _links(self.table())
        return self._linked

    def _row(self, group: int, row: Row, linked: tuple[_Links, _Links]) -> FunctionRow:
        callers, callees = linked
        all_self = self._all_self
        key = self._keys[group]
        # By position, as in _edge.
        return FunctionRow(
            key.qualname,
            key.name,
            key.file,
            key.line,
            key.kind,
            row.calls,
            row.primitive_calls,
            row.resumes,
            row.self_ns / 1e6,
            row.cum_ns / 1e6,
            row.raw_self_ns / 1e6,
            row.raw_cum_ns / 1e6,
            row.self_ns / all_self if all_self else None,
            self._edges(callers.get(group, ())),
            self._edges(callees.get(group, ())),
            None if self._gpu is None else use_of(self._gpu, group),
        )

    def _edges(self, edges: Sequence[tuple[int, Row]]) -> tuple[EdgeRow, ...]:
        if not edges:
            return ()
        return _by_time([_edge(self._keys[other], edge) for other, edge in edges])


def self_times(tables: Iterable[Sequence[FunctionRow]]) -> list[tuple[Key, float]]:
    """Return the functions of some threads with their self times in ms, without making the rows."""
    found: list[tuple[Key, float]] = []
    sums: dict[int, int] = {}
    keys: Sequence[Key] = ()
    for rows in tables:
        if isinstance(rows, FunctionRows):
            keys = rows.add_self_times(sums)
        else:
            found += [(key_of(row), row.self_ms) for row in rows]
    return found + [(keys[group], ns / 1e6) for group, ns in sums.items()]


def function_keys(rows: Sequence[FunctionRow], most: int) -> list[Key]:
    """Return the functions of the first rows of a table, at most ``most``."""
    return rows.first_keys(most) if isinstance(rows, FunctionRows) else [*map(key_of, rows[:most])]


#: Up to this many rows are kept once all of them were made.
_KEPT = 20_000

#: The tables of more threads need too much memory to keep all of them.
_FEW_THREADS = 50


def _links(table: Flat, of: Collection[int] | None = None) -> tuple[_Links, _Links]:
    """Return per function its callers and its callees, with the calls from and to them.

    Args:
        of: the functions; None: all.
    """
    callers: _Links = {}
    callees: _Links = {}
    for (caller, callee), edge in table.edges.items():
        if not _is_empty(edge):
            if of is None or callee in of:
                callers.setdefault(callee, []).append((caller, edge))
            if of is None or caller in of:
                callees.setdefault(caller, []).append((callee, edge))
    return callers, callees


def function_rows(
    snapshot: Snapshot, table: Flat, gpu: Mapping[int, Use] | None = None
) -> tuple[FunctionRow, ...]:
    """Return the rows of a table, most self time first; ``gpu`` is the GPU work per group."""
    return tuple(FunctionRows(snapshot.keys, lambda: table, gpu))


def _is_empty(row: Row) -> bool:
    """Return whether the row has data of other phases only."""
    return not (row.calls or row.resumes or row.raw_cum_ns)


def _edge(key: Key, edge: Row) -> EdgeRow:
    # By position: there are two rows per edge, and keyword arguments take a third longer.
    return EdgeRow(
        key.qualname,
        key.file,
        key.line,
        edge.calls,
        edge.primitive_calls,
        edge.resumes,
        edge.self_ns / 1e6,
        edge.cum_ns / 1e6,
    )


def _by_time(edges: Sequence[EdgeRow]) -> tuple[EdgeRow, ...]:
    if len(edges) < 2:
        return tuple(edges)
    return tuple(sorted(edges, key=lambda e: (-e.cum_ms, e.file, e.line, e.qualname)))


def functions(
    snapshot: Snapshot, correction: Correction, gpu: GpuTables
) -> tuple[tuple[ThreadTable, ...], FunctionRows]:
    """Return the functions of each thread, and of all threads together."""
    trees, columns = snapshot.threads, correction.self_ns

    @cache
    def groups() -> list[list[int]]:
        numbers = function_groups(snapshot)
        return [node_groups(tree.nodes, numbers) for tree in trees]

    def table(i: int) -> Flat:
        return flatten(trees[i].nodes, groups()[i], columns[i])

    def sums(i: int) -> PairSums:
        return pair_sums_of(trees[i].nodes, groups()[i], columns[i])

    def whole_table() -> Flat:
        if keep:
            return merged(rows.table() for rows in tables)
        of_all, own_ns = chain.from_iterable(groups()), chain.from_iterable(columns)
        return flatten(joined(trees), list(of_all), list(own_ns))

    uses = _uses_by_thread(snapshot, groups(), gpu) if gpu.known else [None] * len(trees)
    keep = len(trees) <= _FEW_THREADS
    tables = [
        FunctionRows(snapshot.keys, partial(table, i), uses[i], None if keep else partial(sums, i))
        for i in range(len(trees))
    ]
    threads = [
        ThreadTable(
            ident=tree.ident,
            name=tree.name,
            ended=tree.ended,
            total_ms=sum(columns[i]) / 1e6,
            raw_total_ms=sum(tree.nodes.self_ns) / 1e6,
            functions=tables[i],
        )
        for i, tree in enumerate(trees)
    ]
    if len(tables) == 1:
        return tuple(threads), tables[0]
    whole = FunctionRows(
        snapshot.keys,
        whole_table,
        gpu.by_group(groups()) if gpu.known else None,
    )
    return tuple(threads), whole


def _uses_by_thread(
    snapshot: Snapshot, groups: Sequence[Sequence[int]], gpu: GpuTables
) -> list[Mapping[int, Use] | None]:
    n = len(snapshot.keys)
    # The same function in another thread is another group here.
    apart = [[g if g < 0 else g + i * n for g in of_thread] for i, of_thread in enumerate(groups)]
    found = gpu.by_group(apart) or {}
    uses: list[dict[int, Use]] = [{} for _ in groups]
    for group, use in found.items():
        if group >= 0:  # not work outside of functions
            uses[group // n][group % n] = use
    return [*uses]


def worker_tables(snapshot: Snapshot, *, enabled: bool) -> tuple[ThreadTable, ...]:
    """Return one table per loader: the functions in its worker processes."""
    if not snapshot.worker_threads:
        return ()
    apart = replace(snapshot, threads=snapshot.worker_threads, sections=(), gpu=None)
    return functions(apart, correct(apart, enabled=enabled), GpuTables(apart))[0]


def functions_of(snapshot: Snapshot, *, correct_times: bool) -> FunctionRows:
    """Return the functions of all threads of a snapshot, most self time first."""
    return functions(snapshot, correct(snapshot, enabled=correct_times), GpuTables(snapshot))[1]


def functions_in(
    snapshot: Snapshot, section: str, *, correct_times: bool
) -> tuple[FunctionRow, ...]:
    """Return the functions inside the section recorded as ``section``."""
    columns = correct(snapshot, enabled=correct_times).self_ns
    table = section_table(snapshot, columns, section)
    # Work that another thread did for this section counts to the thread that waited for it.
    gpu = GpuTables(snapshot).by_group(section_groups(snapshot, section), own_path=False)
    return function_rows(snapshot, table, gpu)
