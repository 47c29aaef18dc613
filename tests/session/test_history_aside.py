"""What segments of a real run have of long steps, loader workers, and passes."""

from __future__ import annotations

import sys

import pytest
from fastprof.results.saved import load
from fastprof.snapshot.history import joined
from fastprof.snapshot.history_sums import Passes
from helpers import run_child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

BEGIN = """
import sys, time
import fastprof
from fastprof.session.history import part

part.SEGMENT_S = 0.1
"""


def whole(path):
    """Return all segments of a run as one."""
    history = load(path).snapshot.history
    assert history is not None
    one = history.segments[0]
    for other in history.segments[1:]:
        one = joined(one, other)
    return one


def test_long_steps_are_kept_with_their_section(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    code = (
        BEGIN
        + """
with fastprof.Profiler(output=sys.argv[1]) as prof:
    for i in range(400):
        with fastprof.profile_section("forward"):
            time.sleep(0.001)
        if i in (150, 300):
            with fastprof.profile_section("checkpoint"):
                time.sleep(2.0)
        prof.step()
"""
    )
    run_child(code, str(path)).check()
    history = load(path).snapshot.history
    section = [load(path).snapshot.keys[key].name for key in history.sections].index("checkpoint")
    rows = {
        row[0]: row
        for one in history.segments
        for steps in (one.full, one.plain)
        if steps.long is not None
        for row in steps.long.rows()
    }
    for number in (150, 300):
        _, wall_ns, of, section_ns, *_ = rows[number]
        assert wall_ns >= section_ns >= 2_000_000_000
        assert of == section


def test_passes_are_counted_in_their_segments(tmp_path) -> None:
    path = tmp_path / "run.fprof"
    code = (
        BEGIN
        + """
with fastprof.Profiler(output=sys.argv[1]) as prof:
    training, validation = (
        prof.loader(range(10**6), name="training"),
        prof.loader(range(3), name="validation", split="val"),
    )
    for i, batch in enumerate(training):
        time.sleep(0.001)
        if i % 100 == 50:
            for _ in validation:
                time.sleep(0.01)
        prof.step()
        if i == 500:
            break
"""
    )
    run_child(code, str(path)).check()
    one = whole(path)
    assert one.passes == Passes(5, 0)
    assert one.phases_ns[3] >= 5 * 3 * 10_000_000


def test_workers_of_the_training_loader_are_counted(tmp_path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "run.fprof"
    code = (
        BEGIN
        + """
import torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, i):
        time.sleep(0.005)
        return torch.zeros(2)

def main():
    loader = torch.utils.data.DataLoader(Slow(), num_workers=2, batch_size=2)
    with fastprof.Profiler(output=sys.argv[1]) as prof:
        for batch in prof.loader(loader):
            prof.step()

main()
"""
    )
    run_child(code, str(path)).check()
    segments = load(path).snapshot.history.segments
    known = [one.loading for one in segments if one.loading is not None]
    assert known
    assert all(one.workers == 2 for one in known)
    assert sum(one.blocked for one in known) > 0
    assert sum(one.batches for one in known) <= 200
    loads = sum(one.loads for one in known)
    assert loads > 0
    assert sum(one.load_ns for one in known) / loads >= 8_000_000
