"""Compares the ranks of a distributed job: who is late, why, how long the others wait.

Ranks that exchange gradients wait for each other in every step, so their steps take
equally long and the late rank is not the one with the longest step: it is the one that
waits least.  The own work of a rank is therefore::

    own work per step = step time - waiting for other ranks

Time outside of all sections is own work.  Each of :data:`SIGNALS` defines waiting differently;
every signal that all ranks have is judged; see :mod:`fastprof.ranks.judge`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fastprof.names import file_name, readable
from fastprof.ranks.heat import RankHeat
from fastprof.report.figures import counted, duration, plural, with_percent
from fastprof.report.rows import UNACCOUNTED

SIGNALS = {
    "gpu": "Waiting is GPU communication that no other work hides",
    "split": "Waiting is the communication in the split of a step's time",
    "sections": "Waiting is the time in sections named as communication",
    "autograd": "Waiting is communication, and backward without its Python functions",
    "backward": "Waiting is part of backward, where gradients are usually exchanged",
    "cpu": "Waiting is all except CPU time: own work is the CPU time of the training thread",
    "none": "Waiting is not known: the whole step counts as own work",
}


#: By these signals own work leaves out what may be work: a rank may be later than they show.
_PARTIAL = ("autograd", "backward", "cpu")


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank; times are ms per measured step, None if unknown.

    ``sections`` are the top-level sections of its steps.  ``waits`` is its time waiting
    for other ranks by each signal of :data:`SIGNALS` that it has.  ``gpu_compute_ms`` is GPU
    time with compute kernels.  ``setup`` lists settings that should be the same on all ranks.
    ``gpu_temperature_c`` and the next three fields describe its hottest, slowest, most throttled
    device: see :class:`~fastprof.report.model_gpu.GpuHealthRow`.  ``framework`` is its trainer,
    as far as it is known; a running job does not tell it.
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
    framework: str = "torch"

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
class FunctionExcess:
    """A function of the program that takes longer on a late rank than on the others.

    ``ms`` is its time per step with the library functions that it calls, ``others_ms`` the
    median of the others; ``called`` is the library function with most of the difference, if any.
    """

    name: str
    file: str
    line: int
    ms: float
    others_ms: float
    called: str | None = None

    @property
    def text(self) -> str:
        """``Data.__getitem__ (data.py:31), mostly in time.sleep``."""
        file = readable(file_name(self.file), 60)
        where = f"{readable(self.name, 80)} ({file}:{self.line})"
        if self.name == file_name(self.file):
            where = f"code outside of functions in {file}"
        return where if self.called is None else f"{where}, mostly in {readable(self.called, 60)}"

    @property
    def subject(self) -> str:
        """:attr:`text` as a sentence continues after it: with the comma that ends an insertion."""
        return self.text if self.called is None else f"{self.text},"


@dataclass(frozen=True, slots=True)
class LatePeriod:
    """Steps ``first`` to ``last`` (0-based) in which a rank is late by ``late_ms`` per step."""

    rank: int
    first: int
    last: int
    late_ms: float

    @property
    def text(self) -> str:
        """``in steps 53 to 82 by 6.20 ms each``."""
        return f"in steps {self.first} to {self.last} by {duration(self.late_ms)} each"


@dataclass(frozen=True, slots=True)
class LateStep:
    """One step (0-based) in which a rank is late by several steps' length.

    ``section`` is the section with most of the delay; None: it was in several.
    """

    rank: int
    step: int
    late_ms: float
    section: str | None

    @property
    def text(self) -> str:
        """``rank 1 by 5.00 s in step 120, in data``."""
        where = "" if self.section is None else f", {in_section(self.section)}"
        return f"rank {self.rank} by {duration(self.late_ms)} in step {self.step}{where}"


@dataclass(frozen=True, slots=True)
class HungRank:
    """A rank's single late steps together: how many of its last ``of`` steps, and their delay."""

    rank: int
    steps: int
    of: int
    late_ms: float
    longest: LateStep

    @property
    def text(self) -> str:
        """``rank 1 in 9 of 600 steps by 5.40 s in total (9.00 ms ...), the longest: ...``"""
        return (
            f"rank {self.rank} in {counted(self.steps)} of {plural(self.of, 'step')} by "
            f"{duration(self.late_ms)} in total ({duration(self.late_ms / max(1, self.of))} per "
            f"step on average), the longest: {self.longest.text.partition(' by ')[2]}"
        )


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others wait for.

    ``work_ms`` is its own work per step, ``others_ms`` the median of the others; the
    difference is ``late_ms``, and ``late_share`` its share of the step.  ``section`` is where
    it loses most (``"GPU"``: in GPU work; ``"(unaccounted)"``: in no section; None: in no
    particular section), ``section_ms`` its time there against ``section_others_ms``, without
    waiting for other ranks.  ``waits`` is the time per step that each other rank waits
    for it, the longest if :attr:`is_most`; ``also`` lists ranks nearly as late.  ``period``: it is
    late in these steps only, and the times are of these steps.  ``late_steps`` is the share of
    steps in which it is late by half of ``late_ms`` or more.  ``healthy``: it was not late yet from
    the first of these steps, the first that is known, to about the second; None: it was, or that is
    unknown.  ``functions`` take longer on it than on the others, the most first.
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
    period: LatePeriod | None = None
    late_steps: float | None = None
    signal: str = "none"
    functions: tuple[FunctionExcess, ...] = ()
    #: Waiting for a CPU in ms per step, and the median of the others, if the difference is
    #: half of the delay or more.
    cpu_wait: tuple[float, float] | None = None
    #: Own work leaves out waiting for a CPU, which matters; sections and functions contain it.
    without_cpu_wait: bool = False
    healthy: tuple[int, int] | None = None

    @property
    def during(self) -> str:
        """What goes after "is late" if it is late in some steps only."""
        return "" if self.period is None else f" in steps {self.period.first} to {self.period.last}"

    @property
    def left_out(self) -> str:
        """What goes after the time of its own work if that leaves out waiting for a CPU."""
        return ", waits for a CPU not counted" if self.without_cpu_wait else ""

    @property
    def is_most(self) -> bool:
        """Whether the delay is the most that the others wait: own work leaves nothing out."""
        return self.signal not in _PARTIAL and not self.without_cpu_wait

    @property
    def uncounted(self) -> str:
        """What goes after the wait of the others if own work leaves out backward."""
        backward = {"autograd": "backward in C++", "backward": "backward"}.get(self.signal)
        return "" if backward is None else f", {backward} not counted"

    @property
    def wait_ms(self) -> float:
        """Mean over the others of the time per step that they wait for it, if backward and waits
        for a CPU do not differ; the longest such time if :attr:`is_most`."""
        return fmean(ms for _, ms in self.waits)

    @property
    def wait_share(self) -> float:
        """:attr:`wait_ms` as a share of the step; ``late_share`` is that of the whole delay."""
        return self.late_share * self.wait_ms / self.late_ms if self.late_ms else 0.0

    @property
    def text(self) -> str:
        """The verdict in one or two sentences, the rank first."""
        host = "" if self.host is None else f" ({readable(self.host, 60)})"
        here, there = duration(self.work_ms), duration(self.others_ms)
        text = f"Rank {self.rank}{host} is late{self.during}: "
        if self.signal == "cpu":
            text += (
                f"its training thread uses a CPU for {here} per step, those of the others for "
                f"{there} (median), and the difference is in what torch computes in backward"
            )
        else:
            text += f"its own work takes {here} per step{self.left_out}, "
            text += f"that of the others {there} (median)"
        if self.section is not None:
            name = {"GPU": "work on the GPU", UNACCOUNTED: "what is in no section"}.get(
                self.section, readable(self.section, 60)
            )
            here, there = duration(self.section_ms), duration(self.section_others_ms)
            with_waits = "with these waits, " if self.without_cpu_wait else ""
            text += f"; {with_waits}{name} takes {here} against {there}"
        if self.cpu_wait is not None:
            here, there = (duration(ms) for ms in self.cpu_wait)
            text += f"; it waits for a CPU for {here} against {there}"
        if self.functions:
            most = self.functions[0]
            here, there = duration(most.ms), duration(most.others_ms)
            text += f"; {most.subject} takes {here} against {there}"
        text += (
            f". The others wait for it {'at most' if self.is_most else 'about'} "
            f"{duration(self.wait_ms)} per step ({with_percent(self.wait_share)} of the step)"
            f"{self.uncounted}."
        )
        if self.late_steps is not None and self.late_steps < SELDOM:
            text += f" It is late in {with_percent(self.late_steps)} of the steps."
        elif self.healthy is not None:
            first, last = self.healthy
            text += f" It was not late yet from step {first} to about step {last}."
        if self.also:
            text += f" Late as well: {named(self.also)}."
        return text


#: If a rank is late in a smaller share of the steps, the text says so.
SELDOM = 0.5


@dataclass(frozen=True, slots=True)
class WorkBetweenSteps:
    """Work that a rank does between its steps while the others wait in theirs.

    This ``phase`` of the run took the rank ``ms`` in all, ``also`` ranks nearly as long, and the
    others ``others_ms`` (median).  The mean step of the others is longer by ``wait_ms``, ``share``
    of a step, because of it.  ``function`` of the program took most of ``ms``; its times are sums.
    """

    rank: int
    host: str | None
    phase: str
    ms: float
    others_ms: float
    wait_ms: float
    share: float
    function: FunctionExcess | None = None
    also: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        """The phase in plain words, such as ``writing checkpoints``."""
        return _BETWEEN.get(self.phase, f"phase {readable(self.phase, 60)}")

    @property
    def text(self) -> str:
        """The work and the wait in two sentences."""
        host = "" if self.host is None else f" ({readable(self.host, 60)})"
        text = (
            f"Between steps the others wait for rank {self.rank}{host}: {self.what} took it "
            f"{duration(self.ms)} in all,{self.alike} the others {duration(self.others_ms)} "
            "(median)"
        )
        if self.function is not None:
            text += f"; {self.function.subject} took {duration(self.function.ms)} of that"
        return (
            f"{text}. The steps of the others are {duration(self.wait_ms)} longer for it on "
            f"average ({with_percent(self.share)} of a step)."
        )

    @property
    def alike(self) -> str:
        """What goes after its time if it took other ranks about as long."""
        return f" {named(self.also)} at least half as long," if self.also else ""


#: Phases of the run between steps, in plain words.
_BETWEEN = {
    "checkpoint": "writing checkpoints",
    "validation": "validation",
    "outside": "work outside of the loop",
}


def in_section(section: str) -> str:
    """``in data``, or ``in no section``."""
    return "in no section" if section == UNACCOUNTED else f"in {readable(section, 60)}"


@dataclass(frozen=True, slots=True)
class FunctionTotal:
    """A function over all ranks: sums, and the rank with its largest self time."""

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

    ``missing`` lists ranks of ``world_size`` without a file.  ``signal`` is the definition of
    waiting, a key of :data:`SIGNALS`.  ``work_ms`` is each rank's own work per step, in
    the order of ``rows``; empty if unknown.  ``imbalance`` is the largest of these divided by
    their mean, minus 1.  ``straggler`` is None if no rank is late, or too little is
    known; ``notes`` say which.  ``seen_from_ms`` is the smallest delay per step that the test
    would have detected; None: it could detect none.  ``periods`` are the steps of ranks that
    are late in some steps only, ``hangs`` single steps, the longest, and ``hung`` sums all of them
    by rank.  ``skipped`` lists files that were left
    out, with the reason.  ``between`` is the work of a rank between steps for which the others
    wait.
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
    seen_from_ms: float | None = None
    periods: tuple[LatePeriod, ...] = ()
    hangs: tuple[LateStep, ...] = ()
    hung: tuple[HungRank, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    #: Lateness over the course of the job; None: single steps are not known.
    heat: RankHeat | None = None
    between: WorkBetweenSteps | None = None

    @property
    def verdict(self) -> str:
        """The late ranks and their steps; or that no rank is late, or that it is not known."""
        parts = []
        single = f"Late in single steps: {'; '.join(self._hang_texts())}." if self.hangs else ""
        if single and self.straggler is None:
            parts.append(single)
        if self.straggler is not None:
            parts += [self.straggler.text, *self._period_texts(self.straggler)]
        elif self.seen_from_ms is None:
            rest = " in the other steps" if single else ""
            if len(self.rows) == 1:
                return "There is one rank's file, and nothing to compare it with."
            parts.append(f"It is not known whether a rank is late{rest}.")
        else:
            among = f" among the {len(self.rows)} ranks with a file" if self.missing else ""
            where = " outside of backward" if self.signal == "backward" else ""
            inside = "" if self.between is None else " in the steps"
            if single:
                inside = " in the other steps"
            parts.append(
                f"No straggler{inside}{among}{where}: one that is late{where} by "
                f"{duration(self.seen_from_ms)} per step would have been seen."
            )
        if self.between is not None:
            parts.append(self.between.text)
        if single and self.straggler is not None:
            parts.append(single)
        return " ".join(parts)

    def _period_texts(self, late: Straggler) -> list[str]:
        """Return the sentences on all periods but the one that the text of ``late`` names."""
        rest = [period for period in self.periods if period != late.period]
        own = [period.text for period in rest if period.rank == late.rank]
        others = [
            f"rank {period.rank} {period.text}" for period in rest if period.rank != late.rank
        ]
        if others and late.period is not None:
            every = [f"rank {period.rank} {period.text}" for period in self.periods]
            return [f"Ranks are late in turns: {_some(every)}."]
        texts = [f"It is also late {_some(own)}."] if own else []
        return [*texts, *([f"Late in some steps: {_some(others)}."] if others else [])]

    def _hang_texts(self) -> list[str]:
        """Return each hang, or many of them by rank with their sum."""
        if len(self.hangs) <= _HANGS:
            return [hang.text for hang in self.hangs]
        texts = [rank.text for rank in self.hung]
        more = len(texts) - _HANGS
        return [*texts[:_HANGS], *([f"{plural(more, 'more rank')}"] if more > 0 else [])]


#: Periods and single steps that the verdict names.
_TURNS = 6
_HANGS = 3


def _some(texts: Sequence[str]) -> str:
    """Return the first of these texts, and how many more there are."""
    more = len(texts) - _TURNS
    return "; ".join([*texts[:_TURNS], *([f"{more} more"] if more > 0 else [])])


def named(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1, 2, 3``, or ``ranks 0, 1, 2, ... (998 of them)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 6:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"ranks {', '.join(map(str, ranks[:3]))}, ... ({len(ranks)} of them)"
