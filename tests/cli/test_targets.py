"""``fastprof targets`` and the two short views of ``fastprof report``."""

from __future__ import annotations

import re

import pytest
from fastprof.cli import main, targets_command
from fastprof.findings.examine import limits
from fastprof.findings.thresholds import TARGETS
from fastprof.results.report import build_report
from unit.gpu_runs import gpu_training_run


def test_s1_35_the_targets_are_printed_with_what_to_do(capsys):
    assert main(["targets"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    for metric, target in (
        ("GPU utilization", ">80 %"), ("GPU memory", "85-95 %"), ("Step time variance", "<10 %"),
        ("Data loading", "<10 %"), ("Forward pass", "35-40 %"), ("Backward pass", "40-45 %"),
        ("Optimizer", "<15 %"),
    ):  # fmt: skip
        assert re.search(rf"^{re.escape(metric)} +{re.escape(target)}  ", out, re.MULTILINE)
    assert next(t.metric for t in TARGETS) == "GPU utilization"
    assert "If too low" in out
    assert "If too high" in out


def test_s2_17_expected_shares_are_printed_with_the_targets(capsys):
    main(["targets"])
    assert (
        "Data loading 5-10 %, Forward pass 30-40 %, Backward pass 40-50 %, Optimizer step 5-10 %"
    ) in " ".join(capsys.readouterr().out.split())


def test_e10_every_limit_is_printed_with_its_origin(capsys):
    main(["targets"])
    text = " ".join(capsys.readouterr().out.split())
    for limit in limits():
        assert f"{limit.metric}: {limit.origin}" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_the_tables_are_no_wider_than_the_terminal(columns):
    text = targets_command.lines(columns)
    assert max(map(len, text)) <= columns


def test_targets_takes_no_argument(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["targets", "x"])
    assert ended.value.code == 2
    assert "no argument 'x'" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.fprof"
    build_report(gpu_training_run()).save(path)
    return str(path)


def test_s1_29_the_checklist_of_a_saved_run_has_seven_lines(saved, capsys):
    assert main(["report", saved, "--checklist"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert all(re.match(r"\[(yes|no|n/a)\]", line) for line in lines)


def test_findings_of_a_saved_run_are_shown_in_full(saved, capsys):
    assert main(["report", saved, "--findings"]) == 0
    out = capsys.readouterr().out
    assert "source of the limit:" in out
    assert "Not checked:" in out
    assert "- Waiting for the slowest rank: one rank only" in out
    assert "Where a step goes" not in out
