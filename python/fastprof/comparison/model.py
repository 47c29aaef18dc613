"""The model of a comparison: the frozen :class:`Comparison` and the rows of its tables.

Times are milliseconds, changes are fractions of the value before (0.03 is 3 % more), and an unknown
value is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SLOWER = "slower"
FASTER = "faster"
NO_CHANGE = "no significant change"
NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class MedianChange:
    """The medians of both sides and their difference, between ``low_ms`` and ``high_ms``."""

    before_ms: float
    after_ms: float
    difference_ms: float
    low_ms: float | None
    high_ms: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """How a time per step changed, and whether the change is more than chance.

    ``name`` is ``step``, ``step (CPU)`` or a top-level section, ``kind`` ``step``, ``cpu`` or
    ``section``.  ``low_ms`` and ``high_ms`` are the interval of ``difference_ms`` at the
    comparison's level, ``change_low`` and ``change_high`` that of ``change``, the difference as a
    fraction of the time before (None: that time may be 0); ``p_adjusted`` is ``p`` after Holm's
    correction for all rows.
    ``detectable_ms`` is the smallest true change that 4 of 5 tests of this row alone would find;
    ``margin_ms`` is the difference that counts as no change.  ``reason`` says why a row was not
    tested, or why a difference is no change.  ``steps`` are the numbers of steps used, ``left_out``
    of those left out as not settled; with several runs per side they count runs.  ``blocks`` are
    steps per block of each side.  ``wanted`` is the number of steps, those of the warm-up included,
    with which runs would find smaller changes; None: enough were recorded.
    """

    name: str
    kind: str
    steps: tuple[int, int]
    before_ms: float | None
    after_ms: float | None
    difference_ms: float | None
    low_ms: float | None = None
    high_ms: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    detectable_ms: float | None = None
    margin_ms: float | None = None
    verdict: str = NOT_TESTED
    reason: str = ""
    median: MedianChange | None = None
    left_out: tuple[int, int] = (0, 0)
    blocks: tuple[int, int] | None = None
    wanted: int | None = None

    def _of_before(self, value: float | None) -> float | None:
        return value / self.before_ms if value is not None and self.before_ms else None

    @property
    def change(self) -> float | None:
        """The difference as a fraction of the time before."""
        return self._of_before(self.difference_ms)

    @property
    def detectable(self) -> float | None:
        """The smallest change likely to be found, as a fraction of the time before."""
        return self._of_before(self.detectable_ms)

    @property
    def significant(self) -> bool:
        """Whether the change is more than chance and more than the margin for noise."""
        return self.verdict in (SLOWER, FASTER)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure on both sides; None: the row or its figure is missing."""

    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        """After minus before; a missing value counts as 0 if the other exists."""
        if self.before is None and self.after is None:
            return None
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def relative(self) -> float | None:
        """The difference as a fraction of the value before."""
        if not self.before or self.after is None:
            return None
        return (self.after - self.before) / self.before


@dataclass(frozen=True, slots=True)
class Row:
    """A section, function, kernel or loader on both sides.

    ``place`` is its definition (after, else before), followed by the place before if that differs.
    ``figures`` are per step, or of the whole run if that is the comparison's basis; loaders' times
    are per batch.  ``status`` is ``both``, ``new`` or ``gone``.  ``p_adjusted`` (Benjamini and
    Hochberg, over all functions) and ``verdict`` exist only with several runs per side; otherwise
    the row only describes.
    """

    name: str
    place: str
    status: str
    figures: Mapping[str, Change]
    p_adjusted: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A line of the block of main figures: values, and their format."""

    name: str
    unit: str
    change: Change
    before_text: str
    after_text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs between the two sides.

    ``matters`` is its effect on the comparison, empty without one.
    """

    name: str
    before: str
    after: str
    matters: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One side compared with the first; ``other_machine``: no machine ran on both sides."""

    before: str
    after: str
    summary: tuple[SummaryRow, ...]
    uniformity: tuple[SummaryRow, ...]
    settings: tuple[Setting, ...]
    effects: tuple[Effect, ...]
    sections: tuple[Row, ...]
    functions: tuple[Row, ...]
    kernels: tuple[Row, ...]
    loaders: tuple[Row, ...]
    notes: tuple[str, ...]
    other_machine: bool = False

    @property
    def step(self) -> Effect | None:
        """The change of the step time; None if a side has no steps."""
        return next((effect for effect in self.effects if effect.kind == "step"), None)

    def effect(self, name: str) -> Effect | None:
        """Return the row of that name among those with statistics, or None."""
        return next((effect for effect in self.effects if effect.name == name), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One or more sides compared with the first one.

    ``labels`` names the sides, ``runs`` is the number of files of each.  ``basis`` is ``step`` or
    ``run``: the unit of the figures of functions and kernels.  ``noise`` is the change that two
    runs of the same program may show, and that therefore counts as none.  ``tops`` are the
    functions of both sides of a single pair, most cumulative time first, as pstats prints them;
    ``steps`` are the ms of the measured steps of each side's first run.
    """

    labels: tuple[str, ...]
    runs: tuple[int, ...]
    basis: str
    level: float
    noise: float
    pairs: tuple[Pair, ...]
    tops: tuple[str, ...] = ()
    steps: tuple[tuple[float, ...], ...] = ()

    @property
    def step(self) -> Effect | None:
        """The change of the step time in the first pair; None without steps."""
        return self.pairs[0].step

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The rows with statistics of the first pair: the step and its sections."""
        return self.pairs[0].effects

    @property
    def functions(self) -> tuple[Row, ...]:
        """The functions of the first pair, largest difference first."""
        return self.pairs[0].functions

    @property
    def changed(self) -> bool:
        """Whether any step time or section changed significantly in any pair."""
        return any(effect.significant for pair in self.pairs for effect in pair.effects)
