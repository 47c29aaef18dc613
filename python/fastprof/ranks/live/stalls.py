"""Selects single stalls of ranks to report while the job runs, less often if there are many."""

from collections import Counter
from collections.abc import Callable, Sequence

from fastprof.ranks.live.compared import Compared
from fastprof.ranks.live.text import stall_text
from fastprof.ranks.model import LateStep
from fastprof.report.figures import duration, plural

#: Smallest lateness of a reported stall.
_ONCE_MS = 1000.0
_KEPT = 50
_AT_ONCE = 5


class Stalls:
    """Remembers and counts the stalls."""

    def __init__(self) -> None:
        #: Rank, first step, and the step after the last one.
        self._told: list[tuple[int, int, int]] = []
        #: Number of stalls of each rank so far, and their sum in ms.
        self._sums: dict[int, tuple[int, float]] = {}

    def say(
        self,
        found: Compared,
        newest: int,
        belongs: Callable[[LateStep], bool],
    ) -> list[str]:
        """Return the sentences on stalls that are over and not yet reported.

        Of many stalls of a rank, such as those of its checkpoints, the 1st, 2nd, 4th, 8th, ... are
        reported.

        Args:
            newest: first step of the last block of the window.
            belongs: whether a block is part of a delay that has its own sentence.
        """
        said = []
        for run in _runs(found.hangs, found.size):
            rank, first, end = run[0].rank, run[0].step, run[-1].step + found.size
            if end > newest:  # it may be the beginning of a longer delay
                continue
            late_ms = sum(map(found.ms, run))
            told = any(rank == r and first < b and end > a for r, a, b in self._told)
            if told or late_ms < _ONCE_MS or all(map(belongs, run)):
                continue
            self._told = [*self._told, (rank, first, end)][-_KEPT:]
            count, total_ms = self._sums.get(rank, (0, 0.0))
            count, total_ms = self._sums[rank] = count + 1, total_ms + late_ms
            if count & (count - 1):
                continue
            longest = max(run, key=lambda hang: hang.late_ms)
            said.append(stall_text(rank, late_ms, longest.section, first, end - 1, count, total_ms))
        return said[:_AT_ONCE]


def stalls_text(found: Compared) -> str:
    """Return by how much ranks were late in single steps of this window."""
    sums: Counter[int] = Counter()
    for hang in found.hangs:
        sums[hang.rank] += round(found.ms(hang))
    texts = [f"rank {rank} by {duration(ms)}" for rank, ms in sums.most_common(_AT_ONCE)]
    more = f", and {plural(len(sums) - _AT_ONCE, 'more rank')}" if len(sums) > _AT_ONCE else ""
    return f"Late in single steps: {', '.join(texts)}{more}."


def _runs(hangs: Sequence[LateStep], size: int) -> list[list[LateStep]]:
    """Group neighbouring blocks of each rank."""
    runs: list[list[LateStep]] = []
    for hang in sorted(hangs, key=lambda hang: (hang.rank, hang.step)):
        last = runs[-1][-1] if runs else None
        if last is not None and last.rank == hang.rank and (hang.step - last.step <= size):
            runs[-1].append(hang)
        else:
            runs.append([hang])
    return runs
