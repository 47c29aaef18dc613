"""Finds functions of the program that call an operation on tensors for one element after another.

Calls of modules do not count: a loop over time calls a cell, and a larger batch makes that cheaper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from fastprof.findings.function_groups import GROUPS, is_of_modules
from fastprof.findings.hot_functions import is_named, is_nameless
from fastprof.report.origin import is_own
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Key, NodeTable

#: A function that calls an operation this often, each time it runs, has a loop.
_TENS = 20
#: Most of the calls on tensors must be the loop's.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A function with such a loop.

    ``entries``: how often it ran; ``time``: its own, without other functions of the program;
    ``calls`` and ``calls_time``: the loop's calls on tensors and their own time; ``operation``:
    what it calls most often, ``operations`` times.
    """

    key: Key
    entries: float
    time: float
    calls: float
    calls_time: float
    operation: Key
    operations: float

    def scaled(self, times: float, counts: float) -> "ElementLoop":
        """Return the loop in other units."""
        return replace(
            self,
            entries=self.entries * counts,
            time=self.time * times,
            calls=self.calls * counts,
            calls_time=self.calls_time * times,
            operations=self.operations * counts,
        )


@dataclass(slots=True)
class _Frame:
    """``made``: direct callee -> its calls; ``tensors``: direct callee -> calls on tensors, ns."""

    entries: int = 0
    ns: float = 0.0
    made: dict[int, int] = field(default_factory=dict)
    tensors: dict[int, tuple[int, float]] = field(default_factory=dict)


def element_loop(
    nodes: NodeTable,
    self_ns: Sequence[float],
    keys: Sequence[Key],
    group: Callable[[Key], bool],
) -> ElementLoop | None:
    """Return the loop with most of the calls on tensors in a group, in ns; None: there is none."""
    frames, whole = _frames(nodes, self_ns, keys, group)
    found = [loop for key, frame in frames.items() if (loop := _loop(keys, key, frame)) is not None]
    loop = max(found, key=lambda one: one.calls, default=None)
    return None if loop is None or loop.calls <= _MOST * whole else loop


def _frames(
    nodes: NodeTable, self_ns: Sequence[float], keys: Sequence[Key], group: Callable[[Key], bool]
) -> tuple[dict[int, _Frame], int]:
    """Return the program's functions in a group by key, and the group's calls on tensors."""
    named = [is_named(key) for key in keys]
    # They are part of what is around them.
    own = [is_own(key) for key in keys]
    open_ = [k.kind == "section" or own[i] or is_nameless(k) for i, k in enumerate(keys)]
    tensor = [GROUPS["tensor-calls"](key) for key in keys]
    count = len(nodes)
    within = at_or_below(nodes, [group(key) for key in keys])
    of, callee = [-1] * count, [-1] * count
    frames: dict[int, _Frame] = {}
    whole = 0
    columns = zip(nodes.parent, nodes.key, nodes.calls, nodes.resumes, self_ns, strict=True)
    for i, (above, key, calls, resumes, ns) in islice(enumerate(columns), 1, None):
        in_, called = of[above], callee[above]
        around = called
        if named[key]:
            in_, called = key, -1
        elif called < 0 and not open_[key]:
            called = key
        of[i], callee[i] = in_, called
        if not within[i]:
            continue
        if tensor[key]:
            whole += calls
        if in_ < 0:
            continue
        frame = frames.get(in_)
        if frame is None:
            frame = frames[in_] = _Frame()
        if named[key] or not within[above]:
            frame.entries += calls or resumes
        if not own[key]:
            frame.ns += ns
        if called >= 0:
            if around < 0:
                frame.made[key] = frame.made.get(key, 0) + calls
            if tensor[key]:
                of_callee = frame.tensors.get(called, (0, 0.0))
                frame.tensors[called] = (of_callee[0] + calls, of_callee[1] + ns)
    return frames, whole


def _loop(keys: Sequence[Key], key: int, frame: _Frame) -> ElementLoop | None:
    least = _TENS * max(1, frame.entries)
    looped = [
        callee
        for callee in frame.tensors
        if frame.made.get(callee, 0) >= least and not is_of_modules(keys[callee])
    ]
    if not looped:
        return None
    operation = max(looped, key=lambda callee: frame.made[callee])
    return ElementLoop(
        keys[key],
        frame.entries,
        frame.ns,
        sum(frame.tensors[callee][0] for callee in looped),
        sum(frame.tensors[callee][1] for callee in looped),
        keys[operation],
        frame.made[operation],
    )
