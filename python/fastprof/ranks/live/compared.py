"""The result of one comparison of ranks while the job runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastprof.ranks.model import LateStep
from fastprof.ranks.row import RankRun
from fastprof.ranks.verdict import Verdict

#: By chance, one in this many windows of equal ranks has a late rank.
STRICT = 70_000.0


@dataclass(frozen=True, slots=True)
class Compared:
    """The result for one window of ``runs``.

    ``late`` are the late ranks, the latest first, each with its verdict; for the ``sure`` ones
    one window is enough.  ``verdict`` is the verdict on the latest rank, or that no rank is
    late; None: no rank is nearly late.  ``hangs`` are single blocks of ``size`` steps.
    """

    runs: list[RankRun]
    verdict: Verdict | None = None
    late: Mapping[int, Verdict] = field(default_factory=dict)
    sure: frozenset[int] = frozenset()
    hangs: Sequence[LateStep] = ()
    size: int = 1
    #: Ranks that are not compared: they make their steps at another pace.
    apart: Sequence[int] = ()

    def ms(self, hang: LateStep) -> float:
        """Return by how much a rank was late in the measured steps of a block."""
        steps = next(run.steps for run in self.runs if run.row.rank == hang.rank)
        if steps is None or steps.measured is None:
            return hang.late_ms * self.size
        return hang.late_ms * self.size * steps.measured[steps.numbers.index(hang.step)]
