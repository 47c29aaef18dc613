"""``fastprof targets``: the values of a healthy training run, and the limits of findings."""

import sys
from collections.abc import Sequence

from fastprof.cli.output import write_text
from fastprof.cli.parsing import Parser
from fastprof.findings.examine import limits
from fastprof.findings.thresholds import TARGETS, USUAL, Limit, amount
from fastprof.report.targets import PHASES
from fastprof.tables.cells import Table
from fastprof.tables.layout import table_lines, width_of, wrapped


def run(argv: Sequence[str]) -> int:
    """Print the targets and the limits of the findings with their origin."""
    parser = Parser(
        prog="fastprof targets",
        description="Print the values of a healthy training run and the limits of the findings.",
    )
    parser.parse_args(argv)
    write_text("\n".join(lines(width_of(sys.stdout))) + "\n")
    return 0


def lines(width: int) -> list[str]:
    """Return the two tables as lines of at most ``width`` columns."""
    targets = Table(
        "Targets",
        ("Metric", "Target", "If too low", "If too high"),
        tuple((t.metric, t.target, t.too_low, t.too_high) for t in TARGETS),
        left=frozenset({0, 1, 2, 3}),
    )
    of_findings = Table(
        "Limits of the findings",
        ("value", "note", "warning", "critical"),
        (
            *((i.metric, *_cells(i)) for i in limits()),
            *((u.metric, f"outside {u.text}", "-", "-") for u in USUAL.values()),
        ),
    )
    expected = ", ".join(f"{phase.title} {phase.usual.text} %" for phase in PHASES)
    shares = wrapped(f"Usual shares: {expected}.", width, rest="  ")
    out = [targets.title, *table_lines(targets, width), "", *shares, ""]
    out += [of_findings.title, *table_lines(of_findings, width), "", "Where the limits come from:"]
    sources = [(limit.metric, limit.origin) for limit in limits()]
    sources += [(usual.metric, usual.origin) for usual in USUAL.values()]
    for metric, origin in sources:
        out += wrapped(f"{metric}: {origin}", width, rest="  ")
    return out


def _cells(limit: Limit) -> tuple[str, str, str]:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{'<' if limit.low else '>'} {amount(value, limit.unit)}"

    return cell(limit.note), cell(limit.warning), cell(limit.critical)
