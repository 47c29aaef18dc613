"""Twelve planted causes of compiling on three programs, and four healthy ones, by real torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from compile_kit import WARNINGS, record, torch
from fastprof.findings.examine import examine
from programs import compiled_programs as programs

pytestmark = WARNINGS

FILE = programs.__file__

#: Backends: "eager" needs no C++ compiler; the same with inductor takes minutes.
BACKENDS = [
    "eager",
    pytest.param(
        "inductor",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(
                not shutil.which("g++"), reason="needs a C++ compiler: apt-get install g++"
            ),
        ],
    ),
]


def of_all(report: Any) -> list[Any]:
    found = examine(report)
    return [*found.findings, *found.notes]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


#: Cause -> the function's line, and its reason: kind, variable, dimension.
AGAIN = {
    "batch_end": ("network", "size", "x", 0),
    "attribute": ("network", "attribute", "self.scale", -1),
    "sequence": ("language", "size", "tokens", 1),
    "grad_mode": ("language", "mode", "whether gradients are enabled (torch.no_grad)", -1),
    "scalar": ("function", "value", "n", -1),
    "mutated_global": ("of_global", "global", "SCALE", -1),
    "limit": ("function", "value", "n", -1),
}
VALUES = {"batch_end": ("8", "5"), "sequence": ("4", "5", "6", "7"), "scalar": ("2", "3")}
#: Cause -> the line of the break, its kind and what it is.
BREAKS = {
    "prints": ("print", "print", "print"),
    "library": ("call", "call", "posix.getpid"),
    "item": ("item", "item", ".item()"),
    "control_flow": ("branch", "control flow", "a branch on a tensor's value"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cause", AGAIN)
def test_a_recompilation_has_its_function_variable_and_values(cause: str, backend: str) -> None:
    marker, kind, what, dim = AGAIN[cause]
    found = record(getattr(programs, cause)(backend)).compilations
    rows = [row for row in found.rows if row.reasons]
    assert [(row.file, row.line) for row in rows] == [(FILE, programs.line_of(marker))]
    assert (rows[0].reasons[0].kind, rows[0].reasons[0].what, rows[0].reasons[0].dim) == (
        kind, what, dim,
    )  # fmt: skip
    assert rows[0].reasons[0].values[: len(VALUES.get(cause, ()))] == VALUES.get(cause, ())
    assert bool(rows[0].limit) == (cause == "limit")
    assert not found.breaks


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cause", BREAKS)
def test_a_graph_break_has_the_programs_line(cause: str, backend: str) -> None:
    marker, kind, what = BREAKS[cause]
    report = record(getattr(programs, cause)(backend))
    (found,) = report.compilations.breaks
    assert (found.file, found.line) == (FILE, programs.line_of(marker))
    assert (found.kind, found.what) == (kind, what)
    (finding,) = (f for f in of_all(report) if f.rule == "compiling-again")
    assert f"compiled_programs.py:{found.line})" in " ".join(finding.evidence)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler: apt-get install g++")
def test_a_cold_cache_is_named_and_a_warm_one_has_hits(tmp_path: Path) -> None:
    cold = record(programs.cold_cache("inductor")).compilations
    assert cold.misses
    assert not cold.hits
    assert cold.cache == str(tmp_path / "cache")
    torch._dynamo.reset()
    warm = record(programs.cold_cache("inductor")).compilations
    assert warm.hits
    assert not warm.misses


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name", ["fixed", "marked_dynamic", "validated_uncompiled", "compiled_optimizer"]
)
def test_a_healthy_program_has_no_finding(name: str, backend: str) -> None:
    if backend == "inductor":  # an empty cache is a note if compiling takes 20 s, as it may
        for step in getattr(programs, name)(backend):
            step()
        torch._dynamo.reset()
    report = record(getattr(programs, name)(backend))
    assert report.compilations.times >= 1
    assert not [f for f in of_all(report) if f.rule == "compiling-again"]
    assert not report.compilations.again


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cause", [*AGAIN, *BREAKS, "cold_cache"])
def test_the_seconds_are_those_of_torchs_own_table(cause: str, backend: str) -> None:
    """torch's table of compile times is kept elsewhere than the metrics that fastprof reads."""
    times = torch._dynamo.utils.compilation_time_metrics
    names = ["_compile.compile_inner"]
    if cause == "cold_cache":  # the only one with a backward pass
        names.append("compile_fx.<locals>.bw_compiler")
    before = sum(sum(times.get(name, ())) for name in names)
    report = record(getattr(programs, cause)(backend))
    own_s = sum(sum(times.get(name, ())) for name in names) - before
    events = report.snapshot.compilations.events
    assert sum(event.total_ns for event in events) / 1e9 == pytest.approx(own_s, rel=0.05)
    # What reaches the limit is not compiled.
    assert report.snapshot.compilations.inside == tuple(
        number for number, event in enumerate(events) if not event.limit
    )
    # The report's figure is the run's phase, which torch's clock contains.
    apart_ns = sum(event.total_ns for event in events if event.limit)
    assert report.compilations.ms == (report.snapshot.phase_ns("compile") + apart_ns) / 1e6
    if (cause, backend) == ("sequence", "inductor"):  # the most seconds
        assert report.compilations.ms / 1e3 == pytest.approx(own_s, rel=0.05)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cause", ["batch_end", "grad_mode", "prints", "fixed"])
def test_what_is_compiled_is_the_same_without_fastprof(
    cause: str, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def counts(run: Any, folder: str) -> Any:
        """Return guards, graph breaks and uses of the caches, which are empty at first."""
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / folder))
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        before = torch._dynamo.utils.get_compilation_metrics()
        run(getattr(programs, cause)(backend))
        new = [m for m in torch._dynamo.utils.get_compilation_metrics() if m not in before]
        counters = {k: dict(v) for k, v in torch._dynamo.utils.counters.items()}
        caches = [getattr(m, "inductor_fx_local_cache_miss_count", None) for m in new]
        return counters, caches, [(m.co_name, m.guard_count, m.graph_op_count) for m in new]

    def unrecorded(steps: Any) -> None:
        for step in steps:
            step()

    counts(unrecorded, "first")  # the first compilation of a process has one frame more
    alone = counts(unrecorded, "alone")
    assert counts(record, "recorded") == alone


def test_what_compiles_before_and_after_the_run_is_not_counted() -> None:
    steps = programs.fixed("eager")
    steps[0]()
    assert record(steps).compilations is None
    handler = torch._dynamo.callback.callback_handler
    assert not handler.start_callbacks
    assert not handler.end_callbacks
