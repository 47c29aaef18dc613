"""The data of trials: what a run is asked for, what it answers, and the result of all."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: What became of a candidate.
REAL = "real"
WORSE = "worse"
NO_DIFFERENCE = "no difference"
OPEN = "open"
CRASHED = "crashed"
HUNG = "hung"
EARLY = "ended early"
LOSSES = "other losses"
NO_EFFECT = "not reached"

#: The values of an intervention, by their names: ``{"num_workers": 2}``.
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does.

    ``apply`` are interventions by id, with their values.  The run ends after ``steps`` steps; if
    ``seconds`` is not 0, also that long after its first step, but not before ``least`` steps.
    ``observe``: record functions, and what the program calls.  ``answer`` and ``run`` are the files
    to write: an :class:`Answer`, and the recording.
    """

    answer: str
    run: str
    steps: int
    apply: Mapping[str, Values] = field(default_factory=dict)
    seconds: float = 0.0
    least: int = 0
    observe: bool = False
    seed: int = 0

    def to_json(self) -> str:
        """Return the plan as text, for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Return the plan of a text of :meth:`to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Call:
    """A call that an intervention changes: ``kind`` is the name of what is called.

    ``file`` and ``line`` are the place in the program, or empty and 0: a library calls it.
    ``arguments`` are those that the program gives, as far as they are numbers, texts or None.
    """

    kind: str
    file: str = ""
    line: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run measured.

    ``ends_ns`` are the ends of its steps by one clock, ``losses`` the first values of which
    gradients were computed, None where they are not single numbers.  ``calls`` are the calls that
    interventions know, ``facts`` what else decides which are tried, ``applied`` how often each
    intervention had something to change.
    """

    ends_ns: tuple[int, ...]
    losses: tuple[float | None, ...] = ()
    calls: tuple[Call, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    applied: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the answer as text, for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """Return the answer of a text of :meth:`to_json`."""
        fields = json.loads(text)
        calls = tuple(Call(**call) for call in fields.pop("calls"))
        ends, losses = tuple(fields.pop("ends_ns")), tuple(fields.pop("losses"))
        return cls(ends, losses, calls, **fields)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fix to try: an intervention with values.

    ``parts`` are the interventions and their values; ``spelled`` is the fix as code; ``rule`` is
    the finding that it answers, empty if the rule had no result; ``saving_ms`` is the finding's
    estimate per step, ``advice`` its fix in the words of the program's trainer.
    """

    name: str
    parts: Mapping[str, Values]
    spelled: str
    rule: str = ""
    saving_ms: float | None = None
    changes_results: bool = False
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of one candidate; times are ms per step, savings are positive if it is faster.

    ``low_ms`` and ``high_ms`` are the interval of ``saving_ms`` at 95 %.  ``status`` is one of
    ``real``, ``worse``, ``no difference``, ``open`` (more runs are needed), ``crashed``, ``hung``,
    ``ended early`` (after fewer steps), ``other losses`` and ``not reached`` (the program makes no
    such call).  ``share`` is the part of the step that the fix saves, by the runs of its rounds and
    the baseline's of the same rounds; the times are that part of ``baseline_ms``.  ``losses`` says
    how the losses differ, None: there were none.  ``predicted_ms`` is the step's time that the
    finding promises.
    """

    candidate: Candidate
    status: str
    runs: int = 0
    step_ms: float | None = None
    saving_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    predicted_ms: float | None = None
    losses: str | None = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TrialData:
    """The result of ``fastprof try``.

    ``baseline_ms`` is the mean time per step without a fix, over ``baseline_runs`` runs of
    ``steps`` steps (the geometric mean of theirs).  ``together`` is all that helped, None with
    fewer than two.  ``places`` are what to change: the program's lines with the calls, or a
    trainer's option; ``patch`` are the changes as a diff, and ``by_hand`` the calls that it lacks.
    ``notes`` are sentences on the trial.
    ``stopped``: why it ended early; empty if it did not.
    """

    program: str
    folder: str
    steps: int
    baseline_ms: float | None
    baseline_runs: int
    tried: tuple[Tried, ...]
    together: Tried | None = None
    places: tuple[str, ...] = ()
    patch: str = ""
    by_hand: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: str = ""
    processes: int = 0
