"""A real PyTorch training loop: two loaders, validation, accumulation of 4, a scheduler."""

from __future__ import annotations

import warnings

import fastprof
import pytest
from fastprof import profile_section
from loops import GLOBAL_WAIT, Recording, train_keys, val_keys

torch = pytest.importorskip("torch")

ACCUMULATION = 4
MAIN_BATCHES, AUX_BATCHES, VAL_BATCHES, EPOCHS = 12, 4, 3, 2


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def dataset(batches: int, workers: int = 0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(batches * 8, 16, generator=generator)
    targets = (inputs.sum(1) > 0).long()
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, targets),
        batch_size=8,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )


def interleaved(main, aux):
    """Yield three batches of main, then one of aux."""
    iterator = iter(aux)
    for i, batch in enumerate(main):
        yield batch
        if i % 3 == 2:
            yield next(iterator)


def train(prof: fastprof.Profiler | None) -> list[float]:
    """Train and return every loss; with ``prof``, profile the same training."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 2)
    )
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    main, aux, held_out = dataset(MAIN_BATCHES), dataset(AUX_BATCHES, seed=1), dataset(VAL_BATCHES)
    if prof is not None:
        main = prof.loader(main, "main", weight=0.75)
        aux = prof.loader(aux, "aux", weight=0.25)
        held_out = prof.loader(held_out, "val_main", split="val")
        assert len(main) == MAIN_BATCHES
        assert main.batch_size == 8
    losses = []
    for _ in range(EPOCHS):
        model.train()
        for i, (inputs, targets) in enumerate(interleaved(main, aux)):
            with profile_section("forward"):
                loss = criterion(model(inputs), targets) / ACCUMULATION
            with profile_section("backward"):
                loss.backward()
            losses.append(float(loss.detach()))
            if i % ACCUMULATION == ACCUMULATION - 1:
                with profile_section("optimizer"):
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad(set_to_none=True)
                if prof is not None:
                    prof.step()
        model.eval()
        for inputs, targets in held_out:
            with profile_section("forward"), torch.no_grad():
                losses.append(float(criterion(model(inputs), targets)))
    return losses


STEPS = EPOCHS * (MAIN_BATCHES + AUX_BATCHES) // ACCUMULATION


@pytest.fixture(scope="module")
def observed():
    log = Recording()
    with fastprof.Profiler(logger=log, log_every=2, skip_first=1) as prof:
        losses = train(prof)
    return prof, log, losses


def test_the_training_is_not_changed_by_being_observed(observed) -> None:
    assert observed[2] == train(None)


def test_s4_12_exactly_these_keys_are_logged_at_these_steps(observed) -> None:
    _, log, _ = observed
    train_calls = [(set(m), s) for m, s in log.calls if not set(m) <= val_keys("val_main")]
    assert [step for _, step in train_calls] == list(range(2, STEPS + 1, 2))
    val_calls = [(set(m), s) for m, s in log.calls if set(m) <= val_keys("val_main")]
    assert val_calls == [(val_keys("val_main"), STEPS // 2), (val_keys("val_main"), STEPS)]
    waits = train_keys("main", "batch_wait") | train_keys("aux", "batch_wait") | {GLOBAL_WAIT}
    main, aux = train_keys("main"), train_keys("aux")
    # Each accumulation of 4 ends with a batch of aux, which gets the optimizer steps.
    main -= {"profile/train/dl_main/time_optimizer_ms"}
    assert log.keys - val_keys("val_main") == main | aux | waits


def test_s4_10_counts_follow_the_accumulation(observed) -> None:
    prof, _, _ = observed
    rows = {(row.split, row.name): row for row in prof.snapshot().loaders}
    counts = {key: {p: n for p, (n, _) in row.phases.items()} for key, row in rows.items()}
    main, aux = EPOCHS * MAIN_BATCHES, EPOCHS * AUX_BATCHES
    assert counts["train", "main"] == {
        "data": main, "forward": main, "backward": main, "batch_wait": main - 1
    }  # fmt: skip
    assert counts["train", "aux"] == {
        "data": aux, "forward": aux, "backward": aux, "optimizer": STEPS, "batch_wait": aux - 1
    }  # fmt: skip
    val = counts["val", "val_main"]
    assert (val["data"], val["forward"]) == (EPOCHS * VAL_BATCHES,) * 2
    last = prof.last_metrics
    assert last["profile/train/dl_main/time_forward_ms"].count == 6
    assert last["profile/train/dl_aux/time_forward_ms"].count == 2


def test_the_report_joins_sections_and_functions(observed) -> None:
    prof, _, _ = observed
    report = prof.report()
    micro = EPOCHS * (MAIN_BATCHES + AUX_BATCHES)
    assert report.in_phase("all").section("backward").count == micro
    assert report.in_phase("all").section("forward").count == micro + EPOCHS * VAL_BATCHES
    assert report.in_phase("all").section("optimizer").count == STEPS
    assert report.steps.count == STEPS
    names = {row.name for row in report.functions}
    assert any("run_backward" in name for name in names)
    assert {"forward", "backward", "optimizer", "data"} <= {row.name for row in report.sections}
    text = report.to_text(full=True)
    for word in ("forward", "backward", "optimizer", "main", "val_main"):
        assert word in text


def test_the_rows_of_a_step_add_up_to_it(observed) -> None:
    steps = observed[0].snapshot().steps
    assert steps.count == STEPS
    covered = sum(row.sum_ns for row in steps.rows)
    assert 0 < covered <= steps.sum_ns


def test_s0_15_a_schedule_written_for_torch_records_the_same_steps() -> None:
    def marked(step: int) -> None:
        torch.zeros(1).add_(step)

    numbers = {"skip_first": 2, "wait": 1, "warmup": 1, "active": 2, "repeat": 2}
    theirs: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = torch.profiler.schedule(**numbers)
        with fastprof.Profiler(functions=True, schedule=fastprof.Schedule(**numbers)) as prof:
            for step in range(16):
                if schedule(step).name in ("RECORD", "RECORD_AND_SAVE"):
                    theirs.append(step)
                marked(step)
                prof.step()
    snapshot = prof.snapshot()
    calls = sum(
        thread.nodes.calls[row]
        for thread in snapshot.threads
        for row, key in enumerate(thread.nodes.key)
        if snapshot.keys[key].name == "marked"
    )
    assert theirs == [4, 5, 8, 9]
    assert calls == len(theirs)


def test_f12_torch_profiler_with_stacks_runs_beside_us() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fastprof.Profiler(functions="auto") as prof:
            with torch.profiler.profile(with_stack=True) as theirs:
                for _ in range(5):
                    with profile_section("forward"):
                        torch.ones(4, 4) @ torch.ones(4, 4)
                    prof.step()
    assert prof.report().in_phase("all").section("forward").count == 5
    assert any(event.key == "aten::mm" for event in theirs.key_averages())


def test_f20_a_dataloader_with_worker_processes() -> None:
    log = Recording()
    with fastprof.Profiler(logger=log, log_every=1) as prof:
        for _ in range(2):
            for inputs, _ in prof.loader(dataset(4, workers=2), "main"):
                with profile_section("forward"):
                    inputs.sum()
                prof.step()
    (row,) = prof.snapshot().loaders
    assert row.batches == 8
    assert row.phases["data"][0] == 8
    assert log.steps == list(range(1, 9)), "the workers have logged nothing"


def test_s4_13_an_unnamed_dataloader_made_anew_each_epoch_is_one_loader() -> None:
    with fastprof.Profiler(functions=False) as prof:
        for _ in range(3):
            for _batch in prof.loader(dataset(2)):
                prof.step()
    (row,) = prof.snapshot().loaders
    assert (row.name, row.batches) == ("loader0", 6)


def test_s4_08_torch_distributed_says_which_process_this_is(tmp_path, monkeypatch) -> None:
    fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    log = Recording()
    output = tmp_path / "run.fprof"
    torch.distributed.init_process_group(
        backend="fake", rank=1, world_size=2, store=fake_pg.FakeStore()
    )
    try:
        with fastprof.Profiler(functions=False, logger=log, log_every=1, output=output) as prof:
            for _ in prof.loader(dataset(2), "main"):
                prof.step()
    finally:
        torch.distributed.destroy_process_group()
    assert log.calls == []
    assert [path.name for path in tmp_path.iterdir()] == ["rank1_run.fprof"]
