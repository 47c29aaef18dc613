"""Workers that record single batches, on each hook backend, without torch."""

from __future__ import annotations

import json
from pathlib import Path

from helpers import run_child

WORKER = """
import sys, time
from fastprof.session.loaders.worker_side import WorkerInit, _WorkerRecording

def slow():
    time.sleep(0.002)
    return sum(i for i in range(200))

init = WorkerInit(None, sys.argv[1], 3, sys.argv[2], 1024, windows=True)
worker = _WorkerRecording(init, 0)
for _ in range(100):
    worker._fetch_begins()
    slow()
    worker._fetch_ended(2_000_000)
worker._fetch_begins()
worker._fetch_ended(None)
worker._finish()
"""


def test_a_worker_records_few_of_its_batches(backend: str, tmp_path: Path) -> None:
    run_child(WORKER, str(tmp_path), backend)
    (path,) = tmp_path.glob("3-0-*.json")
    data = json.loads(path.read_text())
    names = [key[3] for key in data["keys"]]
    ((_, _, (_, keys, calls, *_)),) = data["threads"]
    recorded = sum(n for key, n in zip(keys, calls, strict=True) if names[key] == "slow")
    # At least 40 ms without recording follow one of 2 ms.
    assert 1 <= recorded <= 40
    assert data["fetches"][0] == 100 - recorded
    assert data["error"] == ""
