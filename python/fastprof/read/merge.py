"""Reads the files of a job's ranks, optionally in several processes, into one report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fastprof.errors import LoadError
from fastprof.fileio import read_bounded
from fastprof.ranks.build import rank_report
from fastprof.ranks.model import FunctionTotal, RankReport
from fastprof.ranks.row import MAX_STEPS, RankRun, rank_run
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.read.load import load
from fastprof.read.newest import ranks_of_newest
from fastprof.report.rows import FunctionRow

if TYPE_CHECKING:
    from concurrent.futures import Executor

_DEFAULT = Limits()

#: Functions kept separately; later ones are added up in one row.
MAX_FUNCTIONS = 50_000
OTHER_FUNCTIONS = "(other functions)"

#: Parts of a saved run that no comparison of ranks reads.
_UNUSED = ("outliers", "trace", "operators", "worker_threads")
#: Steps kept of all ranks together, and the minimum for each.
_ALL_STEPS = 1 << 20
_LEAST_STEPS = 256
#: Reading a file takes some 50 ms, much more than starting a task for this many.
_FILES_PER_TASK = 8
#: The clocks of different machines may differ by this much, in ns.
_CLOCKS_NS = 60 * 10**9


def merge(
    paths: Iterable[str | os.PathLike[str]],
    *,
    limits: Limits = _DEFAULT,
    jobs: int = 1,
    executor: Executor | None = None,
) -> RankReport:
    """Read one saved run per rank, and compare the ranks.

    A file that cannot be read is left out, and the report names it; so is a file of another job
    than the newest, by the job's id and by its time.

    Args:
        paths: the ``.fprof`` files of the ranks of one job, in any order; a folder means all ranks
            of the newest job in it.
        limits: limits on each file's size.
        jobs: number of processes that read; with 1 one file is in memory at a time.
        executor: reads the files instead, and must see the same paths: any executor of
            :mod:`concurrent.futures`, or an object with its ``map`` (Dask's
            ``client.get_executor()``). It is not closed; its exceptions propagate.

    Raises:
        LoadError: (a ValueError) no file is a saved run with a rank.
        ValueError: a rank occurs twice, the files' jobs differ in size, or there are no files;
            ``jobs`` is less than 1, or more than 1 with an executor.
        TypeError: ``paths`` is one path, or ``executor`` has no ``map``.
        OSError: no file can be read, or a reading process was killed.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"paths is {paths!r:.80}, expected several paths, one per rank")
    if jobs < 1:
        raise ValueError(f"jobs is {jobs!r}, expected 1 or more")
    if executor is not None:
        if jobs > 1:
            raise ValueError(f"jobs is {jobs!r}: how many read is the executor's business")
        if not callable(getattr(executor, "map", None)):
            raise TypeError(f"executor is {executor!r:.80}, expected a concurrent.futures.Executor")
    files = list(_files(paths))
    job = _Job()
    for path, found in zip(files, _read_all(files, limits, jobs, executor), strict=True):
        if isinstance(found, RankRun):
            job.add(found)
        else:
            job.leave_out(path, found)
    return job.report()


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    for path in paths:
        name = os.fsdecode(path)
        yield from ranks_of_newest(name) if os.path.isdir(name) else [name]


def _read_all(
    files: Sequence[str], limits: Limits, jobs: int, executor: Executor | None
) -> Iterator[RankRun | OSError | ValueError]:
    most = min(MAX_STEPS, max(_LEAST_STEPS, _ALL_STEPS // max(1, len(files))))
    read = partial(_read, limits=limits, most_steps=most)
    if executor is not None:
        yield from executor.map(read, files, chunksize=_FILES_PER_TASK)
        return
    jobs = min(jobs, len(files))
    with ExitStack() as stack:
        if jobs < 2:
            yield from map(read, files)
            return
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        pool = stack.enter_context(ProcessPoolExecutor(jobs))
        try:
            yield from pool.map(
                read, files, chunksize=max(1, min(_FILES_PER_TASK, len(files) // jobs))
            )
        except BrokenProcessPool:
            raise OSError(
                f"one of {jobs} processes that read files was killed, perhaps for its memory; "
                "with --jobs 1 (jobs=1) one file is read at a time"
            ) from None


def _read(path: str, *, limits: Limits, most_steps: int) -> RankRun | OSError | ValueError:
    """Return the row of a rank's file, or the reason why it has none."""
    try:
        data = read_bounded(path, max_bytes=limits.max_bytes)
        if not data.startswith(fprof.MAGIC):
            load(path, limits=limits)
            return LoadError(
                f"{path!r}: does not say of which rank it is; the .fprof files of a "
                "distributed job do"
            )
        try:
            return rank_run(fprof.parse(data, limits, _UNUSED), path, most_steps=most_steps)
        except (ValueError, ArithmeticError, LookupError) as error:  # a hostile file's numbers
            return LoadError(f"{path!r}: {error}")
    except (OSError, ValueError) as error:
        return error


class _Job:
    """The ranks of the newest job so far."""

    def __init__(self) -> None:
        self._runs: list[RankRun] = []
        self._newest: RankRun | None = None
        self._skipped: list[tuple[str, str]] = []
        self._first: OSError | ValueError | None = None
        self._functions = _Functions()

    def leave_out(self, path: str, error: OSError | ValueError) -> None:
        """Remember a file that is not a rank's."""
        self._first = self._first or error
        said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        self._skipped.append((path, said.removeprefix(f"{path!r}: ")))

    def add(self, run: RankRun) -> None:
        """Add a rank, unless it belongs to an older job."""
        newest = self._newest
        if newest is None:
            self._newest = run
        elif _apart(run, newest):
            if (run.began_ns or 0) < (newest.began_ns or 0):
                self._other(run, newest)
                return
            for other in self._runs:
                self._other(other, run)
            self._newest, self._runs, self._functions = run, [], _Functions()
        elif (run.began_ns or 0) > (newest.began_ns or 0):
            self._newest = run
        self._functions.add(run.table, run.row.rank)
        self._runs.append(replace(run, table=()))

    def _other(self, run: RankRun, kept: RankRun) -> None:
        known = run.began_ns is not None and kept.began_ns is not None
        said = "it belongs to another job" + (", which began earlier" if known else "")
        self._skipped.append((run.row.path, said))

    def report(self) -> RankReport:
        if not self._runs and self._first is not None:
            raise self._first
        return rank_report(self._runs, self._functions.rows(), self._skipped)


def _apart(a: RankRun, b: RankRun) -> bool:
    """Return whether two ranks belong to different jobs."""
    if _other_job(a.job or "", b.job or ""):
        return True
    if a.began_ns is None or b.began_ns is None or a.ended_ns is None or b.ended_ns is None:
        return False
    apart = 0 if a.row.host is not None and a.row.host == b.row.host else _CLOCKS_NS
    return a.ended_ns + apart < b.began_ns or b.ended_ns + apart < a.began_ns


def _other_job(a: str, b: str) -> bool:
    """Return whether two ranks have different values of settings that the ranks of a job share.

    A launcher may set a variable on some machines only, and spell its own machine's name
    differently.
    """
    one, other = (dict(_fact(fact) for fact in text.split()) for text in (a, b))
    return any(
        one[name] != other[name]
        and not (name == "MASTER_ADDR" and (_is_local(one[name]) or _is_local(other[name])))
        for name in one.keys() & other.keys()
    )


def _fact(text: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=")
    return name, value


def _is_local(host: str) -> bool:
    return host in ("localhost", "0.0.0.0", "::", "::1") or host.startswith("127.")


class _Functions:
    """The function tables of all ranks, added up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int, str, str], FunctionTotal] = {}

    def add(self, table: Sequence[FunctionRow], rank: int) -> None:
        other = ("", "", 0, "", OTHER_FUNCTIONS)
        # Of this rank alone: a row may combine several functions.
        own: dict[tuple[str, str, int, str, str], FunctionTotal] = {}
        for row in table:
            key = (row.kind, row.file, row.line, row.name, row.qualname)
            if key not in self._rows and len(self._rows) + len(own) >= MAX_FUNCTIONS:
                key = other
            one = FunctionTotal(
                key[4], key[1], key[2], key[0], 1, row.calls, row.self_ms, row.cum_ms,
                row.self_ms, rank,
            )  # fmt: skip
            own[key] = _sum(own[key], one) if key in own else one
        for key, total in own.items():
            total = replace(total, ranks=1, max_self_ms=total.self_ms, max_rank=rank)
            known = self._rows.get(key)
            self._rows[key] = total if known is None else _sum(known, total)

    def rows(self) -> list[FunctionTotal]:
        return sorted(self._rows.values(), key=lambda row: -row.self_ms)


def _sum(a: FunctionTotal, b: FunctionTotal) -> FunctionTotal:
    most = a if a.max_self_ms >= b.max_self_ms else b
    return replace(
        a,
        ranks=a.ranks + b.ranks,
        calls=a.calls + b.calls,
        self_ms=a.self_ms + b.self_ms,
        cum_ms=a.cum_ms + b.cum_ms,
        max_self_ms=most.max_self_ms,
        max_rank=most.max_rank,
    )
