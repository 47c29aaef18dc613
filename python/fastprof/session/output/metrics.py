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
        phase's.  Their number comes from the whole run, because a window may begin or end in the
        middle of a batch.
        """
        sections, units = 0, 0
        if phase == "optimizer":
            sections = sum(n for (_, name), n in self._counts.items() if name == phase)
            units = self._steps
        elif entry is not None and phase != "batch_wait":
            sections, units = self._counts[entry.tag, phase], entry.batches
        return _mean(count, sum_ns, max(1.0, sections / units) if units else 1.0)


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
