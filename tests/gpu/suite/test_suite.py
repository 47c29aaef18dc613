"""The questions of the first day in pytest, one test each.

    python -m pytest -m gpu tests/gpu/suite

`bash tests/gpu/first_day` asks the same without pytest and keeps the answers;
tests/gpu/test_first_day.py tests the harness itself on the simulated device.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import fastprof
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import judge
import runner
from questions import QUESTIONS

SOURCE_PATH = str(Path(fastprof.__file__).resolve().parent.parent)


@pytest.fixture(scope="session")
def asking(tmp_path_factory: pytest.TempPathFactory) -> runner.Asking:
    path = os.pathsep.join(p for p in (SOURCE_PATH, os.environ.get("PYTHONPATH", "")) if p)
    data = tmp_path_factory.mktemp("first_day")
    env = runner.environment("torch", data) | {"PYTHONPATH": path}
    return runner.Asking(data, "torch", env, math.inf)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [one.name for one in QUESTIONS])
def test_the_device_answers(name: str, asking: runner.Asking) -> None:
    [question] = runner.wanted(None, [name])
    asking.ask(runner.wanted(None, question.compares) if question.compares else [question])
    found = judge.judge(question, judge.read(asking.answers, question))
    print(found.line())
    if found.verdict == judge.NOT_ASKED:
        pytest.skip(found.text)
    assert found.verdict == judge.PASS, found.text
