"""What runs next to the steps of a segment: loader workers, clocks of GPUs, ranks, passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastprof.snapshot.history_sums import GpuClock, Loading, Passes, grown

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder


class Sums(NamedTuple):
    """What a segment has of it; None: unknown."""

    loading: Loading | None
    gpu_clock: GpuClock | None
    waits_ns: int | None
    passes: Passes | None


class Meanwhile:
    """Reads the sums of one run, and returns what was added since the last look.

    Args:
        loading: returns a number of the training loader, and what its workers did so far.
        passes: returns the numbers of passes of validation, and of checkpoints, so far.
    """

    def __init__(
        self,
        recorder: Recorder,
        loading: Callable[[], tuple[int, Loading | None]],
        passes: Callable[[], Passes | None],
    ) -> None:
        self._recorder = recorder
        self._loading = loading
        self._passes = passes
        self._loader = -1
        self._before = Sums(None, None, None, None)

    def since(self, window: Mapping[str, Any] | None) -> Sums:
        """Return the sums since the last call.

        Args:
            window: the recorder's last window, for waits.
        """
        loader, loading = self._loading()
        waits = sum(ns for _, ns in window["waits"]) if window and window["waits"] else None
        now = Sums(loading, self._clock(), waits, self._passes())
        before, self._before = self._before, now
        if loader != self._loader:
            before = before._replace(loading=None)
        self._loader = loader
        return Sums(
            grown(now.loading, before.loading),
            grown(now.gpu_clock, before.gpu_clock),
            max(0, now.waits_ns - (before.waits_ns or 0)) if now.waits_ns is not None else None,
            grown(now.passes, before.passes),
        )

    def _clock(self) -> GpuClock | None:
        """Return the samples of the process's GPUs, if there are any."""
        devices = [one for one in self._recorder.gpu_status().get("health", ()) if one]
        if not devices:
            return None

        def summed(name: str, place: int) -> int:
            return sum(one[name][place] for one in devices if one[name])

        reasons = [one["reasons"] for one in devices if one["reasons"]]
        return GpuClock(
            summed("sm_clock_mhz", 0),
            summed("sm_clock_mhz", 1),
            summed("temperature_c", 0),
            summed("temperature_c", 1),
            sum(one["samples"] for one in reasons),
            sum(one["slowed"] for one in reasons),
            sum(bool(one["sm_clock_mhz"]) for one in devices),
        )
