"""Finds the nodes of the training thread's tree in no section, or in one section."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from fastprof.findings.function_groups import GROUPS
from fastprof.findings.group_times import imports
from fastprof.report.origin import is_own, package_of
from fastprof.report.phase_names import PHASES
from fastprof.report.tree import at_or_below, top_sections
from fastprof.snapshot import Key, NodeTable

#: Sections that have a rule.
KNOWN = frozenset().union(*PHASES.values())


@dataclass(frozen=True, slots=True)
class Outside:
    """``chosen``: per node, whether it is in no section, imports nothing, waits for no rank and is
    not fastprof's.

    ``left_out``: the part of the time in no section that imports and such waits take, ``ours``
    that of fastprof's functions. ``loops``: keys of the functions around the requested sections.
    """

    chosen: Sequence[bool]
    left_out: float
    ours: float
    loops: frozenset[int]


def outside(
    nodes: NodeTable,
    own: Sequence[float],
    keys: Sequence[Key],
    rows: frozenset[str],
    *,
    ranks: bool = False,
) -> Outside:
    """Return the nodes in no section.

    Args:
        nodes: the tree of one thread.
        own: exclusive times, one per node.
        keys: the keys of the tree.
        rows: names of the sections of steps.
        ranks: there are several, so communication contains the wait for the last one.
    """
    free = [top < 0 for top in top_sections(nodes, keys)]
    waits = GROUPS["communication"]
    those = imports(keys)
    barred = [i in those or (ranks and waits(key)) for i, key in enumerate(keys)]
    left_out = at_or_below(nodes, barred)
    total = spent = by_us = 0.0
    ours = [is_own(key) for key in keys]
    around: set[int] = set()
    for i in range(1, len(nodes)):
        above, key = nodes.parent[i], keys[nodes.key[i]]
        if free[i]:
            total += own[i]
            spent += own[i] if left_out[i] else 0.0
            by_us += own[i] if ours[nodes.key[i]] and not left_out[i] else 0.0
        elif free[above] and key.name in rows:
            while above > 0 and above not in around:
                around.add(above)
                above = nodes.parent[above]
    loops = frozenset(nodes.key[i] for i in around)
    chosen = [
        here and not out and not ours[key]
        for here, out, key in zip(free, left_out, nodes.key, strict=True)
    ]
    whole = total if total > 0 else 1.0
    return Outside(chosen, spent / whole, by_us / whole, loops)


def of_package(
    nodes: NodeTable,
    own: Sequence[float],
    keys: Sequence[Key],
    chosen: Sequence[bool],
    package: str,
) -> list[tuple[Key, float]]:
    """Return the package's functions with their parts (of 1) of the chosen nodes' time, largest
    first; each has what it calls outside of the package.
    """
    theirs = [key.kind == "python" and package_of(key).endswith(package) for key in keys]
    of = [-1] * len(nodes)
    spent: dict[int, float] = {}
    for i in range(1, len(nodes)):
        of[i] = nodes.key[i] if theirs[nodes.key[i]] else of[nodes.parent[i]]
        if chosen[i] and of[i] >= 0:
            spent[of[i]] = spent.get(of[i], 0.0) + own[i]
    whole = sum(compress(own, chosen)) or 1.0
    return [(keys[k], ns / whole) for k, ns in sorted(spent.items(), key=lambda item: -item[1])]


@dataclass(frozen=True, slots=True)
class Inside:
    """``chosen``: per node, whether it is in a section, and in no other of :data:`KNOWN` there.

    ``known`` is the part of the section's time (of 1) in those, ``torch`` torch's part of the rest.
    """

    chosen: Sequence[bool]
    known: float
    torch: float


def inside(nodes: NodeTable, own: Sequence[float], keys: Sequence[Key], name: str) -> Inside:
    """Return the nodes in a section; the arguments are those of :func:`outside`."""
    named = [key.kind == "section" and key.name == name for key in keys]
    others = KNOWN - {name}
    known = [key.kind == "section" and key.name in others for key in keys]
    torch = [GROUPS["tensor-calls"](key) or package_of(key) == "torch" for key in keys]
    whole = sum(compress(own, at_or_below(nodes, named)))
    chosen = at_or_below(nodes, named, until=known)
    in_torch = [False] * len(nodes)
    total = spent = 0.0
    for i in compress(range(len(nodes)), chosen):
        in_torch[i] = torch[nodes.key[i]] or in_torch[nodes.parent[i]]
        total += own[i]
        spent += own[i] if in_torch[i] else 0.0
    return Inside(
        chosen, 1 - total / whole if whole > 0 else 0.0, spent / total if total > 0 else 0.0
    )
