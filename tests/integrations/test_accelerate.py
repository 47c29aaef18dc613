"""Accelerate: sections and their times, against planted sleeps."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import re
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

import fastprof  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import ProfileKwargs  # noqa: E402
from fastprof.integrations._session.common import operator_options  # noqa: E402
from fastprof.integrations.accelerate import FastprofKwargs, attach, profile  # noqa: E402
from helpers import run_command  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from trainer_kit import Items, Net, Planted, SlowSGD, mean_loss, rows_add_up  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PHASES = ("data", "forward", "backward", "optimizer")


@pytest.fixture(autouse=True)
def _fresh_state() -> Any:
    yield
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


@pytest.fixture
def planted() -> Planted:
    return Planted()


def loader(planted: Planted, batches: int, ms: float = 10, what: str = "data") -> Any:
    return DataLoader(Items(planted, batches, ms, what), batch_size=1)


def job(accelerator: Any, planted: Planted, *loaders: Any) -> tuple[Any, ...]:
    net = Net(planted)
    return tuple(accelerator.prepare(net, SlowSGD(net.parameters(), planted), *loaders))


def train(accelerator: Any, planted: Planted, model: Any, optimizer: Any, batches: Any) -> None:
    for batch in batches:
        with accelerator.accumulate(model):
            loss = mean_loss(model(batch), planted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()


def validate(planted: Planted, model: Any, batches: Any) -> None:
    model.eval()
    with torch.no_grad():
        for batch in batches:
            model(batch)
    model.train()


class Kept:
    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, values: Any, step: int) -> None:
        self.calls.append((dict(values), step))


def options(**more: Any) -> dict[str, Any]:
    return {"functions": False, "skip_first": 0, "log_every": 1, "logger": Kept(), **more}


def test_s4_02_each_phase_has_the_time_planted_in_it(planted) -> None:
    accelerator, kept = Accelerator(cpu=True), Kept()
    model, optimizer, batches = job(accelerator, planted, loader(planted, 8))
    before = [dict(vars(x)) for x in (accelerator, optimizer)]
    iterate = vars(accelerate.data_loader.DataLoaderShard)["__iter__"]
    profiling = attach(accelerator, loaders={"main": batches}, **options(logger=kept))
    train(accelerator, planted, model, optimizer, batches)
    profiling.detach()
    report = profiling.report().in_phase("all")
    # One batch is read ahead: the first next() reads two, the last one none.
    assert report.section("data").count == 8
    assert report.section("data").total_ms >= planted.total("data") * 0.999
    planted.check(report.section("forward"), "forward", "loss", count=8)
    planted.check(report.section("backward"), "backward", count=8)
    planted.check(report.section("optimizer"), "optimizer", count=8)
    assert report.section("h2d").count == 8
    assert report.steps.count == 8
    rows_add_up(report)
    assert report.meta["framework"] == "accelerate"
    assert [step for _, step in kept.calls] == list(range(1, 9))
    assert sorted(kept.calls[0][0]) == sorted(f"profile/train/dl_main/time_{p}_ms" for p in PHASES)
    assert sorted(kept.calls[1][0]) == sorted(
        ["profile/train/time_batch_wait_ms"]
        + [f"profile/train/dl_main/time_{p}_ms" for p in (*PHASES, "batch_wait")]
    )
    # Restored exactly.
    assert [dict(vars(x)) for x in (accelerator, optimizer)] == before
    assert vars(accelerate.data_loader.DataLoaderShard)["__iter__"] is iterate
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_s4_10_accumulation_emits_once_per_optimizer_step(planted) -> None:
    accelerator, kept = Accelerator(cpu=True, gradient_accumulation_steps=4), Kept()
    model, optimizer, batches = job(accelerator, planted, loader(planted, 10))  # 4 + 4 + 2
    with attach(accelerator, **options(logger=kept)) as profiling:
        train(accelerator, planted, model, optimizer, batches)
    report = profiling.report().in_phase("all")
    assert report.steps.count == 3
    assert [step for _, step in kept.calls] == [1, 2, 3]
    planted.check(report.section("optimizer"), "optimizer", count=3)
    planted.check(report.section("backward"), "backward", count=10)
    last = profiling.profiler.last_metrics
    assert last["profile/train/dl_loader0/time_forward_ms"].count == 2
    assert last["profile/train/dl_loader0/time_optimizer_ms"].count == 1
    rows_add_up(report)


def test_s4_11_interleaved_loaders_keep_their_work(planted) -> None:
    accelerator, kept = Accelerator(cpu=True), Kept()
    model, optimizer, main, aux = job(
        accelerator, planted, loader(planted, 4, 10), loader(planted, 2, 30, "slow_data")
    )
    with attach(accelerator, loaders={"main": main, "aux": aux}, **options(logger=kept)) as prof:
        sources = {"main": iter(main), "aux": iter(aux)}
        for name in ("main", "aux", "main", "main", "aux", "main"):
            train(accelerator, planted, model, optimizer, [next(sources[name])])
    loaders = {row.name: row for row in prof.report().in_phase("all").loaders}
    assert (loaders["main"].batches, loaders["aux"].batches) == (4, 2)
    assert loaders["aux"].data_ms >= 30
    assert loaders["aux"].forward_ms >= 16
    assert loaders["aux"].optimizer_ms >= 11
    assert prof.report().in_phase("all").steps.count == 6


def test_s4_03_validation_has_its_own_keys_and_is_in_no_step(planted) -> None:
    accelerator, kept = Accelerator(cpu=True), Kept()
    model, optimizer, batches, val = job(
        accelerator, planted, loader(planted, 3), loader(planted, 4, 15, "val_data")
    )
    with attach(accelerator, **options(logger=kept)) as profiling:
        for _ in range(2):
            train(accelerator, planted, model, optimizer, batches)
            validate(planted, model, val)
    report = profiling.report().in_phase("all")
    keys = {k for values, _ in kept.calls for k in values if "/val/" in k}
    assert keys == {f"profile/val/dl_loader0/time_{p}_ms" for p in ("data", "forward")}
    assert report.section("eval").count == 2
    assert "eval" not in {row.name for row in report.steps.rows}
    assert report.steps.count == 6
    rows_add_up(report)
    loaders = {(row.split, row.name): row for row in report.loaders}
    assert loaders["val", "loader0"].batches == 8
    assert loaders["val", "loader0"].forward_ms >= 10
    assert loaders["val", "loader0"].data_ms >= 15
    assert loaders["train", "loader0"].batches == 6
    assert profiling.profiler.last_metrics["profile/val/dl_loader0/time_forward_ms"].count == 4


def test_a_step_with_a_closure_leaves_the_phases_apart(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4))
    with attach(accelerator, **options()) as profiling:
        for batch in batches:

            def closure(batch: Any = batch) -> Any:
                optimizer.zero_grad()
                loss = mean_loss(model(batch), planted)
                accelerator.backward(loss)
                return loss

            optimizer.step(closure)
    report = profiling.report().in_phase("all")
    planted.check(report.section("forward"), "forward", "loss", count=4)
    planted.check(report.section("backward"), "backward", count=4)
    planted.check(report.section("optimizer"), "optimizer", count=4)
    assert report.steps.count == 4
    rows_add_up(report)


def test_what_is_prepared_after_attach_is_recorded(planted) -> None:
    accelerator = Accelerator(cpu=True)
    with attach(accelerator, **options()) as profiling:
        model, optimizer, batches = job(accelerator, planted, loader(planted, 3))
        torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps the existing step()
        train(accelerator, planted, model, optimizer, batches)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
    report = profiling.report().in_phase("all")
    planted.check(report.section("optimizer"), "optimizer", count=3)
    planted.check(report.section("forward"), "forward", "loss", count=3)
    assert report.section("clip_grad").count == 1
    optimizer.step()  # restored after the end


def test_checkpoints_are_a_section(planted, tmp_path) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 2))
    with attach(accelerator, **options()) as profiling:
        train(accelerator, planted, model, optimizer, batches)
        accelerator.save_state(str(tmp_path / "state"))
    assert profiling.report().in_phase("all").section("checkpoint").count == 1


def test_an_exception_in_the_loop_passes_and_ends_the_run(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4))

    def loop(profiling: Any) -> None:
        for i, batch in enumerate(batches):
            loss = mean_loss(model(batch), planted)
            if i == 2:
                raise ZeroDivisionError("planted")
            accelerator.backward(loss)
            optimizer.step()

    with pytest.raises(ZeroDivisionError, match="planted"):
        with attach(accelerator, **options()) as profiling:
            loop(profiling)
    assert not profiling.profiler.running
    report = profiling.report().in_phase("all")
    assert report.section("forward").count == 3
    assert report.steps.count == 2
    assert "backward" not in vars(accelerator)


def test_end_training_ends_the_run_and_metrics_go_to_the_trackers(planted, tmp_path) -> None:
    from accelerate.tracking import GeneralTracker

    calls: list[Any] = []

    class Tracker(GeneralTracker):
        name, requires_logging_directory = "kept", False
        tracker = None

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: Any, step: Any = None, **kwargs: Any) -> None:
            calls.append((values, step))

    accelerator = Accelerator(cpu=True, log_with=Tracker())
    accelerator.init_trackers("test")
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4))
    profiling = attach(accelerator, functions=False, log_every=2)
    train(accelerator, planted, model, optimizer, batches)
    accelerator.end_training()
    assert not profiling.profiler.running
    assert [step for _, step in calls] == [2, 4]
    assert "profile/train/dl_loader0/time_data_ms" in calls[0][0]


def test_without_prepared_loaders_steps_end_at_the_next_forward(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer = job(accelerator, planted)
    with attach(accelerator, **options()) as profiling:
        train(accelerator, planted, model, optimizer, [torch.ones(1, 4)] * 3)
    report = profiling.report().in_phase("all")
    assert report.steps.count == 3
    planted.check(report.section("forward"), "forward", "loss", count=3)
    rows_add_up(report)


def test_s4_01_s2_13_switched_off_nothing_is_touched(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 2))
    before = [dict(vars(x)) for x in (accelerator, optimizer)]
    for off in ({"enabled": False}, {"profile_training": False}):
        kept = Kept()
        with attach(accelerator, **options(logger=kept), **off) as profiling:
            assert [dict(vars(x)) for x in (accelerator, optimizer)] == before
            assert not model._forward_hooks
            train(accelerator, planted, model, optimizer, batches)
        assert not kept.calls
        assert not profiling.profiler.last_metrics


def test_s4_08_only_the_primary_rank_logs(planted, monkeypatch) -> None:
    from fastprof.integrations._session import session

    new = session._new_profiler
    monkeypatch.setattr(session, "_new_profiler", lambda options: new({**options, "rank": 1}))
    accelerator, kept = Accelerator(cpu=True), Kept()
    model, optimizer, batches = job(accelerator, planted, loader(planted, 2))
    with attach(accelerator, **options(logger=kept)) as profiling:
        train(accelerator, planted, model, optimizer, batches)
    assert not kept.calls
    assert profiling.profiler.last_metrics


def test_s4_18_a_failing_hook_does_not_stop_training(planted, monkeypatch, caplog) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 3))
    with attach(accelerator, **options()) as profiling:
        monkeypatch.setattr(profiling, "before_fetch", lambda split: 1 / 0)
        train(accelerator, planted, model, optimizer, batches)
    assert len(planted.ms["optimizer"]) == 3
    assert len([r for r in caplog.records if "ZeroDivisionError" in r.getMessage()]) == 1
    assert any("ZeroDivisionError" in note for note in profiling.report().in_phase("all").notes)


def test_a_run_of_the_program_is_joined(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 3))
    with fastprof.Profiler(functions=False) as prof:
        with attach(accelerator, **options()) as profiling:
            train(accelerator, planted, model, optimizer, batches)
        assert prof.running
        assert profiling.profiler is prof
    assert prof.steps == 3


def test_s2_14_align_ranks_is_one_barrier(planted, monkeypatch) -> None:
    accelerator = Accelerator(cpu=True)
    calls: list[int] = []
    monkeypatch.setattr(accelerator, "wait_for_everyone", lambda: calls.append(1))
    attach(accelerator, align_ranks=True, **options()).detach()
    assert calls == [1]


# -- ProfileKwargs


def test_s2_02_the_fields_and_defaults_are_accelerates() -> None:
    theirs = {f.name: f.default for f in dataclasses.fields(ProfileKwargs)}
    ours = {f.name: f.default for f in dataclasses.fields(FastprofKwargs)}
    ours.pop("options")
    assert ours == theirs
    assert theirs == {
        "activities": None,
        "schedule_option": None,
        "on_trace_ready": None,
        "record_shapes": False,
        "profile_memory": False,
        "with_stack": False,
        "with_flops": False,
        "with_modules": False,
        "output_trace_dir": None,
    }


def test_s2_01_s2_03_kwargs_of_an_accelerate_user_work_unchanged(planted, tmp_path) -> None:
    fields = {
        "activities": ["cpu", "cuda"],
        "with_stack": True,
        "with_flops": True,
        "with_modules": True,
        "output_trace_dir": str(tmp_path / "profile_traces"),
    }
    handler = FastprofKwargs(**fields, options={"functions": False, "skip_first": 0})
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    assert accelerator.profile_handler is handler
    model, optimizer, batches = job(accelerator, planted, loader(planted, 3))
    with accelerator.profile() as prof:
        for batch in batches:
            train(accelerator, planted, model, optimizer, [batch])
            with fastprof.profile_section("mine"):
                pass
            prof.step()
    assert prof.report().in_phase("all").steps.count == 3
    saved = fastprof.load(tmp_path / "profile_traces" / "profile_0.fprof").in_phase("all")
    assert saved.section("mine").count == 3


def test_s2_03_after_attach_it_records_into_that_run(planted) -> None:
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[FastprofKwargs(options={"functions": False})]
    )
    model, optimizer, batches = job(accelerator, planted, loader(planted, 3))
    with attach(accelerator, **options()) as profiling:
        with accelerator.profile() as prof:
            train(accelerator, planted, model, optimizer, batches)
        assert prof.profiler is profiling.profiler
        assert profiling.profiler.running


def test_s2_03_profile_counts_the_calls_of_step(planted, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain = ProfileKwargs(schedule_option={"wait": 1, "warmup": 1, "active": 1})
    accelerator = Accelerator(cpu=True, kwargs_handlers=[plain])
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4))
    with profile(accelerator, functions=False) as prof:
        for batch in batches:
            train(accelerator, planted, model, optimizer, [batch])
            prof.step()
    report = prof.report().in_phase("all")
    assert report.steps.count == 4
    assert report.section("backward").count == 4
    # S2-04: no directory, no file.
    assert not list(tmp_path.iterdir())


def test_s2_05_schedule_options_are_torchs() -> None:
    options = {"wait": 1, "warmup": 1, "active": 3, "repeat": 2}
    made = operator_options(ProfileKwargs(schedule_option=options))
    schedule = made["schedule"]
    theirs = torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=2)
    record = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)
    for step in range(14):
        assert schedule.records(step) == (theirs(step) in record)
    assert [s for s in range(14) if schedule.records(s)] == [2, 3, 4, 7, 8, 9]


def test_bad_fields_are_refused_with_the_name() -> None:
    with pytest.raises(ValueError, match="gpu"):
        FastprofKwargs(activities=["gpu"])
    with pytest.raises(ValueError, match="activ"):
        FastprofKwargs(schedule_option={"activ": 3})
    with pytest.raises(TypeError, match="no_such"):
        FastprofKwargs(options={"no_such": 1})


@pytest.mark.slow
def test_the_example_runs(tmp_path) -> None:
    script = Path(__file__).parents[2] / "examples" / "accelerate_loop.py"
    command = [sys.executable, "-W", "ignore", str(script)]
    out = run_command(command, timeout=300, cwd=tmp_path).check().stdout
    assert "29 steps of " in out
    # The text leaves out sections with almost no time, which the others may be on a busy machine.
    for name in ("forward", "backward"):
        assert re.search(rf"^{name} +[0-9.]+ ", out, re.MULTILINE), out


def test_functions_of_the_program_keep_their_names_and_ours_are_one(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 3, 1))
    with attach(accelerator, **options(functions=True)) as profiling:
        train(accelerator, planted, model, optimizer, batches)
    functions = profiling.report().in_phase("all").functions
    assert not [f.qualname for f in functions if "fastprof/integrations/" in f.file]
    (forward,) = [f for f in functions if f.qualname == "Net.forward"]
    assert forward.calls == 3


TWO_PROCESSES = """
import json, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from fastprof.integrations.accelerate import attach
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Linear(4, 1)
logged = []
model, optimizer, loader = accelerator.prepare(
    net,
    torch.optim.SGD(net.parameters(), lr=0.1),
    DataLoader(TensorDataset(torch.ones(24, 4)), batch_size=2),
)
with attach(
    accelerator, functions=False, log_every=1, logger=lambda values, step: logged.append(step)
) as profiling:
    for (x,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).sum())
            optimizer.step()
            optimizer.zero_grad()
report = profiling.report().in_phase("all")
counts = [report.section(name).count for name in ("data", "forward", "backward", "optimizer")]
result = json.dumps([accelerator.process_index, type(model).__name__, logged, counts])
# In one write: both processes have the same pipe, and torchrun switches buffers off.
print(f"RESULT {result}\\n", end="")
"""


@pytest.mark.slow
def test_s4_08_of_two_real_processes_one_logs(tmp_path) -> None:
    (tmp_path / "job.py").write_text(TWO_PROCESSES)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [sys.executable, "-W", "ignore", *launch, str(tmp_path / "job.py")]
    out = run_command(command, timeout=300, guard=False).check().stdout
    results = sorted(json.loads(x[7:]) for x in out.splitlines() if x.startswith("RESULT "))
    ddp = "DistributedDataParallel"
    assert results == [[0, ddp, [1, 2, 3], [6, 6, 6, 3]], [1, ddp, [], [6, 6, 6, 3]]]


@pytest.mark.parametrize("kind", [ProfileKwargs, FastprofKwargs])
def test_s2_05_each_cycle_keeps_its_trace(planted, tmp_path, kind) -> None:
    fired: list[int] = []
    handler = kind(
        activities=["cpu"],
        schedule_option={"wait": 1, "warmup": 1, "active": 3, "repeat": 2},
        on_trace_ready=lambda prof: fired.append(prof.step_num),
        output_trace_dir=str(tmp_path / "traces"),
    )
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    model, optimizer, batches = job(accelerator, planted, loader(planted, 11, 1))
    theirs = kind is FastprofKwargs
    with accelerator.profile() if theirs else profile(accelerator) as prof:
        for batch in batches:
            train(accelerator, planted, model, optimizer, [batch])
            prof.step()
    assert fired == [5, 10]
    names = [p.name for p in (tmp_path / "traces").iterdir()]
    assert len([name for name in names if "trace" in name]) == 2
    assert "profile_0.fprof" in names


def test_a_model_can_be_saved_and_copied_while_it_is_observed(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(torch.nn.Linear(1, 1), SlowSGD([torch.ones(1)], planted))
    batch = torch.ones(1, 1)
    with attach(accelerator, functions=False) as attachment:
        accelerator.backward(model(batch).sum())
        optimizer.step()
        twin, again = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        assert b"fastprof" not in pickle.dumps(model)
        twin(batch), again(batch)
        assert not torch.jit.script(model)._forward_hooks
    forward = next(
        row for row in attachment.report().in_phase("all").sections if row.name == "forward"
    )
    assert forward.count == 1


def test_attached_twice_each_step_counts_once(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4, 1))
    with attach(accelerator, functions=False) as first, attach(accelerator) as second:
        train(accelerator, planted, model, optimizer, batches)
    report = first.report().in_phase("all")
    assert first.profiler is second.profiler
    assert first.profiler.steps == 4
    assert {row.count for row in report.sections if row.name in PHASES[1:]} == {4}
    assert any("Two integrations" in note for note in report.snapshot.notes)


def test_what_the_program_frees_is_freed_while_it_is_observed(planted) -> None:
    accelerator = Accelerator(cpu=True)
    with attach(accelerator, functions=False):
        model, optimizer, batches = job(accelerator, planted, loader(planted, 2, 1))
        train(accelerator, planted, model, optimizer, batches)
        refs = [weakref.ref(item) for item in (model, optimizer, batches.dataset)]
        accelerator.free_memory()
        del model, optimizer, batches
        gc.collect()
        assert [ref() for ref in refs] == [None] * 3


def test_a_loader_that_the_program_times_is_not_timed_twice(planted) -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = job(accelerator, planted, loader(planted, 4, 1))
    with fastprof.Profiler(functions=False) as prof, attach(accelerator):
        train(accelerator, planted, model, optimizer, prof.loader(batches, name="mine"))
    assert prof.report().in_phase("all").section("data").count == 4
    assert [(row.name, row.batches) for row in prof.snapshot().loaders] == [("mine", 4)]
    assert prof.steps == 4
