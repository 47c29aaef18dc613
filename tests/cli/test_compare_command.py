"""``fastprof compare``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import fastprof
import pytest
from fastprof.cli import main
from fastprof.cli.compare_command import MET, UNDECIDED
from unit.comparisons import function, normal, run

N = 200


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return runs of equal programs (a, a2) and one whose forward takes 20 % longer (b)."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {}
    for name, ms, seed in (("a", 8.0, 1), ("a2", 8.0, 2), ("b", 9.6, 3), ("b2", 9.6, 4)):
        forward = normal(ms, N, seed)
        report = run(
            [v + 2 for v in forward], {"data": [1.0] * N, "forward": forward},
            functions=[function("work", 10 * ms)],
        )  # fmt: skip
        paths[name] = str(folder / f"{name}.fprof")
        report.save(paths[name])
        report.save(folder / f"{name}.stats")
    return paths


def train(path: Path, layers: int, steps: int = 100) -> None:
    """Run a loop whose forward calls ``layer`` ``layers`` times."""

    def layer() -> None:
        time.sleep(0.0005)

    def forward() -> None:
        for _ in range(layers):
            layer()

    with fastprof.Profiler(functions=True, output=path) as profiler:
        for _ in profiler.loader(range(steps), name="main"):
            with fastprof.profile_section("forward"):
                forward()
            profiler.step()


def test_s0_25_two_saved_runs_of_100_steps_with_a_planted_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As in the guide: both runs write the same file name, and the user renames the first file.
    train(tmp_path / "train.fprof", layers=6)
    (tmp_path / "train.fprof").rename(tmp_path / "baseline.fprof")
    train(tmp_path / "train.fprof", layers=2)
    (tmp_path / "train.fprof").rename(tmp_path / "optimized.fprof")
    output = tmp_path / "changes.json"
    files = [str(tmp_path / "baseline.fprof"), str(tmp_path / "optimized.fprof")]
    assert main(["compare", *files, "-o", str(output)]) == 0
    (pair,) = json.loads(output.read_text())["pairs"]
    rows = {r["name"].rsplit(".", 1)[-1]: r["figures"] for r in pair["functions"]}
    assert rows["layer"]["calls"]["before"] == 6
    assert rows["layer"]["calls"]["after"] == 2
    # Sleeping takes at least the requested time; the excess depends on the machine.
    assert rows["forward"]["cum_ms"]["before"] >= 3.0
    assert [r["name"] for r in pair["loaders"]] == ["main (train)"]
    step = next(e for e in pair["effects"] if e["kind"] == "step")
    apart = fastprof.load(files[0]).steps.apart  # without the function hook
    assert step["steps"][0] + step["left_out"][0] == 100 - 3 - apart
    assert main(["compare", *files, "--full"]) == 0
    text = capsys.readouterr().out
    assert text.index("=== BASELINE ===") < text.index("=== OPTIMIZED ===")
    # Its qualified name, which 3.10 lacks.
    layer = next(r["name"] for r in pair["functions"] if r["name"].endswith("layer"))
    assert main(["compare", *files, "--fail-if", f"count('{layer}')<-3"]) == MET


def test_the_text_goes_to_stdout_and_conditions_to_stderr(
    saved: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", saved["a"], saved["b"]]) == 0
    shown = capsys.readouterr()
    assert "Step time: slower" in shown.out
    assert shown.err == ""
    assert (
        main(["compare", saved["a"], saved["b"], "--fail-if", "step>+3%", "--format", "json"])
        == MET
    )
    shown = capsys.readouterr()
    assert json.loads(shown.out)["changed"] is True
    assert "fastprof: --fail-if step>+3%: met: step 10." in shown.err


@pytest.mark.parametrize(
    ("after", "conditions", "code"),
    [
        ("b", ["step>+3%"], 1),
        ("b", ["step>+30%"], 0),
        ("b", ["step>+30%", "forward>+10%"], 1),
        ("a2", ["step>+0.1%", "forward>+0.1%", "data>+0.1%"], 0),
        ("b", ["step>12s"], 0),
        ("b", ["step>1ms"], 1),
    ],
)
def test_the_exit_status_says_whether_a_condition_is_met(
    saved: dict[str, str], after: str, conditions: list[str], code: int
) -> None:
    options = [part for text in conditions for part in ("--fail-if", text)]
    assert main(["compare", saved["a"], saved[after], *options]) == code


def test_what_cannot_be_decided_has_its_own_status(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.fprof", "b.fprof")]
    for path, ms in zip(paths, (10.0, 20.0)):
        run([ms] * 9).save(path)
    assert main(["compare", *paths, "--fail-if", "step>+3%"]) == UNDECIDED == 3
    assert main(["compare", *paths, "--fail-if", "step>+3%", "--undecided", "pass"]) == 0
    assert main(["compare", *paths, "--fail-if", "step>+3%", "--undecided", "fail"]) == MET
    # A condition that is met decides; one that is not beyond its limit is decided.
    assert main(["compare", *paths, "--fail-if", "step>+3%", "--fail-if", "step>15ms"]) == MET
    assert main(["compare", *paths, "--fail-if", "step>+300%"]) == 0


def test_several_runs_per_side(saved: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["--before", saved["a"], saved["a2"], "--after", saved["b"], saved["b2"]]
    assert main(["compare", *sides, "--fail-if", "work>+3%"]) == MET
    shown = capsys.readouterr()
    assert "a.fprof and 1 more -> b.fprof and 1 more" in shown.out
    assert "significant over the runs" in shown.err


@pytest.mark.parametrize("suffix", ["txt", "md", "json"])
def test_output_files(saved: dict[str, str], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    assert main(["compare", saved["a"], saved["b"], "-o", str(path)]) == 0
    assert "forward" in path.read_text()


def test_bad_input_is_exit_status_2_and_one_line(
    saved: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = saved["a"], saved["b"]
    (tmp_path / "bad.fprof").write_bytes(b"{}")
    for args, what in (
        ([a], "1 run to compare"),
        ([], "0 runs to compare"),
        ([a, "--before", b], "either two or more files, or both"),
        (["--before", a], "either two or more files, or both"),
        ([a, str(tmp_path / "missing.fprof")], "missing.fprof"),
        ([a, str(tmp_path / "bad.fprof")], "neither a saved run"),
        ([a, b, "--fail-if", "step>>3"], "condition 'step>>3'"),
        ([a, b, "--fail-if", "nothing>+3%"], "nothing is called 'nothing'"),
        ([a, b, "-o", str(tmp_path / "x.pdf")], "cannot tell the format of"),
        ([a, b, "-o", str(tmp_path / "no" / "x.md")], "there is no directory"),
        ([a, b, "--level", "95"], "level is 95.0, expected 0.5 to 0.999 (0.95 is 95 %)"),
        ([a, b, "--noise", "-1"], "--noise is '-1', expected 0 to 100, e.g. --noise 2 for 2 %"),
        ([a, b, "--noise", "much"], "--noise is 'much', expected 0 to 100"),
        ([a, b, "--noise", "nan"], "--noise is 'nan', expected 0 to 100"),
    ):
        assert main(["compare", *args]) == 2, args
        shown = capsys.readouterr()
        assert what in shown.err
        assert shown.err.count("\n") == 1
        assert shown.out == ""


def test_noise_is_a_percentage(saved: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for noise in ("40", "40%", " 40 % "):
        assert main(["compare", saved["a"], saved["b"], "--noise", noise]) == 0
        assert "no significant change" in capsys.readouterr().out.splitlines()[1]


def test_the_format_is_named_as_in_every_command(
    saved: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [saved["a"], saved["a2"]]
    for wrong in (["--json"], ["--format", "yaml"]):
        with pytest.raises(SystemExit) as ended:
            main(["compare", *files, *wrong])
        assert ended.value.code == 2
    assert "is not one of text, json, html, markdown" in capsys.readouterr().err
    assert main(["compare", *files, "-o", str(tmp_path / "c.trace.json")]) == 2
    assert "use one of: .json .txt .html .htm .md" in capsys.readouterr().err
    path = tmp_path / "c.md"
    assert main(["compare", *files, "--format", "json", "-o", str(path)]) == 0
    assert json.loads(path.read_text())["runs"] == [1, 1]
    assert main(["compare", *files, "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# ")
