"""Invariants of every finding on any run: shares of a step, and the owners of their time."""

from __future__ import annotations

import re
from dataclasses import replace

from fastprof.report.findings import Finding
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Snapshot
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.findings_runs import (
    MS,
    c_function,
    calls,
    gpu_layer,
    loader,
    loads,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import Node, py

#: Rule -> the row of the split, or the section, that contains its time.
ROWS = {"gc-pressure": "gc", "cpu-contention": "cpu_wait", "data-loading": "data",
        "unaccounted": "(unaccounted)", "optimizer-share": "optimizer",
        "optimizer-unfused": "optimizer"}  # fmt: skip
#: Functions that the rules search for.
SOUGHT = (
    tensor("item"), tensor("clone"), tensor("cpu"),
    c_function("<built-in method builtins.print>", "print"),
    c_function("<built-in method gc.collect>", "gc.collect"),
    c_function("<method 'acquire' of '_thread.lock' objects>", "acquire"),
    c_function("<built-in method time.sleep>", "time.sleep"),
    torch_py("torch/serialization.py", "save"), torch_py("torch/optim/adam.py", "Adam.step"),
    torch_py("torch/optim/lbfgs.py", "LBFGS.step"),
    torch_py("torch/amp/grad_scaler.py", "GradScaler.update"),
    py("__iter__", 7, "/x/data.py", "BucketSampler.__iter__"), py("env_step", 9, "/x/rl.py"),
)  # fmt: skip
PHASES = ("data", "forward", "backward", "optimizer", "logging", "checkpoint", "communication")
KINDS = ("gc", "cpu_wait", "lock", "communication", "io", "other", "gpu_wait")


@st.composite
def runs(draw: st.DrawFn) -> Snapshot:
    """Draw a run whose tree contains more than its steps: earlier work must not count."""
    named = st.sampled_from(PHASES)
    weights = draw(st.dictionaries(named, st.floats(0, 1), min_size=1, max_size=6))
    rest = draw(st.floats(0, 1))
    whole = (sum(weights.values()) + rest) or 1.0
    phases = {name: 100 * weight / whole for name, weight in weights.items()}
    inside: dict[str, list[Node]] = {}
    for name, ms in phases.items():
        keys = draw(st.lists(st.sampled_from(SOUGHT), max_size=3))
        inside[name] = [calls(key, ms / (len(keys) + 1), draw(st.integers(1, 200))) for key in keys]
    # Work before the loop, together as long as sixty steps at most.
    inside[""] = [
        calls(key, draw(st.floats(0, 6000 / 43 / 4)), draw(st.integers(1, 200)))
        for key in draw(st.lists(st.sampled_from(SOUGHT), max_size=4))
    ]
    cuts = sorted(draw(st.lists(st.floats(0, 1), min_size=len(KINDS), max_size=len(KINDS))))
    made = run(
        phases,
        inside=inside,
        after_ms=6000,
        skipped=draw(st.integers(0, 3)),
        layer=draw(st.sampled_from([None, gpu_layer(0.5, {"data": 20})])),
        loaders=draw(st.sampled_from([(), (loader(20, workers=2, ready=20, blocked=19,
                                                  blocked_ns=19 * 90 * MS, loads=loads(50)),),
                                      (loader(20),)])),
        meta={"cpus": draw(st.integers(1, 8)),
              "process_cpu_ns": draw(st.integers(0, 10**11))},
    )  # fmt: skip
    # Functions of a run are no longer than the run.
    assert all(ns >= 0 for thread in made.threads for ns in thread.nodes.self_ns)
    whole_ns = made.steps.sum_ns
    edges = [0, *(round(cut * whole_ns) for cut in cuts)]
    split = [(kind, b - a) for kind, a, b in zip(KINDS, edges, edges[1:], strict=False)]
    split.append(("compute", whole_ns - edges[-1]))
    return replace(made, steps=replace(made.steps, split=tuple(split)))


def all_of(report: Report) -> tuple[Finding, ...]:
    assert not [reason for _, reason in report.examination.abstained if "failed" in reason]
    return (*report.findings, *report.examination.notes)


@given(runs())
@settings(max_examples=examples(150), deadline=None)
def test_no_finding_is_above_a_step_or_above_its_own_row(made: Snapshot) -> None:
    report = build_report(made)
    step_ms = report.steps.mean_ms or 0.0
    rows = {row.name: row.mean_ms for row in (*report.steps.split, *report.steps.rows)}
    for finding in all_of(report):
        if finding.unit == "%" and finding.rule != "all-reduce-share":  # a share of backward
            assert finding.value <= 100 + 1e-6, finding
        assert (finding.saving_ms or 0.0) <= step_ms * (1 + 1e-9), finding
        row = rows.get(ROWS.get(finding.rule, ""))
        if row is not None:
            assert finding.value <= 100 * row / step_ms + 1e-6, finding
            assert (finding.saving_ms or 0.0) <= row * (1 + 1e-9) + 1e-9, finding


@given(runs())
@settings(max_examples=examples(100), deadline=None)
def test_every_finding_has_something_to_do(made: Snapshot) -> None:
    for finding in all_of(build_report(made)):
        assert finding.fix, finding
        assert not [text for text in finding.fix if not text or text.startswith("Nothing")]


def test_no_finding_has_a_number_of_five_digits_in_a_row() -> None:
    inside = {"data": [calls(key, 20 / len(SOUGHT), 54321) for key in SOUGHT]}
    meta = {"torch_untrained": "net", "torch_untrained_size": 7447652,
            "torch_untrained_all": 7447652, "torch_untrained_share": 0.9}  # fmt: skip
    waits = loader(54321, workers=2, ready=12345, blocked=41976, blocked_ns=41976 * 90 * MS)
    made = run({"data": 60, "forward": 40}, inside=inside, meta=meta, loaders=(waits,))
    report = build_report(made)
    assert len(all_of(report)) >= 3
    for finding in all_of(report):
        said = "\n".join((finding.title, *finding.evidence, *finding.fix))
        assert not re.findall(r"\d{5}", said), said


def test_the_savings_of_all_findings_fit_into_a_step() -> None:
    made = run(
        {"data": 30, "forward": 20, "backward": 20, "optimizer": 10},
        inside={"data": [calls(tensor("item"), 12, 50)], "": [calls(tensor("clone"), 11, 9)]},
    )
    report = build_report(made)
    assert len(report.findings) >= 2
    assert sum(f.saving_ms or 0.0 for f in report.findings) <= 100
