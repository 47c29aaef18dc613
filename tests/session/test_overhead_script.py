"""The script that compares a job with profiling on and off."""

from __future__ import annotations

import json
import sys

import pytest
from helpers import ROOT, run_command

SCRIPT = str(ROOT / "benchmarks" / "overhead_onoff.py")


def test_s4_20_the_script_compares_steps_per_second_on_and_off(tmp_path) -> None:
    numbers = tmp_path / "numbers.json"
    command = [sys.executable, SCRIPT, "--rounds", "3", "--steps", "5", "--pure"]
    result = run_command([*command, "--json", str(numbers)]).check()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("pure Python job, 3 rounds of 5 steps")
    assert [line.split()[0] for line in lines[2:]] == ["off", "sections", "default"]
    speeds = json.loads(numbers.read_text())["speeds"]
    assert {mode: len(values) for mode, values in speeds.items()} == {
        "off": 3,
        "sections": 3,
        "default": 3,
    }
    assert all(value > 0 for values in speeds.values() for value in values)


@pytest.mark.parametrize("option", [["--rounds", "0"], ["--steps", "-1"], ["--rounds", "x"]])
def test_s4_20_bad_numbers_are_refused(option) -> None:
    assert run_command([sys.executable, SCRIPT, *option]).returncode == 2
