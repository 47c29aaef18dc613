"""Decides which optimizer's steps end the steps of the run.

Of several optimizers that take turns (a GAN's) the first one does; another one takes its place by
stepping twice while the first one does not.  The optimizers of an inner loop (MAML adapts a copy of
the model) never do: such an optimizer is younger than one with parameters of the same shapes, which
has not stepped so far, or steps after inner ones.
"""

import weakref
from typing import Any

from fastprof.guards import own_errors

#: Steps of one optimizer without its outer one, after which the outer one no longer counts: before
#: the outer one has stepped, and afterwards (at least, and by the longest inner loop).
_UNPROVEN = 16
_PROVEN = 64
_LONGEST = 4


class Leaders:
    """The optimizers of one run."""

    def __init__(self) -> None:
        self._leader: weakref.ref[Any] | None = None
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()
        # The order in which they were made, or else stepped first.
        self._order: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        # Those that have stepped after inner ones; the outer one of each inner one.
        self._outer: weakref.WeakSet[Any] = weakref.WeakSet()
        self._outer_of: weakref.WeakKeyDictionary[Any, weakref.ref[Any]]
        self._outer_of = weakref.WeakKeyDictionary()
        # The inner one that stepped last, its steps since, and the most so far.
        self._inner: weakref.ref[Any] | None = None
        self._inner_steps = self._most_inner_steps = 0

    def made(self, optimizer: Any) -> None:
        """Note a new optimizer."""
        if optimizer not in self._order:
            self._count += 1
            self._order[optimizer] = self._count

    def ends_step(self, optimizer: Any) -> bool:
        """Return whether this step of ``optimizer`` ends a step of the run."""
        self.made(optimizer)
        if optimizer not in self._stepped:
            outer = self._find_outer(optimizer)
            self._stepped.add(optimizer)
            if outer is not None:
                self._outer_of[optimizer] = weakref.ref(outer)
        if optimizer in self._outer_of:
            if self._is_inner(optimizer):
                return False
            del self._outer_of[optimizer]
        return self._ends_as_outer(optimizer) or self._takes_turn(optimizer)

    def _find_outer(self, optimizer: Any) -> Any:
        order = self._order[optimizer]
        older = [
            other
            for other, place in list(self._order.items())
            if place < order and (other in self._outer or other not in self._stepped)
        ]
        if not older:
            return None
        shapes = _shapes(optimizer)
        return next((other for other in older if shapes and _shapes(other) == shapes), None)

    def _is_inner(self, optimizer: Any) -> bool:
        outer = self._outer_of[optimizer]()
        if outer is None:
            return False
        if self._inner is None or self._inner() is not optimizer:
            self._inner, self._inner_steps = weakref.ref(optimizer), 0
        self._inner_steps += 1
        proven = max(_PROVEN, _LONGEST * self._most_inner_steps)
        return self._inner_steps <= (proven if outer in self._outer else _UNPROVEN)

    def _ends_as_outer(self, optimizer: Any) -> bool:
        inner = None if self._inner is None else self._inner()
        outer = None if inner is None else self._outer_of.get(inner)
        # The last inner one may be gone already.
        known = optimizer in self._outer and self._inner_steps > 0
        if not known and (outer is None or outer() is not optimizer):
            return False
        self._outer.add(optimizer)
        self._most_inner_steps = max(self._most_inner_steps, self._inner_steps)
        self._inner, self._inner_steps = None, 0
        self._leader = weakref.ref(optimizer)
        self._others.clear()
        return True

    def _takes_turn(self, optimizer: Any) -> bool:
        leader = None if self._leader is None else self._leader()
        if leader is None or optimizer in self._others:
            self._leader = weakref.ref(optimizer)
        elif optimizer is not leader:
            self._others.add(optimizer)
            return False
        self._others.clear()
        return True


def _shapes(optimizer: Any) -> list[Any]:
    """Return the shapes of its parameters; empty: unknown."""
    try:
        return [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    except own_errors():  # an optimizer of the program's, with other groups
        return []
