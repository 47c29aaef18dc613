"""Writes a line now and then during a long run: steps, their rate, and the slowest phase."""

import re
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from fastprof.report.figures import duration, number

#: Least number of seconds between lines.
EVERY_S = 10.0

_PHASE = re.compile(r"profile/train/dl_[^/]+/time_(data|forward|backward|optimizer)_ms")


class Progress:
    """A logger that writes a line, if the last one was some time ago."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        #: Time and number of the last step; None before the first: imports precede it.
        self._since: float | None = None
        self._step = 0

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take the metrics of one emission."""
        now = self._clock()
        if self._since is None:
            self._since, self._step = now, step
            return
        passed = now - self._since
        if passed < EVERY_S:
            return
        rate = (step - self._step) / passed
        self._since, self._step = now, step
        phases: dict[str, float] = {}
        for key, value in metrics.items():
            match = _PHASE.fullmatch(key)
            if match is not None:
                phases[match[1]] = max(phases.get(match[1], 0.0), value)
        line = f"fastprof: step {step}, {number(rate)} steps/s"
        if phases:
            worst = max(phases, key=lambda name: phases[name])
            line += f", most in {worst} ({duration(phases[worst])})"
        self._stream.write(line + "\n")
        self._stream.flush()
