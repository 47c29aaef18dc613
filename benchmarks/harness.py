"""Times candidates and shows the results: interleaved rounds, minima, ratios, one table.

On a shared machine the speed drifts by more than the differences to measure.  So the candidates of
a case take turns, round by round, within one run.  The fastest slice of each candidate counts,
because any disturbance makes a slice slower.  Results are ratios of two minima of the same run, not
absolute times.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

#: Number of runs per slice; the fastest counts.
_PARTS = 8

Cell = str | float | int | None


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    quick: bool = False
    rounds: int | None = None
    #: Programs of a case with many; empty: all.
    only: tuple[str, ...] = ()

    def pick(self, full: int, quick: int) -> int:
        """Return ``quick`` with ``--quick``, else ``full``."""
        return quick if self.quick else full

    def round_count(self, full: int, quick: int) -> int:
        return self.rounds if self.rounds is not None else self.pick(full, quick)


@dataclass(frozen=True)
class Table:
    """Rows under headers, with a caption above and remarks below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """The result of a case: tables to show, and their numbers for the JSON file."""

    name: str
    tables: tuple[Table, ...]
    data: Mapping[str, Any] = field(default_factory=dict)


class Case(Protocol):
    """A module of ``cases/``."""

    def run(self, options: Options) -> CaseResult: ...


@dataclass(frozen=True)
class Candidate:
    """A participant.  ``missing`` says why it cannot run; empty if it can."""

    name: str
    start: Callable[[], object] = lambda: None
    stop: Callable[[], object] = lambda: None
    missing: str = ""


@dataclass
class Samples:
    """The seconds of each slice of one candidate."""

    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def time_slice(candidate: Candidate, run: Callable[[int], object], repeat: int) -> float:
    """Return CPU seconds of ``run(1)`` while the candidate is on: the best of several short runs.

    The warm-up makes interleaving fair: switching a hook on or off makes the interpreter instrument
    or specialise every code object again at its next call.  Short runs may fit between two
    interruptions; the thread's CPU time excludes time in which another process had the processor.
    """
    part = max(1, repeat // _PARTS)
    best = math.inf
    candidate.start()
    try:
        run(max(1, repeat // 3))
        for _ in range(min(_PARTS, repeat)):
            begin = time.thread_time()
            run(part)
            best = min(best, time.thread_time() - begin)
    finally:
        candidate.stop()
    return best / part


def interleave(
    candidates: Sequence[Candidate], run: Callable[[int], object], repeat: int, rounds: int
) -> dict[str, Samples]:
    """Time every candidate once per round; each round begins with another candidate."""
    present = [c for c in candidates if not c.missing]
    samples = {c.name: Samples() for c in present}
    for number in range(rounds):
        first = number % len(present)
        for candidate in present[first:] + present[:first]:
            samples[candidate.name].seconds.append(time_slice(candidate, run, repeat))
    return samples


def settle() -> None:
    """Exclude existing objects from garbage collection, whose scans would hit random slices."""
    gc.collect()
    gc.freeze()


def child_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs a program of ``children.py`` in a separate process."""
    script = str(Path(__file__).with_name("children.py"))
    return [sys.executable, script, program, *map(str, arguments)]


def ratio(value: float | None, base: float | None) -> float | None:
    """Return ``value / base``; None if either is missing or the base is not above zero."""
    if value is None or base is None or base <= 0:
        return None
    return value / base


def machine() -> dict[str, Cell]:
    """Return the properties of the machine that a reader needs to judge the numbers."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.split(":", 1)[1].strip() for line in stream if "model name" in line]
        model = names[0] if names else model
    except OSError:
        pass
    return {
        "python": platform.python_version(),
        "compiler": platform.python_compiler(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "implementation": sys.implementation.name,
    }


def show(value: Cell) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, float):
        digits = 2 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else value


def render(table: Table) -> str:
    """Return the table as text: first column to the left, numbers to the right."""
    cells = [table.columns, *[tuple(show(c) for c in row) for row in table.rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [table.title]
    for number, row in enumerate(cells):
        parts = [row[0].ljust(widths[0])]
        parts += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(parts).rstrip())
        if number == 0:
            lines.append("  " + "  ".join("-" * width for width in widths))
    lines += ["  " + remark for remark in table.remarks]
    return "\n".join(lines)
