"""``fastprof report`` writes the exports that other programs read."""

from __future__ import annotations

import csv
import io

import pytest
from fastprof.cli import main
from fastprof.results.report import build_report
from unit.gpu_runs import gpu_training_run


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.fprof"
    build_report(gpu_training_run()).save(path)
    return str(path)


@pytest.mark.parametrize(
    ("name", "suffix", "begin"),
    [
        ("callgrind", ".callgrind", "# callgrind format\n"),
        ("csv", ".csv", "qualname,name,file,line,"),
        ("markdown", ".md", "### fastprof: 100 ms per step\n"),
    ],
)
def test_the_format_is_named_or_follows_from_the_suffix(
    name, suffix, begin, saved, tmp_path, capsys
):
    assert main(["report", saved, "--format", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(begin)
    path = tmp_path / f"out{suffix}"
    assert main(["report", saved, "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == shown
    assert capsys.readouterr().out == f"Wrote {path}\n"


def test_any_table_may_be_written_as_csv(saved, tmp_path, capsys):
    assert main(["report", saved, "--table", "sections"]) == 0
    shown = capsys.readouterr().out
    names = [row["name"] for row in csv.DictReader(io.StringIO(shown))]
    assert names == ["data", "forward", "backward", "optimizer"]
    path = tmp_path / "out.csv"
    assert main(["report", saved, "--table", "sections", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == shown


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--table", "rows"], "no table 'rows'; there are: 'functions'"),
        (["--table", "steps", "--format", "json"], "--table requires CSV output, not json"),
        (["--table", "steps", "-o", "x.md"], "--table requires CSV output, not markdown"),
    ],
)
def test_a_table_that_cannot_be_is_one_line_and_status_2(args, said, saved, capsys):
    assert main(["report", saved, *args]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
