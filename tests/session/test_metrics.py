"""Trainer metrics of a plain loop (rows S4-*), through the real recorder."""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
import types

import fastprof
import pytest
from fastprof import profile_section
from fastprof.capture.options import PHASES
from fastprof.session.loaders.timing import LoaderRegistry
from fastprof.session.output.metrics import Metric, MetricWindow
from loops import GLOBAL_WAIT, Recording, slow, train_keys, train_step, val_keys


def profiler(logger=None, **options) -> fastprof.Profiler:
    options = {"functions": False, "log_every": 1, "skip_first": 0, **options}
    return fastprof.Profiler(logger=logger, **options)


@pytest.mark.parametrize(("plain", "value", "total"), [(40, 5, 250), (2, 10, 500), (0, 10, 500)])
def test_plain_steps_stand_for_all_unless_they_are_few(plain: int, value: int, total: int) -> None:
    registry = LoaderRegistry()
    registry.entry([], "a", "train").batches = 50
    forward = PHASES.index("forward")
    window = MetricWindow(registry)
    window.add([(0, forward, 50, 500_000_000)])
    window.add([(0, len(PHASES) + forward, plain, plain * 5_000_000)])
    assert window.take("train") == {"profile/train/dl_a/time_forward_ms": Metric(value, total, 50)}
    assert not window.take("train")


@pytest.mark.parametrize("window", [1, 20, 50])
def test_a_stage_with_more_sections_per_batch_has_its_own_means(window: int) -> None:
    """One forward and update per batch at first, then two, on the same loader.

    After 400 batches most have no sections: those that have stand for all.
    """
    registry, means = LoaderRegistry(), []
    loader = registry.entry([], "a", "train")
    metrics = MetricWindow(registry)
    forward, optimizer = PHASES.index("forward"), PHASES.index("optimizer")
    for step in range(1, 501):
        loader.batches, n = step, 1 if step <= 190 else 2 if step <= 400 or step % 50 < 5 else 0
        rows = [(0, phase, n, n * 3_000_000) for phase in (forward, optimizer) if n]
        metrics.add(rows, steps=step)
        if step >= 400:  # of the next step
            metrics.switched((step + 1) % 50 < 5)
        if step % window == 0:
            taken = metrics.take("train")
            means += [(step, key, round(metric.value_ms, 2)) for key, metric in taken.items()]
    assert len(means) >= 2 * 400 // window
    wrong = [row for row in means if row[2] != (3 if row[0] <= 190 else 6)]
    # The change is known after 16 batches; a window in which it falls has both.
    assert all(190 < step <= 208 for step, *_ in wrong), wrong


def waits(loader: str) -> set[str]:
    return {f"profile/train/dl_{loader}/time_batch_wait_ms", GLOBAL_WAIT}


def test_s4_01_metrics_are_on_by_default_and_off_means_no_key() -> None:
    for log_every in (1, 0):
        log = Recording()
        with profiler(log, log_every=log_every) as prof:
            for _ in prof.loader(range(3)):
                train_step()
                prof.step()
        assert bool(log.keys) is bool(log_every)
        assert bool(prof.last_metrics) is bool(log_every)


def test_s4_02_training_keys_and_s4_16_their_values_are_float_ms() -> None:
    log = Recording()
    with profiler(log) as prof:
        for _ in prof.loader(slow(range(3), 0.010)):
            train_step(forward=0.004, backward=0.006, optimizer=0.002)
            prof.step()
    assert log.keys == train_keys("loader0") | waits("loader0")
    for metrics, _ in log.calls:
        assert all(type(value) is float for value in metrics.values())
        lower = {"data": 10, "forward": 4, "backward": 6, "optimizer": 2}
        for phase, ms in lower.items():
            assert metrics[f"profile/train/dl_loader0/time_{phase}_ms"] >= ms


def test_s4_02_either_name_of_a_section_makes_the_same_keys() -> None:
    log = Recording()
    with profiler(log) as prof:
        for name in ("data_loading", "forward_pass", "backward_pass", "optimizer_step"):
            with profile_section(name):
                pass
        prof.step()
    assert log.keys == train_keys("unknown")


def test_s4_03_validation_keys_are_data_and_forward_only() -> None:
    log = Recording()
    with profiler(log) as prof:
        for _ in prof.loader(range(3), "main", split="val"):
            train_step()
    assert log.keys == val_keys("main")
    assert len(log.calls) == 1


def test_s4_03_validation_is_logged_when_the_loader_is_exhausted() -> None:
    log = Recording()
    with profiler(log, log_every=100) as prof:
        for _ in prof.loader(range(2), "main"):
            train_step()
            prof.step()
        for _ in prof.loader(range(2), "val_main", split="val"):
            with profile_section("forward"):
                pass
        assert log.calls[-1][1] == 2
        assert set(log.calls[-1][0]) == val_keys("val_main")
    assert len(log.calls) == 1


def test_s4_03_an_exhausted_iterator_that_is_kept_is_logged_at_once() -> None:
    log = Recording()
    with profiler(log) as prof:
        kept = iter(prof.loader(range(3), "main", split="val"))
        assert list(kept) == [0, 1, 2]
        assert log.keys == {"profile/val/dl_main/time_data_ms"}
        assert list(kept) == []
    assert len(log.calls) == 1


def test_s4_03_validation_is_logged_when_its_loop_is_left_early() -> None:
    log = Recording()
    with profiler(log) as prof:
        for i in prof.loader(range(100), "main", split="val"):
            with profile_section("forward"):
                pass
            if i == 3:
                break
        assert set(log.calls[0][0]) == val_keys("main")
    assert len(log.calls) == 1
    metric = prof.last_metrics["profile/val/dl_main/time_data_ms"]
    assert metric.count == 4


def test_s4_03_an_unfinished_validation_pass_is_logged_at_the_end() -> None:
    log = Recording()
    with profiler(log) as prof:
        unfinished = iter(prof.loader(range(9), "main", split="val"))
        next(unfinished)
    assert log.keys == {"profile/val/dl_main/time_data_ms"}


def test_s4_04_batch_wait_is_really_emitted_and_measures_the_time_between_batches() -> None:
    log = Recording()
    with profiler(log) as prof:
        for _ in prof.loader(range(4), "main"):
            train_step()
            prof.step()
            time.sleep(0.020)
    key = "profile/train/dl_main/time_batch_wait_ms"
    assert key not in log.calls[0][0], "the first batch waited for nothing"
    for metrics, _ in log.calls[1:]:
        assert metrics[key] >= 20
        assert metrics[GLOBAL_WAIT] >= 20


def test_s4_04_work_on_the_batch_is_not_waiting() -> None:
    log = Recording()
    with profiler(log, log_every=3) as prof:
        for _ in prof.loader(range(3), "main"):
            train_step(forward=0.050)
            prof.step()
    total = prof.last_metrics["profile/train/dl_main/time_batch_wait_ms"]
    forward = prof.last_metrics["profile/train/dl_main/time_forward_ms"]
    assert total.sum_ms < forward.sum_ms


def test_s4_04_without_sections_the_wait_begins_when_the_next_batch_is_asked_for() -> None:
    with profiler() as prof:
        for _ in prof.loader(slow(range(3), 0.010), "main"):
            time.sleep(0.030)
        prof.step()
    wait = prof.last_metrics["profile/train/dl_main/time_batch_wait_ms"]
    assert wait.count == 2
    assert wait.sum_ms >= 20
    data = prof.last_metrics["profile/train/dl_main/time_data_ms"]
    assert wait.sum_ms <= data.sum_ms, "the work between the batches is no waiting"


def test_s4_05_data_is_the_time_of_next_and_stopiteration_is_no_sample() -> None:
    with profiler() as prof:
        for _ in prof.loader(slow(range(5), 0.010), "main"):
            pass
        prof.step()
    data = prof.last_metrics["profile/train/dl_main/time_data_ms"]
    assert data.count == 5
    assert data.sum_ms >= 50
    assert data.value_ms == pytest.approx(data.sum_ms / 5)


def test_s4_06_forward_is_what_the_section_holds_loss_included() -> None:
    with profiler() as prof:
        for _ in prof.loader(range(2), "main"):
            with profile_section("forward"):
                time.sleep(0.002)
                time.sleep(0.005)  # the loss
            prof.step()
    assert prof.last_metrics["profile/train/dl_main/time_forward_ms"].value_ms >= 7


def test_s4_08_only_the_primary_rank_calls_the_logger(monkeypatch) -> None:
    for rank, logged in ((0, True), (1, False)):
        monkeypatch.setenv("RANK", str(rank))
        log = Recording()
        with profiler(log) as prof:
            for _ in prof.loader(range(2)):
                train_step()
                prof.step()
        assert bool(log.calls) is logged
        log = Recording()
        with profiler(log) as prof:
            for _ in prof.loader(range(2), split="val"):
                train_step()
            prof.step()
        assert bool(log.calls) is logged


def test_s4_08_the_rank_of_torch_distributed_counts_where_it_is_initialized(monkeypatch) -> None:
    distributed = types.ModuleType("torch.distributed")
    distributed.is_available = lambda: True
    distributed.is_initialized = lambda: initialized
    distributed.get_rank = lambda: 1
    distributed.get_world_size = lambda: 2
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for initialized in (False, True):
        log = Recording()
        with profiler(log) as prof:
            train_step()
            prof.step()
        assert bool(log.calls) is not initialized
        assert prof.snapshot().meta["rank"] == int(initialized)
        assert prof.snapshot().meta["world_size"] == 1 + int(initialized)


@pytest.mark.parametrize(
    ("log_every", "expected"),
    [
        (None, list(range(1, 11))),
        (1, list(range(1, 11))),
        (2, [2, 4, 6, 8, 10]),
        (50, []),
        (7, [7]),
    ],
)
def test_s4_09_logged_at_multiples_of_n_counted_after_the_increment(log_every, expected) -> None:
    log = Recording()
    with profiler(log, log_every=log_every) as prof:
        for _ in prof.loader(range(10)):
            train_step()
            prof.step()
    assert log.steps == expected


def test_s4_09_other_work_at_every_step_does_not_change_the_frequency(tmp_path) -> None:
    log = Recording()
    schedule = fastprof.Schedule(repeat=0)
    with profiler(
        log, log_every=4, functions="auto", schedule=schedule, output=tmp_path / "run.fprof"
    ) as prof:
        for _ in range(9):
            train_step_without_sleep()
            prof.step()
    assert log.steps == [4, 8]


def test_s4_09_frequency_2_and_2_steps_is_step_2_only() -> None:
    log = Recording()
    with profiler(log, log_every=2) as prof:
        for _ in prof.loader(range(2)):
            train_step()
            prof.step()
    assert log.steps == [2]


def test_s4_10_with_accumulation_4_there_is_one_emission_per_4_batches() -> None:
    log = Recording()
    with profiler(log) as prof:
        for i in prof.loader(range(12), "main"):
            with profile_section("forward"):
                time.sleep(0.001)
            with profile_section("backward"):
                pass
            if i % 4 == 3:
                with profile_section("optimizer"):
                    time.sleep(0.002)
                prof.step()
    assert log.steps == [1, 2, 3]
    assert all(train_keys("main") <= set(metrics) for metrics, _ in log.calls)
    last = {k.split("time_")[1]: m for k, m in prof.last_metrics.items() if "dl_main" in k}
    counts = {phase: m.count for phase, m in last.items()}
    assert counts == {
        "data_ms": 4, "forward_ms": 4, "backward_ms": 4, "optimizer_ms": 1, "batch_wait_ms": 4
    }  # fmt: skip


def test_e12_the_value_is_the_mean_per_micro_batch_with_sum_and_count_beside_it() -> None:
    with profiler(log_every=2) as prof:
        for seconds in prof.loader([0.010, 0.030, 0.010, 0.050], "main"):
            with profile_section("forward"):
                time.sleep(seconds)
            prof.step()
    forward = prof.last_metrics["profile/train/dl_main/time_forward_ms"]
    assert forward.count == 2
    assert forward.sum_ms >= 60
    assert forward.value_ms == pytest.approx(forward.sum_ms / forward.count)


def test_e12_two_forward_sections_per_batch_add_up() -> None:
    with profiler(log_every=4) as prof:
        for _ in prof.loader(range(4), "main"):
            for _ in range(2):
                with profile_section("forward"):
                    time.sleep(0.005)
            prof.step()
    forward = prof.last_metrics["profile/train/dl_main/time_forward_ms"]
    assert forward.count == 4
    assert forward.value_ms >= 10


def test_s4_11_interleaved_loaders_are_labelled_by_the_one_that_produced_the_batch() -> None:
    with profiler(log_every=6) as prof:
        a = prof.loader(["a"] * 3, "a")
        b = prof.loader(["b"] * 3, "b")
        for pair in zip(a, b, strict=True):
            for name in pair:
                assert name in "ab"
        for name, iterator in (("a", iter(a)), ("b", iter(b))) * 3:
            assert next(iterator) == name
            with profile_section("forward"):
                time.sleep(0.010 if name == "a" else 0.001)
            prof.step()
    values = prof.last_metrics
    assert values["profile/train/dl_a/time_forward_ms"].count == 3
    assert values["profile/train/dl_b/time_forward_ms"].count == 3
    assert values["profile/train/dl_a/time_forward_ms"].value_ms >= 10


def test_s4_11_a_weighted_schedule_is_counted_as_it_ran() -> None:
    order = random.Random(0).choices(["main", "aux"], weights=[0.7, 0.3], k=100)
    with profiler(log_every=100) as prof:
        loaders = {
            name: iter(prof.loader(range(100), name, weight=weight))
            for name, weight in (("main", 0.7), ("aux", 0.3))
        }
        for name in order:
            next(loaders[name])
            train_step()
            prof.step()
    for name in ("main", "aux"):
        metric = prof.last_metrics[f"profile/train/dl_{name}/time_forward_ms"]
        assert metric.count == order.count(name)
    rows = {row.name: row for row in prof.snapshot().loaders}
    assert rows["main"].batches == order.count("main")
    assert (rows["main"].weight, rows["aux"].weight) == (0.7, 0.3)


def test_s4_12_names_are_explicit_and_validation_names_independent() -> None:
    log = Recording()
    with profiler(log) as prof:
        for _ in prof.loader(range(2), "main"):
            train_step()
            prof.step()
        for _ in prof.loader(range(2), "aux"):
            train_step()
            prof.step()
        for _ in prof.loader(range(2), "val_main", split="val"):
            train_step()
    expected = train_keys("main") | train_keys("aux") | val_keys("val_main")
    assert expected <= log.keys
    assert log.keys - expected == waits("main") | waits("aux")


def test_s4_13_names_are_sanitized_unnamed_are_numbered_and_none_is_unknown() -> None:
    log = Recording()
    with profiler(log) as prof:
        train_step()
        prof.step()
        first, second = [1], [1]
        for loader in (prof.loader([1], "a/b c"), prof.loader(first), prof.loader(second)):
            for _ in loader:
                train_step()
                prof.step()
    loaders = {key.split("/")[2] for key in log.keys if key != GLOBAL_WAIT}
    assert loaders == {"dl_unknown", "dl_a_b_c", "dl_loader0", "dl_loader1"}
    assert all(key.count("/") == 3 for key in log.keys if key != GLOBAL_WAIT)


def test_s4_14_an_exhausted_short_loader_does_not_disturb_the_longer_one() -> None:
    with profiler(log_every=1) as prof:
        short, long = iter(prof.loader(range(2), "short")), iter(prof.loader(range(6), "long"))
        for _ in range(6):
            for iterator in (short, long):
                if next(iterator, None) is not None:
                    train_step()
            prof.step()
    rows = {row.name: row for row in prof.snapshot().loaders}
    assert rows["short"].batches == 2
    assert rows["long"].batches == 6
    assert rows["short"].phases["data"][0] == 2
    assert rows["long"].phases["data"][0] == 6
    assert rows["long"].phases["forward"][0] == 6


def test_s4_15_optimizer_time_goes_to_the_loader_of_the_last_micro_batch() -> None:
    with profiler(log_every=1) as prof:
        a, b = iter(prof.loader(range(9), "a")), iter(prof.loader(range(9), "b"))
        for order in ((a, b), (b, a), (a, b)):
            for iterator in order:
                next(iterator)
                with profile_section("forward"):
                    pass
            with profile_section("optimizer"):
                time.sleep(0.001)
            prof.step()
    rows = {row.name: row for row in prof.snapshot().loaders}
    assert rows["a"].phases["optimizer"][0] == 1
    assert rows["b"].phases["optimizer"][0] == 2


def test_s4_17_the_report_has_a_row_per_loader() -> None:
    with profiler() as prof:
        for name, count in (("main", 3), ("aux", 1)):
            for _ in prof.loader(range(count), name, weight=0.5):
                train_step()
                prof.step()
    rows = {row.name: row for row in prof.snapshot().loaders}
    assert set(rows) == {"main", "aux"}
    assert (rows["main"].batches, rows["aux"].batches) == (3, 1)
    assert set(rows["main"].phases) == {"data", "forward", "backward", "optimizer", "batch_wait"}
    assert {row.name for row in prof.report().loaders} == {"main", "aux"}


class Raising:
    def __init__(self) -> None:
        self.calls = 0

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls += 1
        raise RuntimeError("no connection")


def test_s4_18_a_failing_logger_is_reported_once_and_switched_off(caplog) -> None:
    log = Raising()
    with profiler(log) as prof:
        for _ in prof.loader(range(5)):
            train_step()
            prof.step()
    assert log.calls == 1
    assert prof.steps == 5
    (record,) = caplog.records
    assert record.name == "fastprof"
    assert "no connection" in record.getMessage()
    snapshot = prof.snapshot()
    assert snapshot.counters["logger_errors"] == 1
    assert any("no connection" in note for note in snapshot.notes)
    assert prof.last_metrics


def test_s4_19_a_logger_can_be_an_object_with_log_or_a_function() -> None:
    calls = []

    class Run:
        def log(self, data, step):
            calls.append((data, step))

    for logger in (Run(), lambda data, step: calls.append((data, step))):
        calls.clear()
        with profiler(logger) as prof:
            train_step()
            prof.step()
        assert [step for _, step in calls] == [1]


def test_s4_19_a_logger_without_a_method_is_refused() -> None:
    import logging

    for junk in (object(), 5, "wandb", logging.getLogger("x")):
        with pytest.raises(TypeError, match="log_metrics"):
            fastprof.Profiler(logger=junk)


def test_s4_21_nothing_accumulates_while_not_logging() -> None:
    with profiler(Recording(), log_every=1_000_000) as prof:
        batches = iter(prof.loader(iter(int, 1), "main"))

        def steps(count: int) -> None:
            for _ in range(count):
                next(batches)
                train_step_without_sleep()
                prof.step()

        steps(500)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            steps(20_000)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # A histogram may still get a page for new durations; even the smallest object kept per step
    # would take 320 kB.
    assert after - before < 64_000


def train_step_without_sleep() -> None:
    for name in ("forward", "backward", "optimizer"):
        with profile_section(name):
            pass


def test_e13_a_loaders_wait_contains_the_other_loaders_work_and_the_global_one_does_not() -> None:
    with profiler(log_every=6) as prof:
        a, b = iter(prof.loader(range(9), "a")), iter(prof.loader(range(9), "b"))
        for _ in range(3):
            for iterator in (a, b):
                next(iterator)
                with profile_section("forward"):
                    time.sleep(0.040)
                prof.step()
    values = prof.last_metrics
    assert values["profile/train/dl_a/time_batch_wait_ms"].value_ms >= 40
    assert values[GLOBAL_WAIT].count == 5
    assert values[GLOBAL_WAIT].value_ms < values["profile/train/dl_a/time_batch_wait_ms"].value_ms


def test_the_global_wait_is_one_of_training() -> None:
    with profiler(log_every=2) as prof:
        batches = iter(prof.loader(range(4), "main"))
        for _ in range(2):
            next(batches)
            train_step()
            for _ in prof.loader(range(50), "main", split="val"):
                pass
            prof.step()
    assert prof.last_metrics[GLOBAL_WAIT].count == 1


def test_work_after_a_validation_pass_belongs_to_the_training_batch_again() -> None:
    with profiler(log_every=1) as prof:
        batches = iter(prof.loader(range(4), "main"))
        next(batches)
        for _ in prof.loader(range(2), "held_out", split="val"):
            with profile_section("forward"):
                pass
        with profile_section("backward"):
            pass
        prof.step()
    rows = {(row.name, row.split): row for row in prof.snapshot().loaders}
    assert rows["main", "train"].phases["backward"][0] == 1
    assert "backward" not in rows["held_out", "val"].phases
    assert rows["held_out", "val"].phases["forward"][0] == 2


def test_work_on_one_batch_taken_from_a_validation_loader_is_validation() -> None:
    log = Recording()
    with profiler(log) as prof:
        batches = iter(prof.loader(range(4), "main"))
        next(batches)
        next(iter(prof.loader(range(9), "held_out", split="val")))
        with profile_section("forward"):
            pass
        next(batches)
        prof.step()
    assert val_keys("held_out") <= log.keys
    assert "profile/train/dl_main/time_forward_ms" not in log.keys


def test_a_data_section_around_next_is_not_counted_twice() -> None:
    with profiler(log_every=4) as prof:
        batches = iter(prof.loader(slow(range(4), 0.002), "main"))
        for _ in range(4):
            with profile_section("data"):
                next(batches)
            prof.step()
    data = prof.last_metrics["profile/train/dl_main/time_data_ms"]
    assert data.count == 4
    outer = prof.snapshot().sections[0].outer_ns
    assert data.sum_ms == pytest.approx(outer / 1e6, rel=1e-6)


def test_design_all_keys_of_a_step_come_in_one_call() -> None:
    log = Recording()
    with profiler(log, log_every=3) as prof:
        a, b = iter(prof.loader(range(9), "a")), iter(prof.loader(range(9), "b"))
        for _ in range(9):
            for iterator in (a, b):
                next(iterator)
                train_step_without_sleep()
            prof.step()
    assert log.steps == [3, 6, 9]


def test_e12_sections_that_are_no_whole_number_per_batch() -> None:
    """A discriminator is trained in every batch, a generator in every other one."""
    log = []
    with fastprof.Profiler(
        functions=False, log_every=20, logger=lambda d, s: log.append(d)
    ) as prof:
        for i, _ in enumerate(prof.loader(range(20), name="main")):
            for _ in range(1 + i % 2):
                with fastprof.profile_section("forward"):
                    pass
            prof.step()
    forward = prof.report().loaders[0]
    sum_ms = prof.last_metrics["profile/train/dl_main/time_forward_ms"].sum_ms
    assert log[0]["profile/train/dl_main/time_forward_ms"] == pytest.approx(sum_ms / 20)
    assert forward.batches == 20


def test_e12_the_optimizers_mean_is_per_step() -> None:
    log = []
    with fastprof.Profiler(
        functions=False, log_every=10, logger=lambda d, s: log.append(d)
    ) as prof:
        for i, _ in enumerate(prof.loader(range(20), name="main")):
            if i % 2:
                for _ in range(2):
                    with fastprof.profile_section("optimizer"):
                        pass
                prof.step()
    key = "profile/train/dl_main/time_optimizer_ms"
    assert log[0][key] == pytest.approx(prof.last_metrics[key].sum_ms / 10)
