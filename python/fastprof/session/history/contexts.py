"""Calls and own time of the training thread's contexts between two moments.

A context of less than :data:`LEAST` of a segment's steps with functions counts to the one that
called it, and so do those beyond :data:`MAX_CONTEXTS`, so all times add up.

The extension compares the tree with its state at the last look, some nodes at a time, and only
describes new ones that matter: the work in Python does not grow with the tree.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from sys import maxsize
from typing import TYPE_CHECKING

from fastprof.clock import time
from fastprof.report.origin import is_own
from fastprof.snapshot import Key
from fastprof.snapshot.history import MAX_CONTEXTS, Contexts, Spent, spent_of
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder

LEAST = 0.001
#: Contexts of larger trees are not kept: each look would take more than about 2 ms in 5 s.
MOST_NODES = 1 << 18
#: New nodes that are looked up at a time, those with the most time; others later.
MOST_NEW = 128
#: After so many nodes the program's threads may run for this long.
_BREATH, _BREATH_S = 1 << 14, 0.0005
_MOST_REFUSED = 50_000

_Description = tuple[str, str, int, str, str]
_PHASES = len(RUN_PHASES)
#: Phases of the run whose contexts are not kept.
_WITHOUT = RUN_PHASES.index("setup"), RUN_PHASES.index("compile")
_OWN: _Description = ("python", "~", 0, "(fastprof)", "(fastprof)")


class RunContexts:
    """The contexts of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        #: Descriptions of the contexts' keys.
        self.keys: list[_Description] = []
        self._key_of: dict[_Description, int] = {}
        self._parent: list[int] = []
        self._key: list[int] = []
        self._phase: list[int] = []
        #: Nodes that have been looked up and are no contexts.
        self._refused: set[int] = set()
        # As in Recorder.add_spent(), whose first contexts are the phases.
        self._thread = -1
        self._known, self._place = array("q"), array("i")
        self._sums = _zeros("q", 2 * (_PHASES + MAX_CONTEXTS))
        self._too_many = False

    def skip(self) -> None:
        """Begin here."""
        self._add_up(maxsize)
        self._sums = _zeros("q", len(self._sums))

    def spent(self, least_ns: int) -> tuple[Spent, tuple[int, ...]]:
        """Return what was spent since the last call, and the time outside of contexts by phase.

        Args:
            least_ns: a node with less is no context.
        """
        new = self._add_up(least_ns)
        if self._too_many:
            return Spent(), ()
        self._look_up(new)
        sums = self._sums
        self._sums = _zeros("q", len(sums))
        found = {}
        for context in range(len(self._parent)):
            at = 2 * (_PHASES + context)
            if sums[at] or sums[at + 1]:
                found[context] = sums[at + 1], sums[at]
        return spent_of(found), tuple(sums[0 : 2 * _PHASES : 2])

    def table(self, keys: Sequence[int]) -> Contexts:
        """Return the contexts; ``keys`` are the numbers of :attr:`keys` in the snapshot."""
        numbers = tuple(keys[key] for key in self._key)
        return Contexts(tuple(self._parent), numbers, tuple(self._phase))

    def _add_up(self, least_ns: int) -> dict[int, tuple[int, int]]:
        """Add to the sums; return new nodes with their ns and calls."""
        new: dict[int, tuple[int, int]] = {}
        at, breath = 0, _BREATH
        while not self._too_many:
            found = self._recorder.add_spent(at, least_ns, self._known, self._place, self._sums)
            if found is None:
                break
            thread, count, then, rows = found
            if thread != self._thread or count > MOST_NODES:
                self._too_many = count > MOST_NODES
                self._begin(thread)
                new, at = {}, 0
                continue
            numbers = array("q", rows)
            for i in range(0, len(numbers), 3):
                if numbers[i] not in self._refused:
                    new[numbers[i]] = numbers[i + 1], numbers[i + 2]
            at = then
            if at >= count:
                break
            if at == len(self._place):
                more = max(4096, count - at)
                self._place.extend(_zeros("i", more, -1 - STEPS))
                self._known.extend(_zeros("q", 2 * more))
            elif at >= breath:
                breath = at + _BREATH
                time.sleep(_BREATH_S)
        return new

    def _begin(self, thread: int) -> None:
        """Begin with another thread's tree, which happens before the first step has ended."""
        self._thread = thread
        self._known, self._place = array("q"), array("i")
        self._sums = _zeros("q", len(self._sums))

    def _look_up(self, new: Mapping[int, tuple[int, int]]) -> None:
        """Make contexts of new nodes and those above them."""
        room = MAX_CONTEXTS - len(self._parent)
        wanted = sorted(new, key=lambda node: -new[node][0])[: min(room, MOST_NEW)]
        if not wanted:
            return
        if len(self._refused) > _MOST_REFUSED:
            self._refused = set()
        described = self._recorder.nodes(array("q", wanted).tobytes())
        if described is None:  # too deep
            self._refused.update(wanted)
            return
        rows, keys = described
        phases: dict[int, int] = {}
        own: set[int] = set()
        for node, (above, key) in rows.items():  # parents come first
            phases[node] = -1 - key if key < 0 else phases.get(above, STEPS)
            if key < 0 or above < 0:
                continue
            inside = above in own and keys[key][0] in ("c", "type")
            if inside or is_own(Key(*keys[key])):
                own.add(node)
            if self._place[node] >= 0:
                continue
            # fastprof's functions are one context per place, as in a report.
            again = node in own and above in own
            if again or phases[node] in _WITHOUT or len(self._parent) >= MAX_CONTEXTS:
                self._refused.add(node)
                continue
            description = _OWN if node in own else keys[key]
            self._add(node, above, description, phases[node], new.get(node, (0, 0)))

    def _add(
        self, node: int, above: int, description: _Description, phase: int, spent: tuple[int, int]
    ) -> None:
        place, sums = self._place, self._sums
        before = -1 - place[node]
        upper = place[above] if place[above] >= 0 else -1 - place[above]
        made = _PHASES + len(self._parent)
        place[node] = made
        ns, calls = spent
        sums[2 * before] -= ns
        sums[2 * made] += ns
        sums[2 * made + 1] += calls
        self._parent.append(max(-1, upper - _PHASES))
        self._key.append(self._number(description))
        self._phase.append(phase)

    def _number(self, description: _Description) -> int:
        number = self._key_of.get(description)
        if number is None:
            number = self._key_of[description] = len(self.keys)
            self.keys.append(description)
        return number


def _zeros(kind: str, n: int, value: int = 0) -> array[int]:
    return array(kind, [value]) * n
