"""Text reports of the sections, every N steps and at the end.

They are cheap enough to print during training, because they need only the section rows of a
snapshot, and cover the run from its start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastprof.findings.thresholds import USUAL, line
from fastprof.names import printable_name
from fastprof.report.figures import plural
from fastprof.report.phase_names import BACKWARD, DATA, FORWARD
from fastprof.snapshot import Snapshot

_NS_PER_S = 1e9
_LONGEST_NAME = 200

#: Orders of the rows: by first use of the sections, or by total time, largest first.
SORTS = ("first", "total")

_SYNCHRONIZATION = ("synchronization",)

#: Limits of the remarks, as shares of the sum of all sections: those of the findings, with their
#: origin.  Forward is unusual above twice the lower end of its usual share.
DATA_EFFICIENT, DATA_BOTTLENECK = (line("data-share", grade) for grade in ("warning", "critical"))
BACKWARD_TO_FORWARD = line("backward-to-forward", "warning")
FORWARD_SHARE = 2 * (USUAL["forward"].share.low or 0.0)
SYNCHRONIZATION_SHARE = line("all-reduce-share", "warning")

NOTHING = '(no section was recorded: wrap code in "with fastprof.profile_section(name):")'


@dataclass(frozen=True, slots=True)
class Timing:
    """One section over all threads; times in seconds."""

    name: str
    count: int
    total_s: float
    min_s: float
    max_s: float

    @property
    def avg_s(self) -> float:
        """Mean duration of an entry."""
        return self.total_s / self.count


def timings(snapshot: Snapshot, sort: str = "first") -> list[Timing]:
    """Return the sections with at least one ended entry, in the given order."""
    merged: dict[str, Timing] = {}
    for row in sorted(snapshot.sections, key=lambda row: row.key):  # keys: by first use
        if row.count == 0:
            continue
        name = snapshot.keys[row.key].name
        new = Timing(
            name, row.count, row.sum_ns / _NS_PER_S, row.min_ns / _NS_PER_S, row.max_ns / _NS_PER_S
        )
        old = merged.get(name)
        if old is not None:
            new = Timing(
                name,
                old.count + new.count,
                old.total_s + new.total_s,
                min(old.min_s, new.min_s),
                max(old.max_s, new.max_s),
            )
        merged[name] = new
    rows = list(merged.values())
    if sort == "total":
        rows.sort(key=lambda row: -row.total_s)
    return rows


def periodic_report(rows: Sequence[Timing], step: int) -> str:
    return _report(f"=== Profiling Report (Step {step}) ===", rows)


def final_report(rows: Sequence[Timing], steps: int) -> str:
    """Return the report at the end of a run of ``steps`` steps, with insights."""
    text = _report(f"=== Final Profiling Summary ({plural(steps, 'step')}) ===", rows)
    lines = [f"- {line}" for line in insights(rows)]
    return text + "\n".join(["", "Performance Insights:", *lines]) + "\n"


def _report(title: str, rows: Sequence[Timing]) -> str:
    whole = sum(row.total_s for row in rows)
    details = [
        f"{printable(row.name)}: count={row.count}, total={row.total_s:.3f}s, "
        f"avg={row.avg_s:.4f}s, min={row.min_s:.4f}s, max={row.max_s:.4f}s"
        for row in rows
    ]
    shares = [f"{printable(row.name)}: {_percent(row.total_s, whole):.1f}%" for row in rows]
    lines = [
        title,
        "",
        "Detailed Breakdown:",
        *(details or [NOTHING]),
        "",
        "Time Distribution:",
        *shares,
    ]
    return "\n".join(lines) + "\n"


def insights(rows: Sequence[Timing]) -> list[str]:
    """Return remarks on ``rows``; leave out those whose section is missing."""
    if not rows:
        return []
    whole = sum(row.total_s for row in rows)
    slowest = max(rows, key=lambda row: row.avg_s)
    lines = [f"Slowest component: {printable(slowest.name)} ({slowest.avg_s:.4f}s avg)"]
    data = _named(rows, DATA)
    if data:
        lines.append(_data_insight(_total(data) / whole if whole else 0.0))
    forward, backward = _named(rows, FORWARD), _named(rows, BACKWARD)
    # Without a backward for comparison, a large forward has no meaning.
    if forward and backward and _total(forward) > FORWARD_SHARE * whole:
        lines.append(
            f"Forward pass takes {_percent(_total(forward), whole):.1f}% of total time: "
            "consider distillation, quantization, a smaller architecture, mixed precision "
            "(AMP) or gradient checkpointing"
        )
    if forward and backward:
        ratio = _average(backward) / _average(forward) if _average(forward) else 0.0
        if ratio > BACKWARD_TO_FORWARD:
            lines.append(
                f"Backward pass takes {ratio:.1f}x the forward pass (usually roughly equal): "
                "check for a memory bottleneck or gradient accumulation"
            )
    waiting = _named(rows, _SYNCHRONIZATION)
    if waiting and whole and _total(waiting) > SYNCHRONIZATION_SHARE * whole:
        lines.append(
            f"Synchronization takes {_percent(_total(waiting), whole):.1f}% of total time: "
            "check the network between the processes"
        )
    return lines


def _data_insight(share: float) -> str:
    percent = f"{100 * share:.1f}%"
    if share < DATA_EFFICIENT:
        return f"Data loading appears efficient ({percent} of total time)"
    fix = "raise num_workers, use faster storage or do less preprocessing"
    if share <= DATA_BOTTLENECK:
        return f"Warning: data loading takes {percent} of total time: {fix}"
    return f"Warning: data loading is a bottleneck ({percent} of total time): {fix}"


def _named(rows: Iterable[Timing], names: tuple[str, ...]) -> list[Timing]:
    return [row for row in rows if row.name in names]


def _total(rows: Iterable[Timing]) -> float:
    return sum(row.total_s for row in rows)


def _average(rows: Sequence[Timing]) -> float:
    return _total(rows) / sum(row.count for row in rows)


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def printable(name: str) -> str:
    """Return ``name`` on one line, without control characters, of bounded length.

    Section names may contain anything, and a terminal or a log obeys control characters.
    """
    return printable_name(name, _LONGEST_NAME)
