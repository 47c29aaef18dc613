"""Calls and own time of the training thread's contexts between two moments.

A context of less than :data:`LEAST` of a segment's time counts to the one that called it, and so do
those beyond :data:`MAX_CONTEXTS`, so all times add up.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastprof.report.origin import is_own
from fastprof.snapshot import Key
from fastprof.snapshot.history import MAX_CONTEXTS, Contexts, Spent, spent_of
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder

LEAST = 0.001
#: Bytes of two copies that are compared at a time.
_CHUNK = 4096
#: Contexts of larger trees are not kept: a copy would need more than 2 MB.
_MOST_NODES = 1 << 18
#: At most this many are looked up, those with the most time.
_MOST_CHANGED = 20_000
_MOST_CACHED = 50_000

_Description = tuple[str, str, int, str, str]
#: Phases of the run whose contexts are not kept.
_WITHOUT = RUN_PHASES.index("setup"), RUN_PHASES.index("compile")
_OWN: _Description = ("python", "~", 0, "(fastprof)", "(fastprof)")


class RunContexts:
    """The contexts of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._times = self._calls = b""
        #: Descriptions of the contexts' keys.
        self.keys: list[_Description] = []
        self._key_of: dict[_Description, int] = {}
        self._parent: list[int] = []
        self._key: list[int] = []
        self._phase: list[int] = []
        #: Node of the recorder -> its context, or -1 minus the phase outside of all contexts.
        self._kept: dict[int, int] = {}
        self._folded: dict[int, int] = {}

    def skip(self) -> None:
        """Begin here."""
        self._copy()

    def spent(self) -> tuple[Spent, tuple[int, ...]]:
        """Return what was spent since the last call, and the time outside of contexts by phase."""
        times, calls = self._times, self._calls
        if not self._copy():
            return Spent(), ()
        spent_ns = changed(times, self._times)
        called = changed(calls, self._calls)
        nodes = spent_ns.keys() | called.keys()
        if len(nodes) > _MOST_CHANGED:
            nodes = set(sorted(spent_ns, key=lambda node: -spent_ns[node])[:_MOST_CHANGED])
        if not self._look_up(nodes, spent_ns):
            return Spent(), ()
        found: dict[int, tuple[int, int]] = {}
        idle = [0] * len(RUN_PHASES)
        for node in nodes:
            ns = max(0, spent_ns.get(node, 0))
            kept = self._kept.get(node)
            to = self._folded.get(node, -1) if kept is None else kept
            if to < 0:
                idle[-1 - to] += ns
            else:
                n, before = found.get(to, (0, 0))
                own = 0 if kept is None else max(0, called.get(node, 0))
                found[to] = n + own, before + ns
        return spent_of(found), tuple(idle)

    def table(self, keys: Sequence[int]) -> Contexts:
        """Return the contexts; ``keys`` are the numbers of :attr:`keys` in the snapshot."""
        numbers = tuple(keys[key] for key in self._key)
        return Contexts(tuple(self._parent), numbers, tuple(self._phase))

    def _copy(self) -> bool:
        """Keep the state of the tree; return whether it could be read."""
        times, calls = self._recorder.node_times(), self._recorder.node_calls()
        if times is None or calls is None or len(times) > 8 * _MOST_NODES:
            self._times = self._calls = b""
            return False
        self._times, self._calls = times, calls
        return True

    def _look_up(self, nodes: set[int], spent_ns: Mapping[int, int]) -> bool:
        """Learn about new nodes; return whether that was possible."""
        if len(self._folded) > _MOST_CACHED:
            self._folded = {}
        least = LEAST * sum(spent_ns.values())
        wanted = [
            node
            for node in nodes
            if node not in self._kept
            and (node not in self._folded or spent_ns.get(node, 0) >= least)
        ]
        if not wanted:
            return True
        described = self._recorder.nodes(array("q", wanted).tobytes())
        if described is None:
            return False
        rows, keys = described
        ours: dict[int, bool] = {}
        for node, (above, key) in rows.items():  # parents come first
            description = keys[key] if key >= 0 else None
            own = description is not None and is_own(Key(*description))
            inside = ours.get(above, False) and keys[key][0] in ("c", "type") if key >= 0 else False
            ours[node] = own or inside
        phases: dict[int, int] = {}
        keep = self._worth(rows, keys, spent_ns, least)
        for node, (above, key) in rows.items():
            phases[node] = -1 - key if key < 0 else phases.get(above, STEPS)
            if node in self._kept:
                continue
            if above < 0 or key < 0:
                self._kept[node] = -1 - phases[node]
                continue
            to = self._kept.get(above, self._folded.get(above, -1 - phases[node]))
            # fastprof's functions are one context per place, as in a report.
            is_new = node in keep and not (ours[node] and ours.get(above, False))
            if is_new and phases[node] not in _WITHOUT and len(self._parent) < MAX_CONTEXTS:
                self._folded.pop(node, None)
                self._kept[node] = len(self._parent)
                self._parent.append(max(-1, to))
                self._key.append(self._number(_OWN if ours[node] else keys[key]))
                self._phase.append(phases[node])
            else:
                self._folded[node] = to
        return True

    def _worth(
        self,
        rows: Mapping[int, tuple[int, int]],
        keys: Sequence[_Description],
        spent_ns: Mapping[int, int],
        least: float,
    ) -> set[int]:
        """Return the nodes that become contexts: sections, those with time, those above them."""
        keep: set[int] = set()
        for node in reversed(list(rows)):
            above, key = rows[node]
            is_section = key >= 0 and keys[key][0] == "section"
            if node in keep or is_section or spent_ns.get(node, 0) >= least > 0:
                keep |= {node, above}
        return keep

    def _number(self, description: _Description) -> int:
        number = self._key_of.get(description)
        if number is None:
            number = self._key_of[description] = len(self.keys)
            self.keys.append(description)
        return number


def changed(begin: bytes, end: bytes) -> dict[int, int]:
    """Return the differences of two columns of int64 by row, where they are not 0."""
    found: dict[int, int] = {}
    for at in range(0, len(end), _CHUNK):
        here, there = begin[at : at + _CHUNK], end[at : at + _CHUNK]
        if here == there:  # as most are
            continue
        before, after = array("q", here), array("q", there)
        before.extend([0] * (len(after) - len(before)))
        first = at // after.itemsize
        for i, (a, b) in enumerate(zip(before, after, strict=True)):
            if a != b:
                found[first + i] = b - a
    return found
