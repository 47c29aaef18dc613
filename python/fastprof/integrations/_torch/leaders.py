"""Decides which optimizer's steps end the steps of the run.

Of several optimizers that take turns (a GAN's) the first one does; another one takes its place by
stepping twice while the first one does not, or with a first step on a batch fetched for it: a new
model of an ensemble, or of a client in federated training.

The optimizers of an inner loop (MAML adapts a copy of the model) never do.  Such an optimizer is
younger than one with other parameters of the same shapes, the outer one, which steps after inner
ones and by a backward of its own.  The optimizer of a federated server steps without one, and the
steps of its clients are those of the run.
"""

import weakref
from dataclasses import dataclass
from typing import Any

from fastprof.guards import own_errors

#: Steps of one optimizer, and of all, before the outer one has stepped: more, and it is none.
_UNPROVEN = 16
_ALL_UNPROVEN = 160
#: The same afterwards: at least, and by the longest inner loop.
_PROVEN = 64
_LONGEST = 4
#: Steps in a row, after which an optimizer's next turn counts from its first step on.
_OWN_TURN = 2


@dataclass(slots=True)
class _Outer:
    """What is known of an optimizer that may be an outer one.

    ``rounds`` are its steps after inner ones, ``refuted`` whether its inner ones once looked like
    steps of the run; ``held`` are steps of inner ones since its last step, ``longest`` the most of
    one of them, ``most`` the most before its last step.
    """

    rounds: int = 0
    refuted: bool = False
    held: int = 0
    longest: int = 0
    most: int = 0

    @property
    def proven(self) -> bool:
        return self.rounds > self.refuted

    def steps(self) -> bool:
        """Note its step after inner ones; return whether it is proven."""
        self.rounds += 1
        self.most = max(self.most, self.longest)
        self.held = self.longest = 0
        return self.proven

    def refute(self) -> None:
        self.rounds, self.refuted, self.held, self.longest = 0, True, 0, 0


class Leaders:
    """The optimizers of one run."""

    def __init__(self) -> None:
        #: Set by the run's hooks since the last step: a batch was fetched; backward ran.
        self.fetched = self.backward = False
        self._leader: weakref.ref[Any] | None = None
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()
        # The order in which they were made, or else stepped first.
        self._order: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        # Those that have stepped: the steps of their last turn.
        self._turns: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._last: weakref.ref[Any] | None = None
        self._outers: weakref.WeakKeyDictionary[Any, _Outer] = weakref.WeakKeyDictionary()
        self._outer_of: weakref.WeakKeyDictionary[Any, weakref.ref[Any]]
        self._outer_of = weakref.WeakKeyDictionary()
        # The optimizer whose next step cannot change anything here, unless another one steps.
        self._settled: weakref.ref[Any] | None = None

    def made(self, optimizer: Any) -> None:
        """Note a new optimizer."""
        if optimizer not in self._order:
            self._count += 1
            self._order[optimizer] = self._count

    def has_settled(self, optimizer: Any) -> bool:
        """Return whether a next step of ``optimizer`` ends one of the run and changes nothing."""
        return self._settled is not None and self._settled() is optimizer

    def ends_step(self, optimizer: Any) -> bool:
        """Return whether this step of ``optimizer`` ends a step of the run."""
        fetched, backward = self.fetched, self.backward
        self.fetched = self.backward = False
        if self.has_settled(optimizer):
            return True
        self._settled = None
        self.made(optimizer)
        last = None if self._last is None else self._last()
        self._last = weakref.ref(optimizer)
        turn = self._turns.get(optimizer, 0)
        if not turn:
            self._find_outer(optimizer)
        again = optimizer is last
        self._turns[optimizer] = turn + 1 if again else 1
        if self._is_inner(optimizer, fetched and again):
            return False
        outer = self._outers.get(optimizer)
        if outer is not None and again and outer.rounds < 2:
            outer.refute()
        elif outer is not None and outer.held:
            if not backward:
                outer.refute()
                return False
            if outer.steps():
                self._lead(optimizer)
                return True
        own = turn >= _OWN_TURN
        leads = self._takes_turn(optimizer, fetched and not turn, own)
        if leads and again and own and outer is None and optimizer not in self._outer_of:
            self._settled = self._last
        return leads

    def _find_outer(self, optimizer: Any) -> None:
        order = self._order[optimizer]
        older = [
            other
            for other, place in list(self._order.items())
            if place < order and (other in self._outers or other not in self._turns)
        ]
        mine = _parameters(optimizer) if older else []
        for other in older:
            theirs = _parameters(other)
            shapes = [_shape(p) for p in theirs]
            if mine and theirs[0] is not mine[0] and shapes == [_shape(p) for p in mine]:
                self._outers.setdefault(other, _Outer())
                self._outer_of[optimizer] = weakref.ref(other)
                return

    def _is_inner(self, optimizer: Any, fed: bool) -> bool:
        """Return whether its step is one of an inner loop.

        ``fed``: it stepped twice in a row, the second time on a new batch.
        """
        reference = self._outer_of.get(optimizer)
        target = None if reference is None else reference()
        outer = None if target is None else self._outers.get(target)
        if outer is None:
            return False
        outer.held += 1
        steps = self._turns[optimizer]
        outer.longest = max(outer.longest, steps)
        if outer.proven:
            if steps <= max(_PROVEN, _LONGEST * outer.most):
                return True
        elif outer.refuted:
            return False
        elif not fed and steps <= _UNPROVEN and outer.held <= _ALL_UNPROVEN:
            return True
        outer.refute()
        return False

    def _takes_turn(self, optimizer: Any, fresh: bool, own: bool) -> bool:
        """Return whether a step ends one of the run, where several optimizers may take turns.

        Args:
            optimizer: whose step it is.
            fresh: it is its first one, on a batch of its own.
            own: its last turn had several steps.
        """
        leader = None if self._leader is None else self._leader()
        if leader not in (None, optimizer) and not (fresh or own or optimizer in self._others):
            self._others.add(optimizer)
            return False
        self._lead(optimizer)
        return True

    def _lead(self, optimizer: Any) -> None:
        self._leader = weakref.ref(optimizer)
        self._others.clear()


def _parameters(optimizer: Any) -> list[Any]:
    try:
        return [p for group in optimizer.param_groups for p in group["params"]]
    except own_errors():  # an optimizer of the program's, with other groups
        return []


def shapes(optimizer: Any) -> object:
    """Return the shapes of an optimizer's parameters, as a number: models may have thousands."""
    return hash(tuple(_shape(p) for p in _parameters(optimizer)))


def _shape(parameter: Any) -> tuple[int, ...]:
    try:
        return tuple(parameter.shape)
    except own_errors():
        return ()
