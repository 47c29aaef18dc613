"""CPU times of operators, scaled to a measured step."""

from fastprof.findings.measurements import Facts
from fastprof.report.operators import OperatorReport, OperatorRow


def operator_ms(facts: Facts, *names: str, own: bool = False) -> float | None:
    """Return the CPU time of operators per step of their windows; None: not recorded.

    The first recorded name counts: its time includes the others.  On a disturbed machine these few
    steps say nothing about single operators.  Recording operators makes steps longer, so times are
    scaled to the length of the measured steps.
    """
    operators = facts.report.operators
    if operators is None or not operators.steps or facts.disturbed:
        return None
    for name in names:
        rows = [row for row in operators.rows if row.name == name]
        if rows:
            ms = sum(_cpu_ms(row, own=own) for row in rows) / operators.steps
            return ms * shrink(facts, operators)
    return 0.0


def copying_ms(facts: Facts) -> float | None:
    """Return the time per step of the calls that copy between host and GPU; None: not recorded.

    It is that of the copies, which recording does not make longer.
    """
    operators = facts.report.operators
    if operators is None or not operators.device or not operators.steps:
        return None
    rows = [r for r in operators.rows if r.name in ("cudaMemcpyAsync", "cudaMemcpy")]
    return sum(r.cpu_ms for r in rows) / operators.steps


def shrink(facts: Facts, operators: OperatorReport) -> float:
    """Return the ratio of a measured step to a step in the windows by torch.profiler; at most 1."""
    ms = sum(
        row.cpu_ms
        for row in operators.rows
        if row.name.startswith("ProfilerStep") and not row.on_device
    )
    return min(1.0, facts.span_ms * operators.steps / ms) if ms > 0 else 1.0


def _cpu_ms(row: OperatorRow, *, own: bool) -> float:
    return row.self_cpu_ms if own else row.cpu_ms
