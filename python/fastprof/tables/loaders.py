"""The loaders' tables of a report."""

from fastprof.report.loaders import LoaderRow, WorkerRow
from fastprof.report.model import Report
from fastprof.tables.cells import Table, number, percent, short
from fastprof.tables.layout import without_unknown

#: Cells that identify a loader: training and validation loaders may share a name.
_Named = tuple[str, str]
_NAMED = ("loader", "split")
_DEPTH = "batches ready at next(), % of calls"

#: Loaders with more workers have no row per worker.
_WORKER_ROWS = 16


def loader_tables(report: Report) -> list[Table]:
    """Return the tables about loaders; leave out those without rows."""
    watched = [
        ((short(r.name), short(r.split)), r.workers)
        for r in report.loaders
        if r.workers is not None
    ]
    tables = (
        _loaders(report.loaders),
        _workers(watched),
        _by_worker([(loader, w) for loader, w in watched if w.workers]),
        _outside(watched),
    )
    return [without_unknown(table) for table in tables]


def _loaders(loaders: tuple[LoaderRow, ...]) -> Table:
    headers = (
        *_NAMED, "batches", "realized %", "weight", "time %", "data ms", "forward ms",
        "backward ms", "optimizer ms", "batch wait ms",
    )  # fmt: skip
    # The only loader of its split has all of its batches.
    mixed = len({r.split for r in loaders}) < len(loaders)
    rows = tuple(
        (short(r.name), short(r.split), str(r.batches), percent(r.realized) if mixed else "",
         number(r.weight, 2), percent(r.time_share) if mixed else "", number(r.data_ms),
         number(r.forward_ms), number(r.backward_ms), number(r.optimizer_ms),
         number(r.batch_wait_ms))
        for r in loaders
    )  # fmt: skip
    share = "; time %: share of the time of the split's batches" if mixed else ""
    title = f"Data loaders (means per batch{share})"
    return Table(
        title, headers, rows, left=frozenset({0, 1}),
        spare=("batch wait ms", "weight", "realized %"), last=("optimizer ms", "batches"),
    )  # fmt: skip


def _workers(watched: list[tuple[_Named, WorkerRow]]) -> Table:
    headers = (
        *_NAMED, "workers", "started by", "prefetch", "batch size", "ready", "blocked",
        "blocked %", "blocked ms", "load ms", "step ms", "needed", "load time is",
        _DEPTH,
    )  # fmt: skip
    rows = tuple(
        (*loader, str(w.workers), short(w.start_method or ""), _count(w.prefetch),
         _count(w.batch_size), *_waiting(w), number(w.load_ms), number(w.step_ms),
         _count(w.needed), _source(w), _depth(w))
        for loader, w in watched
    )  # fmt: skip
    title = "Workers of the loaders (ms; load: per batch and worker; step: without data)"
    return Table(
        title, headers, rows, left=frozenset({0, 1, 3, 13, 14}),
        spare=(_DEPTH, "started by", "prefetch", "batch size", "blocked %", "load time is"),
        last=("blocked ms",),
    )  # fmt: skip


def _waiting(w: WorkerRow) -> tuple[str, str, str, str]:
    if not w.workers:
        return ("n/a",) * 4
    return str(w.ready), str(w.blocked), percent(w.blocked_share), number(w.blocked_ms)


def _source(w: WorkerRow) -> str:
    if w.load_ms is None:
        return ""
    if not w.workers:
        return "next()"
    return f"{'measured' if w.measured else 'observed'}, {w.load_samples}"


def _depth(w: WorkerRow) -> str:
    total = sum(times for _, times in w.depth)
    cells = []
    for low, times in w.depth:
        high = max(low, 2 * low - 1)
        span = str(low) if low == high else f"{low}-{high}"
        cells.append(f"{span}: {percent(times / total)}")
    return ", ".join(cells)


def _by_worker(with_workers: list[tuple[_Named, WorkerRow]]) -> Table:
    rows = tuple(
        (*loader, str(load.worker), str(load.count), number(load.mean_ms), number(load.max_ms))
        for loader, w in with_workers
        if len(w.by_worker) <= _WORKER_ROWS
        for load in w.by_worker
    )
    headers = (*_NAMED, "worker", "batches", "load ms", "longest ms")
    return Table("Load time per batch, by worker", headers, rows, left=frozenset({0, 1}))


def _outside(watched: list[tuple[_Named, WorkerRow]]) -> Table:
    headers = (
        *_NAMED, "passes", "starts", "start ms", "resumes", "resume ms", "first batch ms",
        "shutdowns", "shutdown ms", "total ms",
    )  # fmt: skip
    rows = tuple(
        (*loader, str(w.passes), str(w.starts), number(w.start_ms), str(w.resumes),
         number(w.resume_ms), number(w.first_ms), str(w.shutdowns), number(w.shutdown_ms),
         number(w.outside_ms))
        for loader, w in watched
    )  # fmt: skip
    title = "Cost of the loaders outside the steps (means, and their sum)"
    return Table(
        title, headers, rows, left=frozenset({0, 1}),
        spare=("shutdowns", "passes", "resumes", "starts"), last=("resume ms", "shutdown ms"),
    )  # fmt: skip


def _count(value: int | None) -> str:
    return "n/a" if value is None else str(value)
