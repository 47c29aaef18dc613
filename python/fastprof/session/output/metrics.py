"""Times of the phases of a step as metrics, per data loader.

The recorder accumulates (count, time) by loader and phase.  A window holds the amounts since the
last emission and turns them into keys and means.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastprof.capture.options import PHASES
from fastprof.own_imports import Protected
from fastprof.session.loaders.timing import NO_LOADER, UNKNOWN, LoaderEntry, LoaderRegistry

_NS_PER_MS = 1e6

#: A smaller part of the samples does not stand for all: in the full look 3 of 100 steps are plain.
_FEW = 1 / 16

#: So many micro-batches (or steps) show that a loop has another number of sections in each.
_ENOUGH = 16

#: Phases with a key, by split; a validation pass has no others.
_KEYED = {
    "train": ("data", "forward", "backward", "optimizer", "batch_wait"),
    "val": ("data", "forward"),
}

#: From the end of any training batch to the delivery of the next, of any loader.
GLOBAL_WAIT_KEY = "profile/train/time_batch_wait_ms"
GLOBAL_WAIT = (NO_LOADER, "batch_wait")

#: ``logger.log_metrics(values, step)``, or its equivalent.
LogCall = Callable[[Mapping[str, float], int], object]

#: Rows of ``Recorder.take_loaders``: tag, phase, count, sum in ns.
Rows = Iterable[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One emitted value: ``sum_ms`` of time over ``count`` micro-batches, and their ratio.

    For ``optimizer`` the count is of optimizer steps, for ``batch_wait`` of waits.
    """

    value_ms: float
    sum_ms: float
    count: int


class MetricWindow:
    """Accumulates rows of the recorder until they are taken as metrics."""

    def __init__(self, registry: LoaderRegistry) -> None:
        self._registry = registry
        self._pending: dict[tuple[int, str], list[int]] = {}
        #: The same in steps without the function hook.
        self._plain: dict[tuple[int, str], list[int]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._steps = 0
        # By loader and phase: (sections, units) where the loop last changed, and at the last look.
        self._marks: dict[object, tuple[tuple[int, int], tuple[int, int]]] = {}
        # The same while automatic sections were off: in sum, and when they were switched off.
        self._left_out: dict[object, tuple[int, int]] = {}
        self._off: dict[object, tuple[int, int]] | None = None

    def add(self, rows: Rows, *, steps: int = 0, validating: bool = False) -> None:
        """Accumulate ``rows`` of a run that has made ``steps`` steps.

        ``validating``: batches came from a validation loader.  The global wait belongs to training,
        so a validation pass does not count in it.
        """
        self._steps = steps
        for tag, number, count, sum_ns in rows:
            is_plain, number = divmod(number, len(PHASES))
            key = (tag, PHASES[number])
            if key == GLOBAL_WAIT and validating:
                continue
            pair = (self._plain if is_plain else self._pending).setdefault(key, [0, 0])
            pair[0] += count
            pair[1] += sum_ns
            if not is_plain:
                self._counts[key] = self._counts.get(key, 0) + count

    def switched(self, on: bool) -> None:
        """Note that automatic sections of the next steps were switched, after :meth:`add`."""
        if on != (self._off is not None):
            return
        now = self._totals()
        if not on:
            self._off = now
            return
        before, self._off = self._off or {}, None
        for key, (sections, units) in now.items():
            old, old_units = before.get(key, (0, 0))
            out, out_units = self._left_out.get(key, (0, 0))
            self._left_out[key] = out + sections - old, out_units + units - old_units

    def _totals(self) -> dict[object, tuple[int, int]]:
        """Return sections and units of all training phases that have automatic sections."""
        totals: dict[object, tuple[int, int]] = {"optimizer": (self._optimized(), self._steps)}
        for entry in self._registry.entries:
            if entry.split == "train":
                for phase in ("forward", "backward"):
                    key = entry.tag, phase
                    totals[key] = self._counts.get(key, 0), entry.batches
        return totals

    def _optimized(self) -> int:
        return sum(n for (_, name), n in self._counts.items() if name == "optimizer")

    def take(self, split: str) -> dict[str, Metric]:
        """Return the metrics of ``split`` since the last call, by key.

        A phase without a sample has no key: missing is not 0.
        """
        metrics: dict[str, Metric] = {}
        for tag, entry in self._tags(split):
            name = UNKNOWN if entry is None else entry.name
            for phase in _KEYED[split]:
                if (tag, phase) == GLOBAL_WAIT:
                    continue
                pair = self._take((tag, phase))
                if pair is not None:
                    key = f"profile/{split}/dl_{name}/time_{phase}_ms"
                    metrics[key] = self._metric(entry, phase, *pair)
        if split == "train":
            pair = self._take(GLOBAL_WAIT)
            if pair is not None:
                metrics[GLOBAL_WAIT_KEY] = _mean(*pair)
        return metrics

    def _take(self, key: tuple[int, str]) -> tuple[int, float] | None:
        """Return count and sum in ns since the last call, as if no step had the function hook."""
        count, sum_ns = self._pending.pop(key, (0, 0))
        plain, plain_ns = self._plain.pop(key, (0, 0))
        if not count:
            return None
        return count, plain_ns / plain * count if plain > _FEW * count else float(sum_ns)

    def _tags(self, split: str) -> Iterable[tuple[int, LoaderEntry | None]]:
        for entry in self._registry.entries:
            if entry.split == split:
                yield entry.tag, entry
        if split == "train":
            yield NO_LOADER, None

    def _metric(self, entry: LoaderEntry | None, phase: str, count: int, sum_ns: float) -> Metric:
        """Return the mean per micro-batch; for the optimizer, per step.

        Usually a phase has one section per micro-batch, and the mean is that of the sections.  If
        it has more (two models, a discriminator trained more often), their times add up to the
        phase's.
        """
        per_unit = 1.0
        if phase == "optimizer":
            per_unit = self._per_unit(phase, self._optimized(), self._steps)
        elif entry is not None and phase != "batch_wait":
            key = entry.tag, phase
            per_unit = self._per_unit(key, self._counts[key], entry.batches)
        return _mean(count, sum_ns, max(1.0, per_unit))

    def _per_unit(self, key: object, sections: int, units: int) -> float:
        """Return the number of sections in a micro-batch (or step); 0: unknown.

        It is that since the loop changed (another stage, a second model), not that in the window
        alone, which may begin or end in the middle of a batch.
        """
        out, out_units = self._left_out.get(key, (0, 0))
        if self._off:
            since, since_units = self._off.get(key, (0, 0))
            out, out_units = out + sections - since, out_units + units - since_units
        sections, units = sections - out, units - out_units
        began, looked = self._marks.get(key, ((0, 0), (0, 0)))
        new, new_units = sections - looked[0], units - looked[1]
        if new_units >= _ENOUGH:
            before, before_units = looked[0] - began[0], looked[1] - began[1]
            if before_units:
                expected = before / before_units * new_units
                if abs(new - expected) > 2 * max(new, expected) / new_units:  # that of two batches
                    began = looked
            looked = sections, units
            self._marks[key] = began, looked
        elif looked == began:
            looked = sections, units
        known = looked[1] - began[1]
        return (looked[0] - began[0]) / known if known else 0.0


def _mean(count: int, sum_ns: float, per_unit: float = 1.0) -> Metric:
    """``per_unit``: number of sections in one micro-batch's (or step's) phase."""
    sum_ms = sum_ns / _NS_PER_MS
    return Metric(sum_ms * per_unit / count, sum_ms, max(1, round(count / per_unit)))


def log_call(logger: Any) -> LogCall:
    """Return a function that passes ``(values, step)`` to ``logger``.

    It is the method ``log_metrics``, else ``log``, else the logger itself if it is a function.

    Raises:
        TypeError: the logger is none of these, or a ``logging.Logger``, whose ``log`` differs.
    """
    with Protected():
        import logging

    if not isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
        for name in ("log_metrics", "log"):
            method = getattr(logger, name, None)
            if callable(method):
                return method  # type: ignore[no-any-return]
        if callable(logger):
            return logger  # type: ignore[no-any-return]
    raise TypeError(
        f"logger is {type(logger).__name__}, expected an object with log_metrics(dict, step) "
        "or log(dict, step), or a callable that takes (dict, step)"
    )
