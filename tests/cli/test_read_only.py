"""Folders that cannot be written: the home, the current folder, the output's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import fastprof
import pytest
from helpers import ChildResult, run_child

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")

#: Becomes the command, without root's right to write anywhere.
WITHOUT_RIGHTS = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if ctypes.CDLL(None).prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
            sys.exit(77)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

PROGRAM = """
import fastprof, os, sys
def work(n):
    return n + 1
for path in sys.argv[1:]:
    os.chmod(path, 0o555)
for i in range(30):
    with fastprof.profile_section("forward"):
        work(i)
    fastprof.step()
print("end of the program")
"""


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that cannot be written, with a program in it."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def started(closed: Path, *words: str, **env: str) -> ChildResult:
    env = {"PYTHONPATH": SOURCE_PATH, "HOME": str(closed), "TMPDIR": str(closed), **env}
    done = run_child(WITHOUT_RIGHTS, *words, cwd=closed, env=env)
    if done.returncode == 77:
        pytest.skip("capabilities cannot be dropped")
    return done


@pytest.mark.parametrize("words", [["program.py"], ["-m", "fastprof", "program.py"]])
def test_p9_a_program_runs_where_nothing_can_be_written(closed: Path, words: list[str]) -> None:
    done = started(closed, *words, FASTPROF="1")
    assert done.returncode == 0, done.stderr
    assert "end of the program" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["run"], ["run", "-o", "."], ["run", "-o", "new"], ["-o", "x.fprof"]]
)
def test_p9_a_program_is_not_started_if_its_profile_has_no_place(
    closed: Path, words: list[str]
) -> None:
    done = started(closed, "-m", "fastprof", *words, "program.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "permission" in done.stderr.lower()
    assert os.listdir(closed) == ["program.py"]


def test_p9_a_folder_that_can_no_longer_be_written_is_not_named_as_written(
    closed: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept"
    out.mkdir()
    kept.mkdir()
    words = ["-m", "fastprof", "run", "-o", str(out), "program.py", str(out)]
    done = started(closed, *words, TMPDIR=str(kept))
    assert done.returncode == 0, done.stderr
    assert not os.listdir(out)
    assert "Wrote" not in done.stdout
    assert "fastprof report" not in done.stdout
    for name in os.listdir(kept):
        assert name in done.stderr
    assert sorted(name.rsplit(".", 1)[1] for name in os.listdir(kept)) == ["fprof", "stats"]
    out.chmod(0o755)


def test_p9_an_output_that_cannot_be_written_costs_the_file_alone(closed: Path) -> None:
    code = """
import fastprof
profiler = fastprof.Profiler(output="x.fprof")
profiler.start()
for _ in range(30):
    profiler.step()
profiler.stop()
print(profiler.report().measured_steps > 9)
"""
    closed.chmod(0o755)
    (closed / "program.py").write_text(code)
    closed.chmod(0o555)
    done = started(closed, "program.py")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert done.stderr.count("Permission denied") == 1
