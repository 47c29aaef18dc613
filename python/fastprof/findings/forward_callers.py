"""Finds the program's function that makes most of forward's calls on tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from fastprof.findings.function_groups import GROUPS
from fastprof.findings.hot_functions import is_named
from fastprof.report.origin import is_own
from fastprof.snapshot import Key, NodeTable

_MOST = 0.5
#: Calls of networks each time a function runs, or per backward, for batches of its own.
_TENS = 20


@dataclass(frozen=True, slots=True)
class ForwardCaller:
    """A function around forward sections: its parts (of 1) of forward's calls and of its time.

    ``gradless``: it switches gradients off and runs no backward, and calls networks so often that
    it has batches of its own: a teacher gets those of the training.
    """

    key: Key
    of_calls: float
    of_time: float
    gradless: bool


def forward_caller(
    nodes: NodeTable, self_ns: Sequence[float], keys: Sequence[Key]
) -> ForwardCaller | None:
    """Return the function that makes most calls; None: there is none, or only one function."""
    forward = [GROUPS["forward"](key) for key in keys]
    backward = [GROUPS["backward"](key) for key in keys]
    named = [is_named(key) for key in keys]
    tensor = [GROUPS["tensor-calls"](key) for key in keys]
    off = [GROUPS["gradients-off"](key) for key in keys]
    own = [is_own(key) for key in keys]
    count = len(nodes)
    #: The nearest named function, and the one around the forward section (-2: in none).
    above, around = [-1] * count, [-2] * count
    calls: dict[int, int] = {}
    times: dict[int, float] = {}
    trains: set[int] = set()
    backwards = 0
    runs: dict[int, int] = {}
    passes: dict[int, int] = {}
    # Nodes that switch gradients off: a function, or its decorator.
    switched = islice(zip(nodes.parent, nodes.key, strict=True), 1, None)
    without = {parent for parent, key in switched if off[key]} - {0}
    decorators = {i for i in without if not named[nodes.key[i]]}
    gradless = {
        key
        for i, (parent, key) in enumerate(zip(nodes.parent, nodes.key, strict=True))
        if i and named[key] and (i in without or parent in decorators)
    }
    columns = zip(nodes.parent, nodes.key, nodes.calls, self_ns, strict=True)
    for i, (parent, key, times_called, ns) in islice(enumerate(columns), 1, None):
        caller, place = above[parent], around[parent]
        if forward[key] and place < -1:
            place = caller
            passes[caller] = passes.get(caller, 0) + times_called
        above[i], around[i] = caller, place
        if named[key]:
            above[i] = key
            runs[key] = runs.get(key, 0) + times_called
        if backward[key]:
            trains.add(caller)
            backwards += times_called
        if place < -1:
            continue
        times[place] = times.get(place, 0.0) + (0.0 if own[key] else ns)
        if tensor[key]:
            calls[place] = calls.get(place, 0) + times_called
    most = max(calls, key=lambda key: calls[key], default=-1)
    whole, time = sum(calls.values()), sum(times.values())
    if most < 0 or len(calls) < 2 or calls[most] <= _MOST * whole or time <= 0:
        return None
    least = _TENS * max(1, min(runs.get(most, 0), backwards or runs.get(most, 0)))
    apart = most in gradless - trains and passes.get(most, 0) >= least
    return ForwardCaller(keys[most], calls[most] / whole, times[most] / time, apart)
