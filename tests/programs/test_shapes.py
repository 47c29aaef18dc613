"""Automatic sections on programs of known shapes, against the known truth."""

from __future__ import annotations

import time
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from fastprof.integrations import torch_loop  # noqa: E402
from fastprof.snapshot.run_phases import RUN_PHASES  # noqa: E402
from programs.naps import Naps  # noqa: E402
from programs.shapes import PROGRAMS  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def places(snapshot) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the calls of each nap by the sections around them, and by the phase of the run."""
    found: Counter[tuple[str, str]] = Counter()
    phases: Counter[tuple[str, str]] = Counter()
    for thread in snapshot.threads:
        nodes = thread.nodes
        for row, key in enumerate(nodes.key):
            name = snapshot.keys[key].name
            if not name.startswith("nap_") or not nodes.calls[row]:
                continue
            around, at = [], nodes.parent[row]
            while at > 0:
                if snapshot.keys[nodes.key[at]].kind == "section":
                    around.append(snapshot.keys[nodes.key[at]].name)
                at = nodes.parent[at]
            name = name.removeprefix("nap_")
            found["/".join(reversed(around)), name] += nodes.calls[row]
            phases[RUN_PHASES[nodes.phase[row]], name] += nodes.calls[row]
    return found, phases


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_nap_is_in_the_section_where_the_program_took_it(program, monkeypatch) -> None:
    if program.__name__ == "own_optimizer":
        # Other programs in this process have created an optimizer.
        monkeypatch.setattr(torch_loop, "has_optimizers", lambda: False)
    naps = Naps()
    with torch_loop.attach(functions=True, skip_first=0, log_every=None, gpu=False) as loop:
        began = time.perf_counter()
        truth = program(naps)
        wall_ms = 1e3 * (time.perf_counter() - began)
    snapshot, report = loop.profiler.snapshot(), loop.report().in_phase("all")
    assert snapshot.counters == {}
    found, phases = places(snapshot)
    assert found == Counter(truth.naps)
    assert {key: phases[key] for key in truth.run} == truth.run
    assert report.steps.count == truth.steps
    sections = {row.name: row for row in report.sections}
    if truth.sections:
        assert {name: row.count for name, row in sections.items()} == truth.sections
    assert {(r.split, r.name, r.batches) for r in snapshot.loaders if r.batches} == truth.loaders
    # A section is at least as long as its naps, and excludes naps elsewhere.
    for section, row in sections.items():
        inside = Counter({True: 0, False: 0})
        for (around, _), count in truth.naps.items():
            inside[section in around.split("/")] += count
        assert row.total_ms >= inside[True] * naps.ms_each
        assert row.total_ms <= wall_ms - inside[False] * naps.ms_each
