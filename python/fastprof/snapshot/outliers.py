"""The slowest steps' part of a snapshot: the time of each calling context in them.

Times are integer nanoseconds, as measured (the hook's own cost included).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, KeyIndex, Record, Row, ThreadIndex
from fastprof.snapshot.kinds import AtMost, Integer, Known, WrongError

#: The recorder keeps at most this many.
MAX_OUTLIERS = 100
MAX_ROWS = 512
_MAX_SECTIONS = 32


@dataclass(frozen=True, slots=True)
class OutlierRow(Row):
    """One calling context in one kept step: ``node`` is its row in the thread's tree.

    ``usual_ns`` and ``usual_calls`` are its sums over ``usual_row_steps`` steps.
    """

    node: Count
    self_ns: Count
    calls: Count
    resumes: Count
    usual_ns: Count
    usual_calls: Count


@dataclass(frozen=True, slots=True)
class OutlierStep(Record):
    """One of the slowest measured steps.

    ``index`` counts all steps from 0; ``start_ns`` counts from the start of the first step.
    ``sections`` are (key, ns) of the top-level sections; if there are too many, the largest stay.
    ``rows`` cover the ``window_steps`` steps that end with this one: one if the recorder could
    afford to sample every step; 0 if it did not sample.  They and ``rest_ns`` add up to
    ``window_ns``.  ``usual`` and ``window_usual``: it counts as usual itself.
    """

    index: Count
    start_ns: Count
    wall_ns: Count
    usual: bool
    sections: Annotated[tuple[tuple[KeyIndex, Count], ...], AtMost(_MAX_SECTIONS)]
    window_steps: Count
    window_ns: Count
    window_usual: bool
    rows: Annotated[tuple[OutlierRow, ...], AtMost(MAX_ROWS)]
    rest_ns: Count
    #: It ran without the function hook; None: recorded by an earlier fastprof, which kept none.
    plain: bool | None = None

    def check(self, known: Known) -> None:
        if self.index not in known.steps:
            raise WrongError(self.index, f"a measured step: {known.steps}", ".index")
        _check_sections(self.sections, ".sections")
        if sum(ns for _, ns in self.sections) > self.wall_ns:
            raise WrongError(
                list(self.sections), "rows that add up to wall_ns at most", ".sections"
            )
        if len({row.node for row in self.rows}) != len(self.rows):
            raise WrongError(list(self.rows), "each node once", ".rows")
        if sum(row.self_ns for row in self.rows) + self.rest_ns != self.window_ns:
            raise WrongError(self.window_ns, "the sum of the rows and rest_ns", ".window_ns")
        least = self.wall_ns if self.window_steps else 0
        if self.window_steps > len(known.steps) or self.window_ns < least:
            raise WrongError(self.window_steps, "steps that include this one", ".window_steps")
        if self.rows and not self.window_steps:
            raise WrongError(list(self.rows), "none where nobody looked", ".rows")


@dataclass(frozen=True, slots=True)
class OutlierSnapshot(Record):
    """The ``limit`` slowest measured steps of the training thread, and the usual ones.

    ``thread`` is an index into ``Snapshot.threads``.  ``usual_ns`` and ``usual_sections`` (key, ns)
    are sums over the ``usual_steps`` steps that took no more than 1.5 times the median of those
    before them; rows' usual sums cover ``usual_row_steps`` of these.
    """

    thread: ThreadIndex
    limit: Annotated[int, Integer(1, MAX_OUTLIERS)]
    usual_steps: Count
    usual_ns: Count
    usual_sections: tuple[tuple[KeyIndex, Count], ...]
    usual_row_steps: Count
    kept: tuple[OutlierStep, ...]

    def check(self, known: Known) -> None:
        measured = len(known.steps)
        for name in ("usual_steps", "usual_row_steps"):
            if getattr(self, name) > measured:
                raise WrongError(getattr(self, name), f"at most {measured} steps", f".{name}")
        _check_sections(self.usual_sections, ".usual_sections")
        if len(self.kept) > self.limit:
            raise WrongError(len(self.kept), f"at most {self.limit} steps", ".kept")
        if len({step.index for step in self.kept}) != len(self.kept):
            raise WrongError(list(self.kept), "each step once", ".kept")
        for i, step in enumerate(self.kept):
            last = max((row.node for row in step.rows), default=0)
            if not known.has_node(self.thread, last):
                raise WrongError(last, "a node of the thread", f".kept[{i}].rows")


def _check_sections(sections: Sequence[tuple[int, int]], path: str) -> None:
    if len(dict(sections)) != len(sections):
        raise WrongError(list(sections), "each section once", path)
