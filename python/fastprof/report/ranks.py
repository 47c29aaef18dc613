"""The ranks of a distributed job beside each other: who is late, why, how long others wait.

Ranks that exchange gradients wait for each other in every step, so their steps take
equally long and the late rank is not the one with the longest step: it is the one that
waits least.  What a rank does itself is therefore::

    own work per step = step time - waiting for other ranks

and waiting is told by the first of these that every rank has: the GPU's communication
that nothing hides, communication in the split of the step's time, sections named as
communication.  Without any, it is taken to be in ``backward``, where DDP exchanges
gradients, and the report says so.
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fastprof.names import ascii_name
from fastprof.render import formats
from fastprof.report.figures import duration, with_percent
from fastprof.report.findings import Finding

SIGNALS = {
    "gpu": "GPU communication that no other work hides",
    "split": "Waiting is the communication in the split of a step's time",
    "sections": "Waiting is the time in sections named as communication",
    "backward": "Waiting is part of backward, where gradients are usually exchanged",
    "none": "Waiting is not known: the whole step counts as own work",
}


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank; times are ms per measured step, None where not known.

    ``sections`` are the top-level sections of its steps.  ``waits`` is its time waiting
    for other ranks by each signal of :data:`SIGNALS` it has.  ``gpu_compute_ms`` is GPU
    time with compute kernels.  ``setup`` are facts that should be the same on all ranks.
    The last four are of its hottest, slowest, most throttled device: see
    :class:`~fastprof.report.model_gpu.GpuHealthRow`.
    """

    rank: int
    world_size: int | None
    host: str | None
    path: str
    steps: int
    skipped: int
    step_ms: float | None
    p95_ms: float | None
    cv: float | None
    sections: tuple[tuple[str, float], ...]
    waits: tuple[tuple[str, float], ...]
    gpu_utilization: float | None
    gpu_compute_ms: float | None
    gpu_communication_ms: float | None
    gpu_waits: float | None
    memory_bytes: int | None
    memory_total_bytes: int | None
    setup: tuple[tuple[str, str], ...]
    gpu_temperature_c: float | None = None
    gpu_temperature_max_c: float | None = None
    gpu_sm_clock_mhz: float | None = None
    gpu_throttled: float | None = None

    def section_ms(self, *names: str) -> float | None:
        """Return the time of the first of these sections that it has."""
        found = dict(self.sections)
        return next((found[name] for name in names if name in found), None)

    @property
    def communication_ms(self) -> float | None:
        """Waiting for other ranks by the best signal, None without one."""
        found = dict(self.waits)
        return next((found[name] for name in ("gpu", "split", "sections") if name in found), None)


@dataclass(frozen=True, slots=True)
class SectionSpread:
    """A section over the ranks that have it, ms per step."""

    name: str
    ranks: int
    mean_ms: float
    min_ms: float
    min_rank: int
    max_ms: float
    max_rank: int


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others wait for.

    ``work_ms`` is its own work per step, ``others_ms`` the median of the others'; the
    difference is ``late_ms`` and ``late_share`` its part of the step.  ``section`` is where
    it loses most (``"GPU"``: in GPU work; None: nowhere in particular), ``section_ms`` its
    time there against ``section_others_ms``.  ``waits`` is how long each other rank waits
    for it per step at most; ``also`` are ranks nearly as late.
    """

    rank: int
    host: str | None
    work_ms: float
    others_ms: float
    late_ms: float
    late_share: float
    section: str | None
    section_ms: float | None
    section_others_ms: float | None
    waits: tuple[tuple[int, float], ...]
    also: tuple[int, ...]

    @property
    def wait_ms(self) -> float:
        """How long the others wait for it per step at most, in the mean."""
        return fmean(ms for _, ms in self.waits)

    @property
    def text(self) -> str:
        """All of it in a sentence or two, the rank first."""
        host = "" if self.host is None else f" ({ascii_name(self.host, 60)})"
        text = (
            f"Rank {self.rank}{host} is late: its own work takes {duration(self.work_ms)} per "
            f"step, that of the others {duration(self.others_ms)} (median)"
        )
        if self.section is not None:
            name = "work on the GPU" if self.section == "GPU" else ascii_name(self.section, 60)
            here, there = duration(self.section_ms), duration(self.section_others_ms)
            text += f"; {name} takes {here} against {there}"
        text += (
            f". The others wait for it at most {duration(self.wait_ms)} per step "
            f"({with_percent(self.late_share)} of the step)."
        )
        if self.also:
            text += f" Late as well: {named(self.also)}."
        return text


@dataclass(frozen=True, slots=True)
class FunctionTotal:
    """A function over all ranks: sums, and the rank in which it took most self time."""

    qualname: str
    file: str
    line: int
    kind: str
    ranks: int
    calls: int
    self_ms: float
    cum_ms: float
    max_self_ms: float
    max_rank: int


@dataclass(frozen=True, slots=True)
class RankReport:
    """All ranks of a job.

    ``missing`` are ranks of ``world_size`` without a file.  ``signal`` says by what waiting
    was told, a key of :data:`SIGNALS`.  ``work_ms`` is each rank's own work per step, in
    the order of ``rows``; empty where it is not known.  ``imbalance`` is the largest over
    the mean of these, less 1.  ``straggler`` is None if no rank is late, or too little is
    known; ``notes`` say which.
    """

    rows: tuple[RankRow, ...]
    world_size: int | None
    missing: tuple[int, ...]
    sections: tuple[SectionSpread, ...]
    signal: str
    work_ms: tuple[float, ...]
    imbalance: float | None
    straggler: Straggler | None
    functions: tuple[FunctionTotal, ...]
    notes: tuple[str, ...]

    @property
    def finding(self) -> Finding | None:
        """What to do about unequal ranks; None if they are equal enough."""
        return formats.examine_ranks(self)

    def to_text(self) -> str:
        """Return it as plain ASCII text."""
        return formats.render_ranks(self, "text")

    def to_json(self) -> str:
        """Return it as JSON with the fields of this class."""
        return formats.render_ranks(self, "json")

    def to_markdown(self) -> str:
        """Return it as Markdown, for a ticket."""
        return formats.render_ranks(self, "markdown")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.txt``, ``.json`` or ``.md``, completely or not at all.

        Raises:
            ExportError: another suffix.
            OSError: the file cannot be written; what was there before is untouched.
        """
        formats.save_ranks(self, path)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(self.to_text())}</pre>"


def named(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1, 2, 3``, or ``ranks 0, 1, 2, ... (998 of them)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 6:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"ranks {', '.join(map(str, ranks[:3]))}, ... ({len(ranks)} of them)"
