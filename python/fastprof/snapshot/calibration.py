"""The hook's own cost per kind of event, as measured next to a run."""

from dataclasses import dataclass, fields
from typing import Annotated

from fastprof.snapshot.codec import Record, Row
from fastprof.snapshot.kinds import Number

#: No hooked event costs a second; a larger cost would make every time 0.
_CostNs = Annotated[float, Number(0, 1e9)]


@dataclass(frozen=True, slots=True)
class EventCost(Row):
    """Cost of one hooked event pair in ns: inside the callee's interval, and outside it."""

    inside_ns: _CostNs
    outside_ns: _CostNs


@dataclass(frozen=True, slots=True)
class Calibration(Record):
    """The hook's own cost on this machine and interpreter, per event kind."""

    python: EventCost
    resume: EventCost
    c: EventCost
    #: A method of a builtin type (``<method 'append' of 'list' objects>``): binding it costs extra
    #: under some hooks.
    method: EventCost
    #: A Python function called by C code, an operator or an attribute instead of a call
    #: instruction: sys.monitoring announces it once, other calls twice.
    implicit: EventCost
    #: A called type, or another callable object.
    constructor: EventCost
    #: An ``__init__`` in Python, called by a constructor.  Without the hook the interpreter has a
    #: fast path for both.
    init: EventCost
    #: A Python function called with keywords, or one that takes any: the interpreter has no fast
    #: path into it that the hook could disable.
    general: EventCost
    #: A Python function called as ``f(*args, **kwargs)``.
    unpacked: EventCost
    #: A C function called with keywords, or one that takes a tuple of arguments.
    c_general: EventCost
    #: A generator resumed by C code (``sum``, ``list``), not by a loop.
    fed: EventCost
    #: Calling a generator function or a coroutine function, all of it outside: its code begins
    #: later, as a resume.
    made: EventCost
    #: The extra cost of a function's first and last calls, all of it outside: with consecutive
    #: events, nothing overlaps.
    nested: EventCost
    #: ``str(x)``, for which some versions have a special path.
    text: EventCost
    #: Factor by which bytecode is slower while the hook is on, without calls.
    slowdown: Annotated[float, Number(1, 100)] = 1.0

    def costs(self) -> dict[str, EventCost]:
        """Return the costs by kind."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "slowdown"}
