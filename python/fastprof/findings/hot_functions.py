"""The program's own functions that part of a tree's time is spent in.

Time of libraries is that of the function of the program that called them: a reader can
change the call, not the library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.report.origin import is_library, is_own
from fastprof.snapshot import Key, NodeTable

#: Code inside of a function that has no name to look for.
_NAMELESS = re.compile(r"<(?:listcomp|genexpr|dictcomp|setcomp|lambda)>$")
#: A function of the program is named if it has this part of the time, else a library's.
_NAMED = 0.25
#: A part above this is most of it.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class Hot:
    """A function, its part of the time that was looked at (of 1), and what it is made of.

    ``parts`` are what it calls directly and ``None`` for what it does itself, largest first,
    each with its part of the function's time.
    """

    key: Key
    share: float
    parts: tuple[tuple[Key | None, float], ...]

    @property
    def part(self) -> str:
        """What it has of the time, in words."""
        return "most" if self.share > _MOST else "the largest part"


def hottest(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    chosen: Sequence[bool],
    *,
    libraries: bool = True,
) -> Hot | None:
    """Return the function of the program with most of the time of the chosen nodes.

    Args:
        nodes: the tree of one thread.
        self_ns: exclusive times, one per node.
        keys: what the tree's keys stand for.
        chosen: per node, whether its time counts.
        libraries: name a library's function where none of the program's has a good part of
            it; else none is named.
    """
    theirs = [
        key.kind == "python" and _NAMELESS.search(key.name) is None and not is_library(key)
        for key in keys
    ]
    found = _hottest(nodes, self_ns, keys, chosen, theirs)
    if found is not None and found.share >= _NAMED:
        return found
    if not libraries:
        return None
    python = [key.kind == "python" and not is_own(key) for key in keys]
    return _hottest(nodes, self_ns, keys, chosen, python) or found


def _hottest(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    chosen: Sequence[bool],
    named: Sequence[bool],
) -> Hot | None:
    # Time outside of known functions has no owner.
    total = float(self_ns[0]) if chosen and chosen[0] else 0.0
    spent: dict[int, dict[int, float]] = {}
    #: Per node: the function that its time is charged to, and what that one called for it.
    of, part = [-1] * len(nodes), [-1] * len(nodes)
    for i in range(1, len(nodes)):
        parent, key = nodes.parent[i], nodes.key[i]
        if named[key]:
            of[i] = key if chosen[i] else -1
        else:
            of[i] = of[parent]
            part[i] = part[parent] if part[parent] >= 0 else key
        if not chosen[i]:
            continue
        total += self_ns[i]
        if of[i] >= 0:
            parts = spent.setdefault(of[i], {})
            parts[part[i]] = parts.get(part[i], 0.0) + self_ns[i]
    if not spent or total <= 0:
        return None
    key, parts = max(spent.items(), key=lambda item: sum(item[1].values()))
    whole = sum(parts.values())
    if whole <= 0:
        return None
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    return Hot(
        keys[key],
        whole / total,
        tuple((keys[k] if k >= 0 else None, ns / whole) for k, ns in ranked if ns > 0),
    )
