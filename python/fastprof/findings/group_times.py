"""Measures the training thread's time in groups of functions and sections, in one walk.

A group is a name and a test on a key.  Its time is the time of the nodes that pass and of
everything below them, counted once; functions below an ``import`` count for no group, because the
first step of a program imports what it needs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from fastprof.report.origin import own_keys
from fastprof.report.tree import subtree_sums, top_sections
from fastprof.snapshot import Key, NodeTable

Match = Callable[[Key], bool]


def imports(keys: Sequence[Key]) -> frozenset[int]:
    """Return the numbers of the functions that import modules."""
    files = {file for file in {key.file for key in keys} if "importlib._bootstrap>" in file}
    return frozenset([i for i, k in enumerate(keys) if k.file in files and k.kind == "python"])


@dataclass(slots=True)
class Site:
    """Calls of a group from one place: their number, their time, and the place's own time.

    ``parents`` are the places' nodes.
    """

    ns: float = 0.0
    calls: int = 0
    own_ns: float = 0.0
    parents: set[int] = field(default_factory=set)


@dataclass(slots=True)
class GroupTime:
    """Time of one group in ns.

    ``by_section`` splits it by the outermost section (a key, -1 outside of all); ``shared`` is the
    part that also belongs to another group (a name), ``calls_within`` the number of the group's
    calls inside that other group.  ``sites`` are the callers, as (key of the caller, key of the
    nearest Python function above, or -1).  ``inside`` is own time and calls per key in the group;
    only for the groups in ``opened``.
    """

    ns: float = 0.0
    calls: int = 0
    by_section: dict[int, float] = field(default_factory=dict)
    shared: dict[str, float] = field(default_factory=dict)
    calls_within: dict[str, int] = field(default_factory=dict)
    inside: dict[int, tuple[float, int]] = field(default_factory=dict)
    sites: dict[tuple[int, int], Site] = field(default_factory=dict)


def marks(keys: Sequence[Key], groups: Mapping[str, Match], sought: Sequence[int]) -> list[int]:
    """Return per key one bit for each group to which it belongs, and a bit for an import.

    Args:
        groups: name -> test.
        sought: the numbers of the keys that may belong to a group.
    """
    bits = [0] * len(keys)
    for i in sought:
        bits[i] = _bits(keys[i], groups)
    for i in imports(keys):
        bits[i] = 1 << len(groups)
    return bits


def walk(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    bits: Sequence[int],
    groups: Collection[str],
    opened: Sequence[str] = (),
    never_in: Mapping[str, Sequence[str]] = MappingProxyType({}),
    only: Collection[str] | None = None,
) -> dict[str, GroupTime]:
    """Return the time of every group.

    Args:
        self_ns: exclusive times, corrected or not, one per node.
        bits: see :func:`marks`.
        groups: their names.
        opened: the groups for which to fill ``inside``.
        never_in: group -> groups; inside these, the group does not begin.
        only: the groups to measure, if not all.
    """
    names = list(groups)
    found = {name: GroupTime() for name in names}
    imported = 1 << len(names)
    if only is not None:
        kept = imported | sum([1 << names.index(name) for name in only])
        bits = [bit & kept for bit in bits]
    barred = [
        (1 << names.index(name), sum(1 << names.index(other) for other in others))
        for name, others in never_in.items()
        if name in groups
    ]
    mask = _masks(nodes, bits, barred)
    grouped = [i for i, here in enumerate(mask) if here and not here & imported]
    if not grouped:  # as in any program without torch
        return found
    looked_into = [(1 << names.index(name), found[name].inside) for name in opened]
    cum = subtree_sums(nodes.parent, self_ns)
    outer, callers = top_sections(nodes, keys), _Callers(nodes, keys)
    #: Own time by (groups around a node, outermost section).
    spent: dict[tuple[int, int], float] = {}
    above, key_of, calls_of = nodes.parent, nodes.key, nodes.calls
    opened_bits = sum([bit for bit, _ in looked_into])
    for i in grouped:
        here, parent, own_ns = mask[i], above[i], self_ns[i]
        around = (here, outer[i])
        spent[around] = spent.get(around, 0.0) + own_ns
        if here & opened_bits:
            for bit, inside in looked_into:
                if here & bit:
                    ns, times = inside.get(key_of[i], (0.0, 0))
                    inside[key_of[i]] = (ns + own_ns, times + calls_of[i])
        new = here & ~mask[parent]
        if new:
            caller = callers.nearest(parent)
            place = (key_of[caller], callers.python(caller))
            calls = calls_of[i] or nodes.resumes[i]
            for name in _names(new, names):
                _enter(found[name], names, here, place, cum[i], calls)
                _at(found[name], place, caller, self_ns)
    for (of, section_key), ns in spent.items():
        inside_of = _names(of, names)
        for name in inside_of:
            group = found[name]
            group.ns += ns
            group.by_section[section_key] = group.by_section.get(section_key, 0.0) + ns
            for other in inside_of:
                if other != name:
                    group.shared[other] = group.shared.get(other, 0.0) + ns
    return found


def _masks(nodes: NodeTable, bits: Sequence[int], barred: Sequence[tuple[int, int]]) -> list[int]:
    """Return per node the groups that it is in; ``barred``: (group, groups in which it is not)."""
    mask = [0]
    for parent, key in islice(zip(nodes.parent, nodes.key, strict=True), 1, None):
        inherited, here = mask[parent], bits[key]
        if here:
            for bit, others in barred:
                if here & bit and (inherited | here) & others:
                    here &= ~bit
        mask.append(inherited | here)
    return mask


class _Callers:
    """Finds the program's functions at or above nodes; few nodes of a tree are in a group.

    fastprof's own functions call for the program.
    """

    def __init__(self, nodes: NodeTable, keys: Sequence[Key]) -> None:
        self._nodes, self._keys = nodes, keys
        self._own = own_keys(keys)
        self._nearest: dict[int, int] = {}
        self._python: dict[int, int] = {}

    def nearest(self, node: int) -> int:
        """Return the nearest node of the program."""
        return self._up(node, self._own.__contains__, self._nearest)

    def python(self, node: int) -> int:
        """Return the key of the nearest Python function of the program; -1: there is none."""
        found = self._up(node, self._is_no_python, self._python)
        return self._nodes.key[found] if found else -1

    def _is_no_python(self, key: int) -> bool:
        return self._keys[key].kind != "python" or key in self._own

    def _up(self, node: int, passes: Callable[[int], bool], known: dict[int, int]) -> int:
        """Return the first node at or above ``node`` that does not pass; 0: the root."""
        path = []
        while node and node not in known and passes(self._nodes.key[node]):
            path.append(node)
            node = self._nodes.parent[node]
        found = known.get(node, node)
        known.update(dict.fromkeys(path, found))
        return found


def _enter(
    group: GroupTime, names: Sequence[str], here: int, place: tuple[int, int], ns: float, calls: int
) -> None:
    """Count the calls of an outermost node of a group."""
    group.calls += calls
    for other in _names(here, names):
        group.calls_within[other] = group.calls_within.get(other, 0) + calls
    site = group.sites.get(place)
    if site is None:
        site = group.sites[place] = Site()
    site.ns += ns
    site.calls += calls


def _at(group: GroupTime, place: tuple[int, int], parent: int, self_ns: Sequence[float]) -> None:
    """Count the own time of the node that calls a group, once."""
    site = group.sites[place]
    if parent not in site.parents:
        site.parents.add(parent)
        site.own_ns += self_ns[parent]


def _names(bits: int, names: Sequence[str]) -> list[str]:
    return [name for i, name in enumerate(names) if bits >> i & 1]


def _bits(key: Key, groups: Mapping[str, Match]) -> int:
    return sum([1 << i for i, match in enumerate(groups.values()) if match(key)])
