"""How long the training thread was in groups of functions and sections, in one walk.

A group is a name and a test on a key.  Its time is that of its outermost nodes with
everything below, so nothing counts twice; what runs below an ``import`` counts for no
group, because the first step of a program imports what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fastprof.snapshot import Key, NodeTable

Match = Callable[[Key], bool]


@dataclass(slots=True)
class Site:
    """Calls of a group from one place: how often, how long, and the place's own time.

    ``parents`` are the places' nodes.
    """

    ns: float = 0.0
    calls: int = 0
    own_ns: float = 0.0
    parents: set[int] = field(default_factory=set)


@dataclass(slots=True)
class GroupTime:
    """Time of one group in ns.

    ``by_section`` splits it by the outermost section (a key, -1 outside of all), ``within``
    has the part below nodes of another group (a name) and ``calls_within`` its calls;
    ``sites`` says who called, as (key of the caller, key of the nearest Python function
    above, or -1).  ``inside`` is what ran in the group: per key self time and calls; only
    for groups that were asked for.
    """

    ns: float = 0.0
    calls: int = 0
    by_section: dict[int, float] = field(default_factory=dict)
    within: dict[str, float] = field(default_factory=dict)
    calls_within: dict[str, int] = field(default_factory=dict)
    inside: dict[int, tuple[float, int]] = field(default_factory=dict)
    sites: dict[tuple[int, int], Site] = field(default_factory=dict)


def _imports(key: Key) -> bool:
    return key.kind == "python" and "importlib._bootstrap>" in key.file


def walk(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    groups: Mapping[str, Match],
    opened: Sequence[str] = (),
) -> dict[str, GroupTime]:
    """Return the time of every group.

    Args:
        nodes: the tree of one thread.
        self_ns: exclusive times, corrected or not, one per node.
        keys: what the tree's keys stand for.
        groups: name -> test.
        opened: the groups whose insides are wanted.
    """
    names = list(groups)
    found = {name: GroupTime() for name in names}
    imports = 1 << len(names)
    bits = [_bits(key, groups, imports) for key in keys]
    section = [key.kind == "section" for key in keys]
    python = [key.kind == "python" for key in keys]
    looked_into = [(1 << names.index(name), found[name].inside) for name in opened]
    n = len(nodes)
    cum = list(self_ns)
    for i in range(n - 1, 0, -1):
        cum[nodes.parent[i]] += cum[i]
    mask, outer, above = [0] * n, [-1] * n, [-1] * n
    for i in range(1, n):
        parent, key = nodes.parent[i], nodes.key[i]
        inherited = mask[parent]
        mask[i] = inherited | bits[key]
        outer[i] = key if outer[parent] < 0 and section[key] else outer[parent]
        above[i] = key if python[key] else above[parent]
        if mask[i] & imports:
            continue
        for bit, inside in looked_into:
            if mask[i] & bit:
                ns, times = inside.get(key, (0.0, 0))
                inside[key] = (ns + self_ns[i], times + nodes.calls[i])
        new = bits[key] & ~inherited
        if not new:
            continue
        calls = nodes.calls[i] + (nodes.resumes[i] if not nodes.calls[i] else 0)
        for number, name in enumerate(names):
            if not new >> number & 1:
                continue
            group = found[name]
            group.ns += cum[i]
            group.calls += calls
            group.by_section[outer[i]] = group.by_section.get(outer[i], 0.0) + cum[i]
            around = mask[i] & ~(1 << number)
            for other, other_name in enumerate(names):
                if around >> other & 1:
                    group.within[other_name] = group.within.get(other_name, 0.0) + cum[i]
                    group.calls_within[other_name] = group.calls_within.get(other_name, 0) + calls
            place = (nodes.key[parent], above[parent])
            site = group.sites.get(place)
            if site is None:
                site = group.sites[place] = Site()
            site.ns += cum[i]
            site.calls += calls
            if parent not in site.parents:
                site.parents.add(parent)
                site.own_ns += self_ns[parent]
    return found


def _bits(key: Key, groups: Mapping[str, Match], imports: int) -> int:
    if _imports(key):
        return imports
    return sum(1 << i for i, match in enumerate(groups.values()) if match(key))
