"""From sites to the rows of a table: the GPU work that each section or function launched.

An activity counts once to every group on the path of its site, even if the group occurs on it
repeatedly, and as "own" to the innermost one.  Inherited work has two paths, one after the other:
the path of the thread whose work it is, then the launching thread's own stack (a function that
autograd called).  Work of unknown threads, or without a known launch, has no path.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from fastprof.report.flat import TRANSPARENT
from fastprof.report.model_gpu import GpuUse
from fastprof.report.tree import child_links
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import (
    COPY_D2D,
    COPY_D2H,
    COPY_H2D,
    COPY_P2P,
    HOW_CAPTURED,
    HOW_INHERITED,
    HOW_OTHER,
    MEMSET,
    OTHER_KERNELS,
    GpuActivity,
    GpuHost,
    GpuSnapshot,
)

#: (thread, node)
Site = tuple[int, int]

#: The group of every node: per thread, per node.
Groups = Sequence[Sequence[int]]

#: Levels of the launching thread's own stack to look at, from the innermost.  The real stack is
#: short: the functions that autograd calls.  A damaged file must not make the work grow with rows
#: times depth.
_MAX_OWN = 64


class Sums(Counter[str]):
    """Amounts that add up, by the names of :class:`GpuUse`."""

    def add_activity(self, row: GpuActivity) -> None:
        """Add activities."""
        self["gpu_ns"] += row.sum_ns
        if row.how == HOW_INHERITED:
            self["inherited_ns"] += row.sum_ns
        elif row.how == HOW_CAPTURED:
            self["replayed_ns"] += row.sum_ns
        if row.what >= 0 or row.what == OTHER_KERNELS:
            self["kernels"] += row.count
            self["kernel_ns"] += row.sum_ns
        elif row.what == MEMSET:
            self["memset_ns"] += row.sum_ns
            self["memset_bytes"] += row.bytes
        else:
            self["copies"] += row.count
            self["copy_ns"] += row.sum_ns
            self[_BYTES.get(row.what, "other_bytes")] += row.bytes
            if row.what in (COPY_H2D, COPY_D2H):
                self["transfer_ns"] += row.sum_ns

    def add_host(self, row: GpuHost) -> None:
        for name in ("launches", "delays", "delay_ns", "syncs", "blocked_ns"):
            self[name] += getattr(row, name)


#: The other two fields are amounts of a row's own.
_NAMES = tuple(f.name for f in fields(GpuUse) if not f.name.startswith("self_"))

_BYTES = {
    COPY_H2D: "h2d_bytes",
    COPY_D2H: "d2h_bytes",
    COPY_D2D: "d2d_bytes",
    COPY_P2P: "p2p_bytes",
}


@dataclass(slots=True)
class Use:
    """One row's work: its own launches, and those including its callees."""

    own: Sums = field(default_factory=Sums)
    below: Sums = field(default_factory=Sums)

    def freeze(self) -> GpuUse:
        """Return an immutable copy."""
        amounts = {name: self.below[name] for name in _NAMES}
        return GpuUse(self_ns=self.own["gpu_ns"], self_kernels=self.own["kernels"], **amounts)


def where(row: GpuActivity | GpuHost) -> tuple[Site | None, Site | None]:
    """Return the site to which a row counts and, for inherited work, the launching thread's own.

    None, None for work that belongs to no known thread.
    """
    if row.how >= HOW_OTHER:
        return None, None
    site = (row.thread, row.node) if row.thread >= 0 else None
    if row.how == HOW_INHERITED and row.via_thread >= 0:
        return (row.via_thread, row.via_node), site
    return site, None


def sums_by_site(gpu: GpuSnapshot) -> dict[tuple[Site | None, Site | None], Sums]:
    """Add up activities and waits by their sites, see :func:`where`."""
    found: dict[tuple[Site | None, Site | None], Sums] = {}
    for activity in gpu.activity:
        found.setdefault(where(activity), Sums()).add_activity(activity)
    for host in gpu.host:
        found.setdefault(where(host), Sums()).add_host(host)
    return found


def uses(
    snapshot: Snapshot,
    sums: Mapping[tuple[Site | None, Site | None], Sums],
    groups: Groups,
    *,
    own_path: bool = True,
) -> dict[int, Use]:
    """Return the work of every group that has any; group -1: launched outside of all groups.

    Args:
        sums: the result of :func:`sums_by_site`.
        groups: per thread and node the group, or TRANSPARENT.
        own_path: also count inherited work to the launching thread's own functions; if not, count
            it only to the thread that it was inherited from.
    """
    table: dict[int, Use] = {}
    by_thread: dict[int, dict[int, list[tuple[Site | None, Sums]]]] = {}
    for (site, own), amount in sums.items():
        if site is None:
            continue
        by_thread.setdefault(site[0], {}).setdefault(site[1], []).append(
            (own if own_path else None, amount)
        )
    for thread, at in by_thread.items():
        _walk(snapshot, thread, at, groups, table)
    return table


def _walk(
    snapshot: Snapshot,
    thread: int,
    at: Mapping[int, list[tuple[Site | None, Sums]]],
    groups: Groups,
    table: dict[int, Use],
) -> None:
    """Count one thread's work: each node's subtree to its group where the group is outermost."""
    parent = snapshot.threads[thread].nodes.parent
    mine = groups[thread]
    below: dict[int, Sums] = {}
    for node, parts in at.items():
        total = below[node] = Sums()
        for _, amount in parts:
            total.update(amount)
    for node in range(len(parent) - 1, 0, -1):
        if node in below:
            below.setdefault(parent[node], Sums()).update(below[node])

    def enter(node: int, active: set[int], owner: int) -> None:
        for own, amount in at.get(node, ()):
            inner = owner
            if own is not None:
                path = _own_path(snapshot, own, groups)
                for group in {*path} - active:
                    table.setdefault(group, Use()).below.update(amount)
                inner = path[0] if path else owner
            table.setdefault(inner, Use()).own.update(amount)

    _visit(parent, mine, below, table, enter)


def _visit(
    parent: Sequence[int],
    groups: Sequence[int],
    below: Mapping[int, Sums],
    table: dict[int, Use],
    enter: Callable[[int, set[int], int], None],
) -> None:
    """Walk the part of a tree that has work, with the open groups of each node."""
    first_child, sibling = child_links(parent)
    active: set[int] = set()
    opened: dict[int, int] = {}  # node -> the group it opened
    owner = [TRANSPARENT] * len(parent)
    node = 0
    while True:
        skip = node not in below
        if not skip:
            group = groups[node]
            owner[node] = group if group >= 0 else owner[parent[node]] if node else TRANSPARENT
            if group >= 0 and group not in active:
                active.add(group)
                opened[node] = group
                table.setdefault(group, Use()).below.update(below[node])
            enter(node, active, owner[node])
            if first_child[node]:
                node = first_child[node]
                continue
        while True:
            if node in opened:
                active.discard(opened.pop(node))
            if node == 0:
                return
            if sibling[node]:
                node = sibling[node]
                break
            node = parent[node]


def _own_path(snapshot: Snapshot, site: Site, groups: Groups) -> list[int]:
    """Return the groups on the path of a site, innermost first."""
    thread, node = site
    parent = snapshot.threads[thread].nodes.parent
    path: list[int] = []
    for _ in range(_MAX_OWN):
        if node <= 0:
            break
        if groups[thread][node] >= 0:
            path.append(groups[thread][node])
        node = parent[node]
    return path


def total_use(sums: Iterable[Sums]) -> GpuUse:
    """Return the sum of all work, as if one row had launched it."""
    use = Use()
    for amount in sums:
        use.own.update(amount)
    use.below.update(use.own)
    return use.freeze()
