"""Converting a recorder's export to a snapshot: the parts of the GPU and the memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from fastprof.capture import convert
from fastprof.capture.convert import take_snapshot
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.results.report import build_report
from unit.gpu_runs import gpu_training_run
from unit.test_snapshot_gpu import packed


@dataclass
class FakeRecorder:
    """The part of a recorder that ``take_snapshot`` uses."""

    data: dict[str, Any]
    backend: None = None
    external_timer: bool = False
    sync: bool = False

    def export(self, **_wanted: Any) -> dict[str, Any]:
        return dict(self.data)


def exported(**more: Any) -> FakeRecorder:
    """Return an export with the trees of the hand-made GPU run."""
    run = gpu_training_run()
    names = ("backend", "clock", "fell_back", "new_threads_lost", "ended_threads")
    threads = [
        (t.ident, 0, [t.nodes.parent, t.nodes.key, t.nodes.calls, t.nodes.resumes, t.nodes.self_ns])
        for t in run.threads
    ]
    return FakeRecorder(
        {
            **dict.fromkeys(names, 0),
            "duration_ns": run.duration_ns,
            "keys": [(k.kind, k.file, k.line, k.name, k.qualname) for k in run.keys],
            "threads": threads,
            "sections": [],
            "steps": None,
            "counters": {},
            **more,
        }
    )


def test_what_the_collector_delivers_is_frozen_as_it_is():
    layer = gpu_training_run().gpu
    snapshot = take_snapshot(exported(gpu=layer.to_dict()))
    assert snapshot.gpu == layer
    assert fprof.parse(packed(snapshot), Limits()).gpu == layer


@pytest.mark.parametrize("more", [{}, {"gpu": None}])
def test_a_snapshot_without_a_gpu_layer_has_no_gpu(more):
    snapshot = take_snapshot(exported(**more))
    assert (snapshot.gpu, snapshot.memory) == (None, None)


def test_p9_figures_of_the_gpu_that_do_not_fit_cost_the_gpu_and_nothing_else():
    data = gpu_training_run().gpu.to_dict()
    data["sum_ns"] += 1
    snapshot = take_snapshot(exported(gpu=data))
    assert snapshot.gpu.status == "off"
    assert "gpu.sum_ns" in snapshot.gpu.reason
    assert fprof.parse(packed(snapshot), Limits()) == snapshot
    text = str(build_report(snapshot))
    assert "GPU: n/a, because the data of the GPU collector is inconsistent" in text
    assert "Model.forward" in text


def test_p9_figures_of_the_memory_that_do_not_fit_cost_the_memory_and_nothing_else():
    data = gpu_training_run().memory.to_dict()
    assert take_snapshot(exported(), memory=data).memory == gpu_training_run().memory
    data["device"] = -1
    snapshot = take_snapshot(exported(), memory=data, notes=("first",))
    assert snapshot.memory is None
    assert snapshot.notes[0] == "first"
    assert "memory.device" in snapshot.notes[1]


def test_code_that_does_not_count_as_the_profiler_s_is_where_it_is_looked_for() -> None:
    assert all(os.path.exists(path) for path in convert._NOT_OWN)


def test_steps_beside_a_block_without_the_hook_are_compared_without_waits_for_a_cpu() -> None:
    """The median of two and of three steps; where in a step the wait was is unknown."""
    block = (30, [(900, 500, [200]), (400, 0, [100])], [(500, 0, [100]), (2500, 1500, [500])] * 2)
    (row,) = convert._plain_steps([block], [7])
    assert (row.first, row.plain_ns, row.hooked_ns) == (30, 400, 750)
    assert row.sections == ((7, (88 + 100) // 2, 150),)
