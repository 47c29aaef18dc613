"""Replay files through the collector: the tables equal those of the recording."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import build_fake
import pytest
from fake_handles import FakeGpu
from helpers import time_scale

sys.path.insert(0, str(Path(__file__).resolve().parent))

import record
import replay_file

HERE = Path(__file__).resolve().parent
FILES = sorted((HERE / "fixtures").glob("*.json.gz"))
RELEASES = (11080, 12040, 12080, 13000, 13040)
OWN, INHERITED, CAPTURED, OTHER, UNKNOWN = range(5)


@pytest.fixture(scope="session")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake.compile_c(
        [HERE / "player.c"], tmp_path_factory.mktemp("player") / "player.so"
    )


def recorded(fake: FakeGpu, tier: str, release: int) -> tuple[replay_file.Replay, dict[str, Any]]:
    """Return a recording of program.py, and its printed tables."""
    library = fake.release(release)
    env = fake.env(cupti=library, FAKE_CUPTI_RELEASE=str(release))
    command = [sys.executable, str(HERE / "program.py"), tier]
    about = {"device": "simulated", "release": release, "tier": tier}
    replay, done = record.record(command, library, about, env)
    return replay, json.loads(done.stdout)


def played(path: Path, player: Path, fake: FakeGpu, tier: str) -> dict[str, Any]:
    """Return the tables of a replay in a separate process."""
    command = [sys.executable, str(HERE / "player.py"), str(path), str(player), tier]
    env = {**os.environ, "FASTPROF_CUDA_DRIVER": str(fake.driver)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=env, timeout=120 * time_scale()
    )
    assert done.returncode == 0, done.stderr
    tables: dict[str, Any] = json.loads(done.stdout)
    return tables


def by_how(gpu: dict[str, Any]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for row in gpu["activity"]:
        counts[row[4]] = counts.get(row[4], 0) + row[6]
    return counts


@pytest.mark.parametrize("tier", ["callbacks", "external"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_replay_gives_the_tables_of_the_recording(
    tier: str, release: int, fake_gpu: FakeGpu, player: Path, tmp_path: Path
) -> None:
    replay, before = recorded(fake_gpu, tier, release)
    path = tmp_path / "replay.json.gz"
    replay_file.save(replay, path)
    after = played(path, player, fake_gpu, tier)
    assert replay_file.load(path) == replay
    assert replay_file.recorded_totals(before) == replay.expected
    assert replay_file.recorded_totals(after) == replay.expected
    assert after["kernels"] == before["kernels"]
    assert after["sum_ns"] == before["sum_ns"]
    for name in ("records", "launches", "graph_launches", "syncs", "dropped", "truncated"):
        assert after["counters"][name] == before["counters"][name], name
    assert UNKNOWN not in by_how(before)
    assert UNKNOWN not in by_how(after)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_f49_committed_files_add_up(path: Path, fake_gpu: FakeGpu, player: Path) -> None:
    replay = replay_file.load(path)
    gpu = played(path, player, fake_gpu, replay.about["tier"])
    assert gpu["cupti_version"] == replay.cupti_version
    assert replay_file.totals(replay) == replay.expected
    assert replay_file.recorded_totals(gpu) == replay.expected
    assert gpu["sum_ns"] == sum(row[7] for row in gpu["activity"])
    assert UNKNOWN not in by_how(gpu)
    assert gpu["counters"]["truncated"] == gpu["counters"]["unknown_kind"] == 0


def test_files_are_there_for_every_layout_and_small() -> None:
    releases = {replay_file.load(path).about["release"] for path in FILES}
    assert releases >= set(RELEASES)
    assert max(path.stat().st_size for path in FILES) < 20_000


def test_an_activity_without_its_launch_is_seen(
    fake_gpu: FakeGpu, player: Path, tmp_path: Path
) -> None:
    """The check of unattributed work above can fail."""
    replay = replay_file.load(next(p for p in FILES if "callbacks" in p.name))
    kernel = next(r for r in replay_file.records(replay) if r[0] == replay_file.KERNEL)
    correlation = int.from_bytes(kernel[92:96], "little")
    without = [call for call in replay.calls if call.correlation != correlation]
    path = tmp_path / "less.json.gz"
    replay_file.save(replace(replay, calls=without), path)
    gpu = played(path, player, fake_gpu, "callbacks")
    assert replay_file.recorded_totals(gpu) == replay.expected
    assert by_how(gpu)[UNKNOWN] >= 1


def test_what_is_no_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json.gz"
    path.write_bytes(gzip.compress(b'{"format": "another"}'))
    with pytest.raises(ValueError, match="record it anew"):
        replay_file.load(path)


def test_a_log_without_records_says_so() -> None:
    with pytest.raises(ValueError, match="did the program use fastprof"):
        record.read_log(b"", {})
