"""Decides what to say of work between steps for which others wait, while the job runs.

A checkpoint is written in few of the windows, so one window may be chance: the work is reported
after two in a row.  Rank 0 first asks the rank for the function that takes the time.
"""

from collections.abc import Sequence
from dataclasses import replace

from fastprof.ranks.between import works_between_steps
from fastprof.ranks.live.text import between_text
from fastprof.ranks.live.window import RankDetail, Request
from fastprof.ranks.model import FunctionExcess, WorkBetweenSteps
from fastprof.ranks.row import RankRun

_IN_A_ROW = 2
#: Work is reported again when it has grown by this factor.
_CHANGE = 2.0
#: How long to wait for the function.
_DETAIL_S = 5.0
#: A function of the program is named if it takes this share of the work.
_MOST = 0.5


class BetweenNow:
    """Reports each work once, and again when it has doubled."""

    def __init__(self) -> None:
        #: Reported work, by rank and phase.
        self._told: dict[tuple[int, str], WorkBetweenSteps] = {}
        self._windows = 0  # number of windows in a row in which others waited
        self._asked: WorkBetweenSteps | None = None
        self._asked_at = 0.0
        self._detail: RankDetail | None = None
        #: The work for which others wait now, for two windows at least.
        self.work: WorkBetweenSteps | None = None
        #: The question for the function of that work, while it has no answer.
        self.request: Request | None = None

    def look(self, runs: Sequence[RankRun]) -> WorkBetweenSteps | None:
        """Judge one window; return work that has not been reported yet."""
        work = next(iter(works_between_steps(runs)), None)
        self._windows = 0 if work is None else self._windows + 1
        self.work = work if self._windows >= _IN_A_ROW else None
        if self.work is None or self.request is not None:
            return None
        before = self._told.get((self.work.rank, self.work.phase))
        new = before is None or self.work.wait_ms >= _CHANGE * before.wait_ms
        return self.work if new else None

    def ask(self, work: WorkBetweenSteps, request: Request, now: float) -> None:
        """Wait for the answer to ``request`` before ``work`` is reported."""
        self._asked, self._asked_at, self._detail = work, now, None
        self.request = request

    def tell(self, detail: RankDetail) -> None:
        """Take the answer."""
        self._detail = detail

    def explain(self, now: float) -> list[str]:
        """Return the sentence, once the function is known or the wait for it is over."""
        work = self._asked
        if work is None or (self._detail is None and now - self._asked_at < _DETAIL_S):
            return []
        work = replace(work, function=_function(self._detail))
        self._told[work.rank, work.phase] = work
        self._asked = self.request = None
        return [between_text(work)]

    def text(self, runs: Sequence[RankRun]) -> str:
        """Return the sentence on the work in these windows, with the known function; or ''."""
        work = next(iter(works_between_steps(runs)), None)
        if work is None:
            return ""
        before = self._told.get((work.rank, work.phase))
        return between_text(replace(work, function=None if before is None else before.function))


def _function(detail: RankDetail | None) -> FunctionExcess | None:
    """Return the function of the program with most of the time between steps."""
    if detail is None or not detail.functions:
        return None
    name, file, line, us, called = max(detail.functions, key=lambda row: row[3])
    if us <= 0 or us < _MOST * sum(row[3] for row in detail.functions):
        return None
    library = max(called, key=lambda of: called[of], default="")
    mostly = library if library and called[library] >= _MOST * us else None
    return FunctionExcess(name, file, line, us / 1000, 0.0, mostly)
