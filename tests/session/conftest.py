"""Fixtures shared by the tests of runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from fastprof.session import current
from fastprof.session.outside import places


@pytest.fixture(autouse=True)
def no_run_is_left_behind() -> Iterator[None]:
    assert current.running() is None
    yield
    run = current.running()
    if run is not None:
        run.stop()
        pytest.fail("the test left a run going on")


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which processes announce themselves, of this test alone."""
    folder = tmp_path / "processes"
    monkeypatch.setenv(places.VARIABLE, str(folder))
    return folder


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program; return it when it has printed ``ready``."""
    begun: list[subprocess.Popen[str]] = []

    def start(
        code: str, env: Mapping[str, str], flags: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        script = tmp_path / "program.py"
        script.write_text(code)
        child = subprocess.Popen(
            [sys.executable, *flags, str(script)], env=env, text=True, cwd=tmp_path,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        begun.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n", child.communicate()
        return child

    yield start
    for child in begun:
        child.kill()
        child.communicate()
