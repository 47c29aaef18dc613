"""Windows of steps in which to record functions."""

import sys
from dataclasses import dataclass, fields

from fastprof.capture.options import check_int

#: Uses of a step; the values are the names that torch.profiler gives its actions.
NONE = "none"
WARMUP = "warmup"
RECORD = "record"
RECORD_AND_SAVE = "record_and_save"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Selects the steps whose functions are recorded, counted from 0.

    After ``skip_first`` steps comes a cycle of ``wait`` steps off, ``warmup`` steps off,
    ``active`` steps on; it runs ``repeat`` times, or to the end if ``repeat`` is 0.  The
    same five numbers give ``torch.profiler.schedule`` the same steps.  Only the function
    layer follows the schedule: sections, steps and metrics stay on.  Warm-up steps are off as
    well; they exist so that a schedule written for torch works unchanged.

    Example: ``Schedule(skip_first=5, wait=2, warmup=1, active=3, repeat=2)`` records
    steps 8, 9, 10 and 14, 15, 16.

    Raises:
        TypeError, ValueError: a value that is not an integer or out of range.
    """

    skip_first: int = 1
    wait: int = 0
    warmup: int = 1
    active: int = 3
    repeat: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            low = 1 if field.name == "active" else 0
            check_int(f"schedule {field.name}", getattr(self, field.name), low=low)

    def action(self, step: int) -> str:
        """Return the use of step number ``step`` (from 0)."""
        position = step - self.skip_first
        cycle = self.wait + self.warmup + self.active
        if position < 0 or (self.repeat and position >= self.repeat * cycle):
            return NONE
        position %= cycle
        if position < self.wait:
            return NONE
        if position < self.wait + self.warmup:
            return WARMUP
        return RECORD if position < cycle - 1 else RECORD_AND_SAVE

    def records(self, step: int) -> bool:
        """Return whether functions are recorded in step number ``step`` (from 0)."""
        return self.action(step) in (RECORD, RECORD_AND_SAVE)

    def next_step(self, count: int) -> int:
        """Return the next step whose use may differ; ``sys.maxsize``: none."""
        cycles = self.repeat * (self.wait + self.warmup + self.active)
        return count + 1 if not cycles or count <= self.skip_first + cycles else sys.maxsize


def first_of_cycle(schedule: Schedule, count: int) -> int:
    """Return the first step from ``count`` on that is not idle; ``sys.maxsize``: there is none."""
    cycle = schedule.wait + schedule.warmup + schedule.active
    position = max(0, count - schedule.skip_first)
    number, within = divmod(position, cycle)
    begin = schedule.skip_first + number * cycle + max(within, schedule.wait)
    return begin if schedule.action(begin) != NONE else sys.maxsize
