"""The README's test command: which tests it runs, and when it fails."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
import run_tests
from helpers import ROOT


def test_each_test_file_is_in_one_shard_of_its_folder():
    shards = run_tests.shards()
    files = [path for shard in shards for path in shard]
    assert sorted(files) == sorted((ROOT / "tests").rglob("test_*.py"))
    assert all(len({path.parent for path in shard}) == 1 for shard in shards)
    assert max(map(len, shards)) <= run_tests.FILES


def test_the_longest_shards_begin_first():
    folders = list(dict.fromkeys(shard[0].parent.name for shard in run_tests.shards()))
    assert tuple(folders[: len(run_tests.LONG)]) == run_tests.LONG
    assert "unit" in folders[len(run_tests.LONG) :]


@pytest.mark.parametrize(
    ("statuses", "succeeds"),
    [([0, run_tests.NO_TESTS], True), ([0, 1], False), ([-11, 0], False)],
)
def test_one_failing_shard_fails_the_command(capsys, statuses, succeeds):
    code = (
        "import os, sys; status = int(sys.argv[1]); print('1 failed, 3 passed in 2 s', flush=True)"
    )
    code += "; os.kill(os.getpid(), -status) if status < 0 else sys.exit(status)"
    commands = [[sys.executable, "-c", code, str(status)] for status in statuses]
    assert run_tests.run_together(commands) is succeeds
    output = capsys.readouterr().out
    assert output.count("+ FAILED:") == (not succeeds)
    assert "all: 2 failed, 6 passed in" in output


def test_the_test_command_sees_an_editable_install(tmp_path: Path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    assert not run_tests.is_editable(python)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    info = packages / "fastprof-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fastprof\nVersion: 1\n")
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {}}')
    assert not run_tests.is_editable(python)
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    assert run_tests.is_editable(python)
