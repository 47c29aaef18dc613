"""Comparisons of a real loop with itself: every reported change is wrong."""

from __future__ import annotations

from pathlib import Path

import fastprof
import pytest
from fastprof.cli import main


@pytest.mark.slow
def test_runs_of_one_program_are_not_called_different(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.fprof" for i in range(8)]
    for path in paths:
        assert main(["demo", "--backend", "pure", "--steps", "100", "--save", str(path)]) == 0
    # In turns, so that a temporary load affects both sides; at a level at which this test fails by
    # chance once in a thousand times.
    comparison = fastprof.compare(paths[::2], paths[1::2], level=0.999)
    assert comparison.step is not None
    assert comparison.step.p is not None
    assert not comparison.changed
    functions = [row for row in comparison.functions if row.verdict]
    assert functions
    for before, after in zip(paths[::2], paths[1::2]):
        single = fastprof.compare(before, after).step
        assert single is not None
        assert single.p is not None or single.reason
