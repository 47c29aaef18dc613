"""An operator window never stalls the program: its records are bounded, and the report says so."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.session.operators import limit as operators_limit
from fastprof.session.operators.limit import EventLimit
from fastprof.session.operators.profile import OperatorProfile
from helpers import ChildResult, run_child

torch = pytest.importorskip("torch")

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}
WINDOW = fastprof.Schedule(skip_first=1, warmup=1, active=3)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def chain(length: int) -> None:
    y = torch.ones(3, requires_grad=True)
    for _ in range(length):
        y = y * 1.0001
    y.sum().backward()


def run(options: OperatorProfile, lengths: list[int]) -> fastprof.Profiler:
    prof = fastprof.Profiler(functions=False, gpu=False, operators=options)
    with prof:
        for length in lengths:
            chain(length)
            prof.step()
    return prof


def cpu(**options: Any) -> OperatorProfile:
    return OperatorProfile(enable_cpu_profiling=True, **{"save_dir": None, **options})


# ---- the estimate ----


class Clock:
    def __init__(self) -> None:
        self.now = self.nodes = 0

    def __call__(self) -> int:
        return self.now


def step(limit: EventLimit, clock: Clock, *, nodes: int, ns: int, recorded: bool = False) -> None:
    limit.step_begins()
    clock.now += ns
    clock.nodes += nodes
    limit.step_ended(recorded=recorded)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(operators_limit, "_nodes_made", lambda: clock.nodes)
    return clock


def test_a_step_of_small_operators_has_few_events_per_node(clock: Clock) -> None:
    limit = EventLimit(50_000, clock)
    step(limit, clock, nodes=6000, ns=50_000_000)
    assert limit.step == 54_000
    assert limit.step_text() == "54,000"
    assert not limit.allows_another()


def test_a_step_of_large_operators_has_more(clock: Clock) -> None:
    limit = EventLimit(50_000, clock)
    step(limit, clock, nodes=400, ns=900_000_000)
    assert limit.step == 8000
    assert limit.allows_another()


def test_a_window_has_room_for_what_it_has_not_recorded(clock: Clock) -> None:
    limit = EventLimit(20_000, clock)
    limit.window_begins()
    step(limit, clock, nodes=400, ns=900_000_000)
    assert limit.allows_another()
    step(limit, clock, nodes=400, ns=900_000_000, recorded=True)
    assert limit.allows_another()
    step(limit, clock, nodes=400, ns=900_000_000, recorded=True)
    assert not limit.allows_another()
    limit.window_begins()
    assert limit.allows_another()


def test_what_a_window_counted_is_known_for_the_next(clock: Clock) -> None:
    limit = EventLimit(50_000, clock)
    limit.window_ended(90_000, 3)
    step(limit, clock, nodes=10, ns=1_000_000)
    assert limit.step == 30_000


def test_without_a_limit_everything_is_allowed(clock: Clock) -> None:
    limit = EventLimit(0, clock)
    step(limit, clock, nodes=10**9, ns=10**12)
    assert limit.allows_another()


def test_a_torch_that_does_not_count_nodes_keeps_nothing_from_being_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.autograd, "_get_sequence_nr", raising=False)
    limit = EventLimit(1, Clock())
    limit.step_begins()
    limit.step_ended(recorded=True)
    assert limit.allows_another()


def test_torch_counts_the_nodes_of_a_step() -> None:
    limit = EventLimit(1000)
    limit.step_begins()
    chain(1000)
    limit.step_ended(recorded=False)
    assert limit.step is not None
    assert 9000 <= limit.step <= 20_100


# ---- windows ----


def test_a_step_that_is_too_much_is_not_recorded_and_the_report_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = run(cpu(schedule=WINDOW, max_events=5000), [2000] * 8).report()
    assert report.operators is not None
    assert (report.operators.windows, report.operators.rows) == ((), ())
    assert report.snapshot.operators is not None
    assert report.snapshot.operators.events == 0
    (note,) = [n for n in report.notes if "Operators" in n]
    assert note.startswith("Operators were not recorded in steps 2 to 4: a step calls about ")
    assert "a window records at most 5,000. max_events=0 (--operator max_events=0)" in note
    assert note in caplog.messages
    assert not torch.autograd.profiler._is_profiler_enabled


def test_a_window_ends_before_the_step_that_is_too_much() -> None:
    # A step counts as 900 to 2020 events, depending on the machine: room for one or two.
    report = run(cpu(schedule=WINDOW, max_events=2500), [100] * 8).report()
    assert report.operators is not None
    ((first, last),) = report.operators.windows
    assert first == 2
    assert last < 4
    assert report.snapshot.operators is not None
    assert 0 < report.snapshot.operators.events <= 2500
    assert any("The operator window ended with step" in n for n in report.notes)
    assert not torch.autograd.profiler._is_profiler_enabled


def test_the_next_window_is_recorded_if_its_steps_are_small() -> None:
    options = cpu(schedule=replace(WINDOW, repeat=2), max_events=5000)
    report = run(options, [2000] * 5 + [3] * 8).report()
    assert report.operators is not None
    assert report.operators.windows == ((6, 8),)


def test_the_whole_run_as_one_window_ends_when_it_has_enough() -> None:
    report = run(cpu(max_events=3000), [100] * 10).report()
    assert report.operators is not None
    ((first, last),) = report.operators.windows
    assert first == 0
    assert last < 9
    assert any(
        n.startswith("The operator window ended with step") and "instead" not in n
        for n in report.notes
    )


def test_without_a_warm_up_the_step_before_is_counted() -> None:
    options = cpu(schedule=fastprof.Schedule(skip_first=4, warmup=0, active=2), max_events=5000)
    report = run(options, [2000] * 8).report()
    assert report.operators is not None
    assert report.operators.windows == ()


def test_without_a_limit_the_window_is_as_asked_for() -> None:
    report = run(cpu(schedule=WINDOW, max_events=0), [2000] * 6).report()
    assert report.operators is not None
    assert report.operators.windows == ((2, 4),)
    assert report.snapshot.operators is not None
    assert report.snapshot.operators.events > 50_000
    assert report.snapshot.operators.cost_ns > 0


def test_no_event_becomes_an_object_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("this takes a minute for a million events")

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", refuse)
    report = run(cpu(schedule=WINDOW), [3] * 8).report()
    assert report.operators is not None
    assert report.operators.rows
    assert report.snapshot.counters.get("operator_errors", 0) == 0


# ---- the collector ----


@pytest.mark.parametrize("enabled", [True, False])
def test_no_collection_happens_in_a_window_s_work(tmp_path: Path, enabled: bool) -> None:
    was = gc.isenabled()
    inside: list[bool] = []
    options = cpu(
        schedule=WINDOW, save_dir=tmp_path, on_trace_ready=lambda p: inside.append(gc.isenabled())
    )
    try:
        gc.enable() if enabled else gc.disable()
        threshold = gc.get_threshold()
        run(options, [30] * 8)
        # The program's own function sees the program's own setting.
        assert inside == [enabled]
        assert gc.isenabled() is enabled
        assert gc.get_threshold() == threshold
    finally:
        gc.enable() if was else gc.disable()


PROGRAM = """
import gc
import torch
torch.set_num_threads(1)
kept = [[i] for i in range(200_000)]  # a program with much for a full collection to walk
gc.collect()
before = gc.get_stats()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(60):
    y = torch.ones(4, 8)
    for _ in range(150):
        y = model(y)
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
full = gc.get_stats()[2]["collections"] - before[2]["collections"]
print("FULL", full, gc.isenabled(), gc.get_threshold())
"""
COMMAND = (
    "import sys\nfrom fastprof.cli import main\n"
    "sys.exit(main(['run', '-o', sys.argv[1], sys.argv[2]]))\n"
)


def profiled_child(folder: Path, program: str, **env: str) -> ChildResult:
    script = folder / "train.py"
    script.write_text(program + "import os\nprint('LEVEL', os.environ.get('KINETO_LOG_LEVEL'))\n")
    return run_child(COMMAND, str(folder / "out"), str(script), env={**ENV, **env})


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> ChildResult:
    return profiled_child(tmp_path_factory.mktemp("profiled"), PROGRAM)


def test_a_run_makes_no_full_collection_that_the_program_does_not(profiled: ChildResult) -> None:
    alone = run_child(PROGRAM, env=ENV)
    lines = [
        [line for line in child.stdout.splitlines() if line.startswith("FULL")]
        for child in (alone, profiled)
    ]
    assert lines[0] == lines[1] == [lines[0][0]]


# ---- torch's own collector ----


def test_kineto_is_quiet(profiled: ChildResult) -> None:
    assert "LEVEL None" in profiled.stdout
    assert "profiler_start" not in profiled.stderr


def test_kineto_is_as_the_user_wants_it(tmp_path: Path) -> None:
    short = PROGRAM.replace("200_000", "9").replace("range(60)", "range(8)").replace("150", "2")
    child = profiled_child(tmp_path, short, KINETO_LOG_LEVEL="5")
    assert "LEVEL 5" in child.stdout
    assert "profiler_start" in child.stderr
