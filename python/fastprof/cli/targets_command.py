"""``fastprof targets``: what a healthy training run looks like, and where findings begin."""

from __future__ import annotations

from collections.abc import Sequence

from fastprof.cli.output import standard_output
from fastprof.cli.parsing import Parser
from fastprof.findings.thresholds import EXPECTED, LIMITS, TARGETS, USUAL, Limit, amount
from fastprof.render.text import table_lines
from fastprof.tables.cells import Table


def run(argv: Sequence[str]) -> int:
    """Print the targets and the limits of the findings with their origin."""
    parser = Parser(
        prog="fastprof targets",
        description="What a healthy training run looks like, and where findings begin.",
    )
    parser.parse_args(argv)
    with standard_output() as stream:
        stream.write("\n".join(lines()) + "\n")
    return 0


def lines() -> list[str]:
    """Return the two tables as lines."""
    targets = Table(
        "Targets",
        ("Metric", "Target", "If too low", "If too high"),
        tuple((t.metric, t.target, t.too_low, t.too_high) for t in TARGETS),
        left=frozenset({0, 1, 2, 3}),
    )
    limits = Table(
        "Limits of the findings",
        ("value", "note", "warning", "critical", "origin"),
        (
            *((i.metric, *_cells(i), i.origin) for i in LIMITS.values()),
            *((u.metric, f"outside {u.text}", "-", "-", u.origin) for u in USUAL.values()),
        ),
        left=frozenset({0, 4}),
    )
    expected = ", ".join(f"{name} {share} %" for name, share in EXPECTED)
    out = [targets.title, *table_lines(targets), "", f"Usual shares: {expected}.", ""]
    return [*out, limits.title, *table_lines(limits)]


def _cells(limit: Limit) -> tuple[str, str, str]:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{'<' if limit.low else '>'} {amount(value, limit.unit)}"

    return cell(limit.note), cell(limit.warning), cell(limit.critical)
