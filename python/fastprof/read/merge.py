"""Reading the files of a job's ranks, one after the other, into one report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fastprof.errors import LoadError
from fastprof.read.limits import Limits
from fastprof.read.load import load
from fastprof.read.newest import ranks_of_newest
from fastprof.report.model import Report
from fastprof.report.ranks import FunctionTotal, RankReport
from fastprof.report.ranks_build import rank_report, rank_row

_DEFAULT = Limits()

#: Functions kept apart; what comes later is added up in one row.
MAX_FUNCTIONS = 50_000
OTHER_FUNCTIONS = "(other functions)"


def merge(paths: Iterable[str | os.PathLike[str]], *, limits: Limits = _DEFAULT) -> RankReport:
    """Read one saved run per rank, and put the ranks beside each other.

    One file is in memory at a time.

    Args:
        paths: the ``.fprof`` files of the ranks of one job, in any order; a folder stands
            for all ranks of the newest job in it.
        limits: how large each file may be.

    Raises:
        LoadError: (a ValueError) a file is no saved run, or does not say which rank it is.
        ValueError: a rank is there twice, files are of different jobs, or there are none.
        OSError: a file cannot be read.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"paths is {paths!r:.80}, expected several paths, one per rank")
    rows = []
    functions = _Functions()
    seen: dict[int, str] = {}
    for path in _files(paths):
        report = load(path, limits=limits)
        name = os.fsdecode(path)
        try:
            row = rank_row(report, name)
        except ValueError as error:
            raise LoadError(f"{name!r}: {error}") from None
        rows.append(row)
        if row.rank in seen:
            rank_report(rows)  # says which two they are
        seen[row.rank] = name
        functions.add(report, row.rank)
        del report
    return rank_report(rows, functions.rows())


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    for path in paths:
        name = os.fsdecode(path)
        yield from ranks_of_newest(name) if os.path.isdir(name) else [name]


class _Functions:
    """The function tables of all ranks, added up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int, str, str], FunctionTotal] = {}

    def add(self, report: Report, rank: int) -> None:
        other = ("", "", 0, "", OTHER_FUNCTIONS)
        # Of this rank alone: a row may stand for several functions.
        own: dict[tuple[str, str, int, str, str], FunctionTotal] = {}
        for row in report.functions:
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
