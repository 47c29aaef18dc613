"""Finds the program's functions with most of a part of a tree's time.

A library's time belongs to the program's function that called it: a reader can change the call, not
the library.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.report.origin import is_library, is_own, is_private, is_users
from fastprof.snapshot import Key, NodeTable

#: Code inside of a function, without a name to look for.
_NAMELESS = re.compile(r"<(?:listcomp|genexpr|dictcomp|setcomp|lambda)>$")
#: One of the program's functions is named if it has this part of the time, else a library's.
NAMED = 0.25
#: A larger part counts as most of it.
_MOST = 0.5


def is_nameless(key: Key) -> bool:
    """Return whether code inside of a function has no name: a comprehension or a lambda."""
    return _NAMELESS.search(key.name) is not None


def is_named(key: Key) -> bool:
    """Return whether a function of the program has a name."""
    return is_users(key) and not is_nameless(key)


@dataclass(frozen=True, slots=True)
class Hot:
    """A function, its part of the examined time (of 1), and the parts of its own time.

    ``parts`` are its direct callees, and ``None`` for its own code, largest first, each with its
    part of the function's time.  A library's private function, such as a decorator's wrapper, is
    replaced by what it calls.  ``calls`` are the named functions that it calls, largest first,
    with all that they call: each with its part of the examined time, none of it in ``share``.
    ``rates`` are the calls of each of ``parts`` per ms of the function's time; 0 for its own code.
    ``whole`` is the examined time's part (of 1) of all the time in the function's calls.
    """

    key: Key
    share: float
    parts: tuple[tuple[Key | None, float], ...]
    calls: tuple[tuple[Key, float], ...] = ()
    rates: tuple[float, ...] = ()
    whole: float = 0.0

    @property
    def part(self) -> str:
        """Its part of the time, in words."""
        return "most" if self.share > _MOST else "the largest part"


def hottest(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    chosen: Sequence[bool],
    *,
    libraries: bool = True,
) -> Hot | None:
    """Return the program's function with most of the chosen nodes' time, fastprof's left out.

    Args:
        chosen: per node, whether its time counts.
        libraries: name a library's function if none of the program's has a large part; else name
            none.
    """
    if not any(chosen):
        return None
    own = [is_own(key) for key in keys]
    chosen = [here and not own[key] for here, key in zip(chosen, nodes.key, strict=True)]
    theirs = [key.kind == "python" and not is_nameless(key) and not is_library(key) for key in keys]
    found = _hottest(nodes, self_ns, keys, chosen, theirs)
    if found is not None and found.share >= NAMED:
        return found
    if not libraries:
        return None
    python = [key.kind == "python" and not ours for key, ours in zip(keys, own, strict=True)]
    return _hottest(nodes, self_ns, keys, chosen, python) or found


def _hottest(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    chosen: Sequence[bool],
    named: Sequence[bool],
) -> Hot | None:
    # Time outside of known functions belongs to nobody.
    total = float(self_ns[0]) if chosen and chosen[0] else 0.0
    spent: dict[int, dict[int, float]] = {}
    entered: dict[tuple[int, int], int] = {}
    #: Per node: the function that gets its time, and that function's callee on the way.
    of, part = [-1] * len(nodes), [-1] * len(nodes)
    wraps = [key.kind == "python" and is_library(key) and is_private(key) for key in keys]
    for i in range(1, len(nodes)):
        parent, key = nodes.parent[i], nodes.key[i]
        if named[key]:
            of[i] = key if chosen[i] else -1
        else:
            of[i] = of[parent]
            above = part[parent]
            part[i] = key if above < 0 or (wraps[above] and not wraps[key]) else above
        if not chosen[i]:
            continue
        total += self_ns[i]
        if of[i] >= 0:
            parts = spent.setdefault(of[i], {})
            parts[part[i]] = parts.get(part[i], 0.0) + self_ns[i]
            if key == part[i] and part[parent] != key:
                entered[of[i], key] = entered.get((of[i], key), 0) + nodes.calls[i]
    if not spent or total <= 0:
        return None
    key, parts = max(spent.items(), key=lambda item: sum(item[1].values()))
    whole = sum(parts.values())
    if whole <= 0:
        return None
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    below, inside = _called(nodes, self_ns, chosen, named, key)
    called = sorted(below.items(), key=lambda item: -item[1])
    ranked = [(k, ns) for k, ns in ranked if ns > 0]
    return Hot(
        keys[key],
        whole / total,
        tuple((keys[k] if k >= 0 else None, ns / whole) for k, ns in ranked),
        tuple((keys[k], ns / total) for k, ns in called if ns > 0),
        tuple(1e6 * entered.get((key, k), 0) / whole for k, _ in ranked),
        whole / inside if inside else 0.0,
    )


def _called(
    nodes: NodeTable,
    self_ns: Sequence[float],
    chosen: Sequence[bool],
    named: Sequence[bool],
    caller: int,
) -> tuple[dict[int, float], float]:
    """Return the named functions that ``caller`` calls, with the chosen time in and below them.

    And all of the time in and below ``caller``.
    """
    spent: dict[int, float] = {}
    inside = 0.0
    within, top = [False] * len(nodes), [-1] * len(nodes)
    for i in range(1, len(nodes)):
        parent, key = nodes.parent[i], nodes.key[i]
        within[i], top[i] = within[parent], top[parent]
        if key == caller:
            within[i], top[i] = True, -1
        elif within[i] and named[key] and top[i] < 0:
            top[i] = key
        inside += self_ns[i] if within[i] else 0.0
        if top[i] >= 0 and chosen[i]:
            spent[top[i]] = spent.get(top[i], 0.0) + self_ns[i]
    return spent, inside
