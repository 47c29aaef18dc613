"""The loaders' part of a run: their times, waits and workers, for the report."""

from dataclasses import replace

from fastprof.capture.options import PHASES, Recorder
from fastprof.session.loaders.timing import NO_LOADER, UNKNOWN, LoaderRegistry
from fastprof.session.loaders.worker_stats import Watches
from fastprof.session.output.metrics import GLOBAL_WAIT, Rows
from fastprof.session.part import Part
from fastprof.snapshot import LoaderStats, Snapshot


class LoaderResults(Part):
    """Collects what a run's loaders and their worker processes have recorded.

    Args:
        watches: what is known of workers; ended with the run.
    """

    kind = "loader"

    def __init__(self, recorder: Recorder, registry: LoaderRegistry, watches: Watches) -> None:
        self._recorder = recorder
        self._registry = registry
        self._watches = watches

    def finish(self, count: int) -> None:
        try:
            self._watches.close()
        finally:
            self._watches.restore()

    def forget(self) -> None:
        self._watches.restore()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        names = [entry.name for entry in self._registry.entries]
        snapshot = self._watches.profiles.add_to(snapshot, names)
        totals = self._recorder.loader_totals()
        return replace(snapshot, loaders=_stats(self._registry, totals, self._watches))


def _stats(registry: LoaderRegistry, totals: Rows, watches: Watches) -> tuple[LoaderStats, ...]:
    """Return every loader's whole run, from ``Recorder.loader_totals``.

    Work on batches of no known loader is a row named ``unknown``.
    """
    phases: dict[int, dict[str, tuple[int, int]]] = {}
    plain: dict[int, dict[str, tuple[int, int]]] = {}
    for tag, number, count, sum_ns in totals:
        is_plain, number = divmod(number, len(PHASES))
        phase = PHASES[number]
        if count and (tag, phase) != GLOBAL_WAIT:
            of = plain if is_plain else phases
            of.setdefault(tag, {})[phase] = (count, sum_ns)
    rows = [
        LoaderStats(
            name=entry.name,
            split=entry.split,
            batches=entry.batches,
            phases=phases.get(entry.tag, {}),
            weight=entry.weight,
            workers=watches.stats(entry.tag),
            plain=plain.get(entry.tag),
        )
        for entry in registry.entries
    ]
    if rows and NO_LOADER in phases:
        rows.append(LoaderStats(UNKNOWN, "train", 0, phases[NO_LOADER], plain=plain.get(NO_LOADER)))
    return tuple(rows)
