"""``fastprof quickcheck``: four phases of a small network."""

from __future__ import annotations

import re
import sys

import pytest
from fastprof.cli import main, quickcheck_command

FOUR = [
    r"Data loading: \d+\.\d\d ms",
    r"Forward pass: \d+\.\d\d ms",
    r"Backward pass: \d+\.\d\d ms",
    r"Optimizer step: \d+\.\d\d ms",
]


def test_s2_16_four_lines_of_means(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert quickcheck_command.run(["--device", "cpu"]) == 0
    out = capsys.readouterr().out.splitlines()
    for line, pattern in zip(out[:4], FOUR, strict=True):
        assert re.fullmatch(pattern, line)
    assert "mean of 100 runs" in out[5]


def test_s2_17_the_expected_ratios_are_printed() -> None:
    text = quickcheck_command.lines([1.0, 4.0, 4.0, 1.0], "cpu", 100)
    assert text[:4] == [
        "Data loading: 1.00 ms",
        "Forward pass: 4.00 ms",
        "Backward pass: 4.00 ms",
        "Optimizer step: 1.00 ms",
    ]
    assert text[6:] == [
        "  Data loading: 10.0 % (expected 5-10 %)",
        "  Forward pass: 40.0 % (expected 30-40 %)",
        "  Backward pass: 40.0 % (expected 40-50 %)",
        "  Optimizer step: 10.0 % (expected 5-10 %)",
    ]


def test_e7_each_run_has_a_separate_graph() -> None:
    torch = pytest.importorskip("torch")
    means = quickcheck_command.measure(torch, "cpu", 3)
    assert len(means) == 4
    assert min(means) > 0


def test_without_torch_it_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["quickcheck"]) == 1
    assert "needs PyTorch" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--device", "nonsense"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if "--device" in arguments:
        pytest.importorskip("torch")
    assert main(["quickcheck", *arguments]) == 2
    assert capsys.readouterr().err.startswith("fastprof: ")
