"""Greenlets: no crash and exact counts; fastprof does not promise to attribute their times."""

from __future__ import annotations

import gc

import pytest
from fastprof import profile_section
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from trees import counts

greenlet = pytest.importorskip("greenlet")


def leaf() -> None:
    pass


def test_f26_twenty_greenlets_and_two_hundred_switches(backend: str) -> None:
    main = greenlet.getcurrent()

    def body() -> None:
        for _ in range(10):
            with profile_section("inside"):
                leaf()
                main.switch()

    recorder = Recorder(backend=backend)
    recorder.start_sections()
    recorder.enable()
    tasks = [greenlet.greenlet(body) for _ in range(20)]
    for _ in range(10):
        for task in tasks:
            task.switch()
    # Python throws unfinished greenlets out of their frames.
    del task, tasks
    gc.collect()
    recorder.disable()
    recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (200, 0)
    assert counts(snapshot, "body") == (20, 0)
    assert sum(s.count + s.open for s in snapshot.sections) == 200
    for thread in snapshot.threads:
        assert all(ns >= 0 for ns in thread.nodes.self_ns)
