"""Fixes suit their run, and a finding's evidence does not contradict it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from fastprof.findings.hot_texts import whole
from fastprof.findings.measurements import Facts
from fastprof.report.findings import Finding
from fastprof.results.report import build_report
from fastprof.snapshot import Calibration, EventCost, Snapshot, StepRow
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.snapshot.steps import SplitPlace
from unit.findings_runs import (
    MS,
    Key,
    Node,
    c_function,
    calls,
    found,
    gpu_layer,
    loader,
    loads,
    noted,
    operators,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import Builder, cost, gpu, py, section
from wording import same_text

SLOW = {"data": 60, "forward": 20, "backward": 20}
SLEEP = c_function("<built-in method time.sleep>", "time.sleep")


def text(finding: Finding) -> str:
    return " ".join((finding.title, *finding.evidence, *finding.fix))


def with_cpus(made: Snapshot, cpus: int, used: float | None = None) -> Snapshot:
    meta = {**made.meta, "cpus": cpus}
    if used is not None:
        meta["process_cpu_ns"] = round(used * made.duration_ns)
    return replace(made, meta=meta)


def computing(**changes: object) -> Snapshot:
    """Return a run whose loop creates batches itself, in a function of the program."""
    make = calls(c_function("<built-in method torch.tensor>", "torch.tensor"), 40, 64)
    parse = calls(py("__getitem__", 12, "/x/data.py", "Lines.__getitem__"), 10, 64, make)
    made = {"inside": {"data": [parse]}, "loaders": (loader(60, cpus=2),), **changes}
    return run(SLOW, **made)


# ---- loading ----


def test_code_without_a_name_is_named_in_words() -> None:
    inner = calls(py("<listcomp>", 30, "/x/data.py", "Lines.__getitem__.<locals>.<listcomp>"), 30)
    made = run(SLOW, inside={"data": [
        calls(py("__getitem__", 29, "/x/data.py", "Lines.__getitem__"), 20, 64, inner),
    ]}, loaders=(loader(60, cpus=2),))  # fmt: skip
    said = text(found(made)["data-loading"])
    assert "a list comprehension" in said
    assert "<" not in said


def test_the_time_of_a_batch_is_that_of_the_step_that_fetches_it() -> None:
    """The loader's own time contains the hook's cost, which the step's data does not."""
    make = calls(py("parse", 8, "/x/data.py", "Lines.parse"), 60, 4000)
    made = run(SLOW, inside={"data": [make]}, loaders=(loader(60, cpus=2),),
               calibration=cost(python=(2000, 2000)))  # fmt: skip
    made = replace(made, phases=(PhaseTime("steps", made.steps.sum_ns, 1),))
    said = text(found(made)["data-loading"])
    fetching = said.partition("Fetching batches takes ")[2].partition(" per step")[0]
    assert fetching != "60.0 ms"
    assert f"the loop makes its batches, {fetching} each" in said


def test_a_pass_over_the_loader_before_the_loop_makes_no_batch_cheaper() -> None:
    """Programs compute the mean of their data first: 'Fetching takes 25.4 ms, 12.7 ms each'."""
    batches = 2 * computing().steps.count
    same_text(found(computing(loaders=(loader(60, batches, cpus=2),)))["data-loading"])


@pytest.mark.parametrize(("cpus", "workers"), [(1, None), (2, 1), (3, 2), (16, 2)])
def test_workers_are_those_that_are_needed_and_have_a_cpu(cpus: int, workers: int | None) -> None:
    made = with_cpus(computing(loaders=(loader(60, cpus=cpus),)), cpus)
    fix = " ".join(found(made)["data-loading"].fix)
    assert (f"num_workers={workers}" in fix) if workers else ("num_workers" not in fix)
    assert "8 to 16" not in fix
    assert "pin_memory" not in fix


def test_pinned_memory_is_for_a_gpu() -> None:
    made = computing(layer=gpu_layer(0.3, {"data": 60}))
    assert "pin_memory=True" in " ".join(found(made)["data-loading"].fix)


def test_the_function_that_loads_is_named_with_its_ms() -> None:
    same_text(found(computing())["data-loading"])


@pytest.mark.parametrize(("cpus", "others", "workers"), [(2, 0.1, 1), (2, 0.9, None), (4, 2, 1)])
def test_a_worker_is_promised_if_other_programs_leave_it_a_cpu(
    cpus: int, others: float, workers: int | None
) -> None:
    """A worker beside one other program on two CPUs made steps 13 to 60 % slower."""
    made = with_cpus(computing(loaders=(loader(60, cpus=cpus),)), cpus, used=1.0)
    made = replace(made, meta={**made.meta, "others_cpu_ns": round(others * made.duration_ns)})
    rule = found(made)["data-loading"]
    fix = " ".join(rule.fix)
    assert (f"num_workers={workers}" in fix) if workers else ("num_workers" not in fix)
    assert (rule.saving_ms is None) == (workers is None)
    if workers is None:
        same_text(rule)


def test_others_first_have_the_cpus_that_a_containers_limit_leaves_to_them() -> None:
    made = with_cpus(computing(loaders=(loader(60, cpus=64),)), 64, used=1.0)
    for others, advised in ((30, True), (64, False)):
        ns = round(others * made.duration_ns)
        rule = found(replace(made, meta={**made.meta, "cpu_limit": 2, "others_cpu_ns": ns}))
        assert ("num_workers=1" in " ".join(rule["data-loading"].fix)) == advised


def test_workers_save_what_fits_beside_the_step() -> None:
    # 60 ms of loading and 40 of other work: a worker that computes takes a fifth longer, and each
    # batch costs 2 ms more.
    assert found(with_cpus(computing(), 2))["data-loading"].saving_ms == pytest.approx(26)
    # Two workers allow steps of 40 ms; taking a batch from them takes 1.5 ms.
    many = with_cpus(computing(loaders=(loader(60, cpus=16),)), 16)
    assert found(many)["data-loading"].saving_ms == pytest.approx(58.5)
    # The program uses 1.8 of 2 CPUs: a tenth of the step is free.
    full = with_cpus(computing(), 2, used=1.7)
    assert found(full)["data-loading"].saving_ms == pytest.approx(15)
    # If workers save almost nothing, loading itself must become cheaper.
    rule = found(with_cpus(computing(), 2, used=1.95))["data-loading"]
    assert "num_workers" not in text(rule)
    same_text(rule)
    assert (rule.saving_ms, rule.saving_share) == (None, None)  # the possible saving is unknown
    little = computing(inside={}, loaders=(loader(20, cpus=2),))
    assert "data-loading" not in found(
        with_cpus(replace(little, steps=run({"data": 20, "forward": 80}).steps), 2, used=1.95)
    )


def parsing(slowdown: float) -> Snapshot:
    """Return loading with 50 of 60 ms in Python code, under a hook that slows bytecode down."""
    parse = calls(py("__getitem__", 12, "/x/data.py", "Lines.__getitem__"), 50, 64)
    cost = EventCost(0, 0)
    made = with_cpus(computing(inside={"data": [parse]}), 2)
    kinds = {f.name: cost for f in fields(Calibration) if f.name != "slowdown"}
    return replace(made, calibration=Calibration(**kinds, slowdown=slowdown))


def test_what_recording_costs_is_not_promised() -> None:
    """Before Python 3.12 the hook slows a loop in Python, but hardly the rest of a step."""
    # Without the hook loading takes 35 ms of 75: a worker loads during the other 40.
    rule = found(parsing(2.0))["data-loading"]
    assert rule.saving_ms == pytest.approx(75 - 1.2 * 35 - 2)
    same_text(rule)
    # The same time in code that the hook does not slow needs two; one would save only a quarter.
    same_text(found(parsing(1.0))["data-loading"])


def test_workers_of_a_program_that_computes_with_all_cpus() -> None:
    """Training computes with both CPUs, but has only one while a worker loads."""
    # Loading uses one CPU for 30 ms, and training both for 70: 1.7 on average.
    steps = run({"data": 30, "forward": 70}).steps
    made = replace(computing(inside={}, loaders=(loader(30, cpus=2),)), steps=steps)
    assert "num_workers=1" in text(found(with_cpus(made, 2, used=1.0))["data-loading"])
    assert "data-loading" not in found(with_cpus(made, 2, used=1.7))


def test_the_report_does_not_ask_for_workers_that_no_finding_advises() -> None:
    """Passing a batch on takes as long as a worker saves, so the finding promises nothing."""
    parse = calls(py("__getitem__", 12, "/x/data.py", "Lines.__getitem__"), 3, 64)
    phases = {"data": 3.1, "forward": 1.4, "backward": 1.5}
    made = run(phases, step_ms=6, inside={"data": [parse]}, loaders=(loader(3.1, cpus=2),))
    rule = found(with_cpus(made, 2))["data-loading"]
    assert rule.saving_ms is None
    same_text(rule)
    assert not {"need", "num_workers"} & set(text(rule).replace("=", " ").split())


def test_loading_longer_than_the_rest_of_the_step_must_become_cheaper_first() -> None:
    """A Dataset that reads rows of a DataFrame: a worker hides the short rest of the step only."""
    rows = calls(py("__getitem__", 12, "/x/data.py", "Frame.__getitem__"), 68, 64)
    phases = {"data": 72, "forward": 18, "backward": 9}
    made = run(phases, inside={"data": [rows]}, loaders=(loader(72, cpus=2),))
    rule = found(with_cpus(made, 2))["data-loading"]
    assert rule.saving_ms is None
    same_text(rule)
    assert rule.fix[0].startswith("Make Frame.__getitem__")
    assert "num_workers" not in text(rule)


def test_loading_that_is_large_by_its_sampler_is_the_samplers_finding() -> None:
    """fastprof advises less loading if it is most of a step; without the sampler it is not."""
    order = calls(py("__iter__", 7, "/x/data.py", "LengthSampler.__iter__"), 0.6)
    parse = calls(py("__getitem__", 12, "/x/data.py", "Lines.__getitem__"), 0.7, 64)
    phases = {"data": 1.36, "forward": 1, "backward": 1}
    kept = (loader(1.36, cpus=2),)
    made = run(phases, step_ms=3.4, inside={"data": [parse, order]}, loaders=kept)
    assert set(found(with_cpus(made, 2))) == {"sampler-time"}
    alone = run(phases, step_ms=3.4, inside={"data": [parse]}, loaders=kept)
    assert set(found(with_cpus(alone, 2))) == {"data-loading"}


def test_loaders_of_one_name_are_distinguished_by_their_split() -> None:
    again = loader(60, workers=2, starts=(10, 6000 * MS), firsts=(10, 300 * MS),
                   shutdowns=(10, 200 * MS), loads=loads(5), ready=30)  # fmt: skip
    both = (replace(again, name="loader0"), replace(again, name="loader0", split="validation"))
    same_text(found(run(loaders=both))["loader-recreated"])


def test_what_workers_do_is_to_be_seen_without_them() -> None:
    waited = loader(60, workers=1, cpus=1, ready=1, blocked=39, blocked_ns=39 * 60 * MS,
                    loads=loads(100))  # fmt: skip
    rule = found(with_cpus(computing(loaders=(waited,)), 1))["data-loading"]
    same_text(rule)


def test_a_loader_without_a_name_is_called_a_data_loader() -> None:
    """Readers did not understand "loader0", a loader without workers."""
    named = replace(loader(60, cpus=2), name="speech")
    unnamed = replace(named, name="loader0")
    said = [text(found(with_cpus(computing(loaders=(x,)), 2))["data-loading"])
            for x in (named, unnamed)]  # fmt: skip
    assert "speech has no workers" in said[0]
    assert "Data loader loader0 has no workers" in said[1]
    assert "Data loader" not in said[0]


def test_the_first_batch_of_a_pass_is_loaded_beside_nothing() -> None:
    several = replace(
        loader(60, cpus=2), workers=replace(loader(60, cpus=2).workers, firsts=(9, MS))
    )
    once, again = (
        found(with_cpus(computing(loaders=(each,)), 2))["data-loading"].saving_ms
        for each in (loader(60, cpus=2), several)
    )
    # In each of eight more passes of five batches the loop waits once for a batch: 41.5 ms.
    assert once - again == pytest.approx(41.5 * 8 / 40)


def test_cpus_in_use_are_those_of_the_steps() -> None:
    """Imports use one CPU, and hide that torch computes on both in the later steps."""
    made = computing()
    steps = made.duration_ns
    meta = {**made.meta, "cpus": 2, "process_cpu_ns": round(3 * steps + 1.95 * steps)}
    made = replace(made, duration_ns=4 * steps, meta=meta)
    same_text(found(made)["data-loading"])
    # Steps without the hook and validation compute on as many CPUs as the measured steps.
    lengths = {"steps": steps, "setup": 2 * steps, "unprofiled": steps // 2,
               "validation": steps // 2}  # fmt: skip
    phases = tuple(PhaseTime(name, ns, 1) for name, ns in lengths.items())
    meta = {**made.meta, "process_cpu_ns": round(2 * steps + 2 * 1.9 * steps)}
    made = replace(made, phases=phases, meta=meta)
    same_text(found(made)["data-loading"])


def test_a_program_that_uses_the_cpus_itself_blames_no_other() -> None:
    made = computing(loaders=(loader(60, cpus=2),))
    split = (("cpu_wait", 40 * 40 * MS), ("compute", 60 * 40 * MS))
    made = replace(made, steps=replace(made.steps, split=split))
    same_text(found(with_cpus(made, 2, 1.0))["data-loading"])
    full = text(found(with_cpus(made, 2, 1.95))["data-loading"])
    same_text(found(with_cpus(made, 2, 1.95))["data-loading"])
    assert "other programs" not in full


def test_most_of_the_workers_time_is_more_than_half_of_it() -> None:
    waited = loader(60, workers=1, cpus=4, ready=1, blocked=39, blocked_ns=39 * 60 * MS,
                    loads=loads(100))  # fmt: skip
    made = with_cpus(computing(loaders=(waited,)), 4)
    for other, said in ((20, "most"), (60, "the largest part")):
        parse, *rest = (py(name, 3, "/x/data.py") for name in ("parse", "decode", "crop"))
        tree = Builder()
        tree.keys = list(made.keys)
        tree.thread(calls(parse, 50 * 40), *(calls(key, other * 20) for key in rest))
        workers = tuple(replace(t, ident=9) for t in tree.snapshot().threads)
        rule = found(replace(made, keys=tree.snapshot().keys, worker_threads=workers))
        assert f"The workers spend {said} of their time in parse (data.py:3)." in text(
            rule["data-loading"]
        )


@pytest.mark.parametrize(
    ("saves", "often"),
    [(40, "every step"), (30, "in most steps"), (25, "about every 2 steps"), (4, "every 10 steps")],
)
def test_how_often_checkpoints_are_saved(saves: int, often: str) -> None:
    save = calls(torch_py("torch/serialization.py", "save"), 16)
    made = run(step_ms=120, inside={"": [save]})
    keys = [key.name for key in made.keys]
    nodes = made.threads[0].nodes
    counted = tuple(
        saves if keys[key] == "save" else n for key, n in zip(nodes.key, nodes.calls, strict=True)
    )
    tree = replace(made.threads[0], nodes=replace(nodes, calls=counted))
    rule = found(replace(made, threads=(tree,)))["checkpoint-often"]
    assert rule.title.startswith(f"Checkpoints are saved {often}:")


def test_what_torch_copies_itself_is_not_the_program_s_to_avoid() -> None:
    """For example for autocast, or a convolution with another layout: no call shows it."""
    seen = operators({"aten::_to_copy": 15, "aten::mm": 60})
    assert "tensor-copies" not in found(run(operators=seen))
    moved = calls(py("keep", 4, "/x/m.py"), 1, 1, calls(tensor("to"), 24, 20))
    rule = found(run(operators=seen, inside={"forward": [moved]}))["tensor-copies"]
    assert rule.saving_ms == pytest.approx(24)


def test_copies_into_a_tensor_are_no_moves_where_there_is_no_gpu() -> None:
    kept = calls(py("keep", 4, "/x/m.py"), 1, 1, calls(tensor("copy_"), 24, 20))
    rule = found(run(inside={"forward": [kept]}))["tensor-copies"]
    same_text(rule)
    assert "devices" not in text(rule)
    on_gpu = run(inside={"forward": [kept]}, layer=gpu_layer(0.7))
    assert "within a device" in text(found(on_gpu)["tensor-copies"])


@pytest.mark.parametrize("name", ["item", "cpu", "to"])
def test_the_wait_for_a_busy_gpu_is_no_finding(name: str) -> None:
    """It takes 70 of 100 ms on the host, and the GPU is idle for 2."""
    reads = calls(py("log", 4, "/x/m.py"), 1, 1, calls(tensor(name), 70, 1))
    made = run(inside={"forward": [reads]}, layer=gpu_layer(0.98, blocked_ms=70))
    assert not found(made).keys() & {"sync-item", "host-device-transfers", "tensor-copies"}


def test_messages_to_processes_and_files_in_memory_are_no_logging() -> None:
    """As in reinforcement learning with one process per environment."""
    write = c_function("<built-in method posix.write>", "posix.write")
    send = torch_py("multiprocessing/connection.py", "Connection._send")
    pickled = Key("c", "~", 0, "<method 'write' of '_io.BytesIO' objects>", "BytesIO.write")
    inside = {"": [calls(send, 1, 8, calls(write, 30, 8)), calls(pickled, 20, 64)]}
    assert "logging-share" not in found(run(inside=inside))
    assert "logging-share" in found(run(inside={"": [calls(write, 30, 8)]}))


def test_anomaly_detection_that_is_on_is_a_finding() -> None:
    made = run(meta={"torch_anomaly_mode": True})
    rule = found(made)["anomaly-mode"]
    assert "set_detect_anomaly(False)" in rule.fix[0]
    assert rule.saving_ms is None
    assert "anomaly-mode" not in found(run())


def test_an_empty_queue_is_another_thread_and_no_lock() -> None:
    get = torch_py("lib/python3.11/queue.py", "Queue.get")
    acquire = Key("c", "~", 0, "<method 'acquire' of '_thread.lock' objects>", "lock.acquire")
    waits = {"": [calls(get, 1, 1, calls(acquire, 60, 1))]}
    rule = found(run({"forward": 15, "backward": 20}, inside=waits))["lock-contention"]
    same_text(rule)
    assert rule.saving_ms is None
    assert "queue" in rule.evidence[0]
    assert "Hold the lock" not in text(rule)


def test_a_stream_is_told_to_split_itself_before_it_gets_workers() -> None:
    fetch = torch_py("torch/utils/data/_utils/fetch.py", "_IterableDatasetFetcher.fetch")
    inside = {"data": [calls(fetch, 1, 1, calls(SLEEP, 55))]}
    made = with_cpus(computing(inside=inside), 4, used=1.0)
    fix = " ".join(found(made)["data-loading"].fix)
    assert "num_workers=" in fix
    assert "get_worker_info()" in fix


def test_a_loop_that_waits_for_batches_is_not_told_to_use_fewer_workers() -> None:
    # One worker is enough for 30 ms beside a step of 40, and not for 70.
    for blocked, load_ms, few in ((38, 30, False), (0, 30, True), (0, 70, False)):
        waits = loader(60, workers=2, ready=40 - blocked, blocked=blocked, loads=loads(load_ms))
        made = run(SLOW, loaders=(waits,), meta={"torch_threads": 1})
        ns = round(18 * MS) * made.steps.count
        split = (("compute", made.steps.sum_ns - ns), ("cpu_wait", ns))
        made = with_cpus(replace(made, steps=replace(made.steps, split=split)), 2, used=2.0)
        assert ("num_workers=1" in " ".join(found(made)["cpu-contention"].fix)) == few


def test_copies_within_one_dtype_get_no_advice_on_dtypes() -> None:
    kept = calls(py("keep", 4, "/x/m.py"), 1, 1, calls(tensor("clone"), 24, 20))
    rule = found(run(inside={"forward": [kept]}))["tensor-copies"]
    assert "dtypes" not in text(rule)
    assert "bfloat16" not in text(rule)
    assert ".clone()" in " ".join(rule.fix)
    moved = calls(py("keep", 4, "/x/m.py"), 1, 1, calls(tensor("to"), 24, 20))
    assert "bfloat16" in text(found(run(inside={"forward": [moved]}))["tensor-copies"])


def test_a_loop_over_the_rows_of_a_tensor_reads_no_value() -> None:
    rows = calls(torch_py("torch/_tensor.py", "Tensor.__iter__"), 20, 64)
    assert "sync-item" not in found(run({"data": 40, "forward": 60}, inside={"data": [rows]}))


def test_loading_that_waits_needs_no_cpu() -> None:
    sleeping = {"data": [calls(SLEEP, 55)]}
    made = with_cpus(computing(inside=sleeping), 2, used=1.9)
    rule = found(made)["data-loading"]
    assert "num_workers=2" in " ".join(rule.fix)
    assert rule.saving_ms == pytest.approx(59.5)
    assert "preprocessing" not in text(rule)


def test_ready_batches_get_no_advice() -> None:
    ready = loader(60, workers=2, ready=198, blocked=2, blocked_ns=2 * MS, loads=loads(60))
    assert "data-loading" not in found(run(SLOW, loaders=(ready,))) | noted(
        run(SLOW, loaders=(ready,))
    )


def test_with_workers_the_training_process_does_not_preprocess() -> None:
    waited = loader(60, workers=1, cpus=4, ready=1, blocked=39, blocked_ns=39 * 60 * MS,
                    loads=loads(100))  # fmt: skip
    rule = found(with_cpus(computing(loaders=(waited,)), 4))["data-loading"]
    assert "preprocessing" not in text(rule)
    same_text(rule)
    assert "num_workers=3" in " ".join(rule.fix)


#: A step that spends a third of its time in next(), although the batch is ready.
RECEIVED = {"data": 2, "forward": 1.5, "backward": 2, "optimizer": 0.5}


def received(
    ms: float = 2, within_ms: float = 1.6, function: str = "rebuild_storage_fd", **changes: object
) -> Snapshot:
    """Return a loop that takes ready batches of three tensors from a worker."""
    seen = {"ready": 40, "ready_ns": round(ms * 40 * MS), "cpus": 4}
    within = {"caught_up": (38, round(within_ms * 38 * MS))}
    ready = loader(ms, **{"workers": 1, **seen, **within, **changes})
    rebuild = calls(torch_py("torch/multiprocessing/reductions.py", function, 537), 1.5, 3)
    unpickle = calls(
        c_function("<built-in method _pickle.loads>", "_pickle.loads"), 0.2, 1, rebuild
    )
    get = calls(py("get", 98, "/usr/lib/python3/multiprocessing/queues.py", "Queue.get"), 0.1, 1,
                unpickle)  # fmt: skip
    return run(RECEIVED, step_ms=6, inside={"data": [get]}, loaders=(ready,))


def test_receiving_ready_batches_is_a_finding() -> None:
    rule = found(received())["batch-receiving"]
    same_text(rule)
    same_text(rule)
    # Loading is known to take less time than receiving, so the loop can load itself.
    assert rule.saving_ms == pytest.approx(2)
    assert "data-loading" not in found(received())


@pytest.mark.parametrize(("count", "said"), [(2.99, 3.0), (3.01, 3.0), (2.6, 2.6), (0.5, 0.5)])
def test_a_batch_has_a_whole_number_of_tensors(count: float, said: float) -> None:
    """A run that stopped in the middle of a batch reported 2.99 of them."""
    assert whole(count) == said


def test_loading_that_takes_longer_than_receiving_stays_in_the_worker() -> None:
    for known in ({}, {"loads": loads(9)}):
        rule = found(received(within_ms=4, **known))["batch-receiving"]
        said = " ".join(rule.fix)
        assert "num_workers" not in said
        same_text(rule)
        assert 'torch.multiprocessing.set_sharing_strategy("file_system")' in said
        assert rule.saving_ms == pytest.approx(1.5)  # the saving of the connections
    measured = found(received(within_ms=4, loads=loads(0.3)))["batch-receiving"]
    assert "num_workers=0" in measured.fix[0]
    same_text(measured)


def test_advice_on_tensors_without_connections_mentions_no_connection() -> None:
    rule = found(received(function="rebuild_storage_filename"))["batch-receiving"]
    assert "connection" not in text(rule)
    assert "file_system" not in text(rule)
    # No advice is left if the loop cannot load itself.
    slow = received(function="rebuild_storage_filename", within_ms=4)
    assert "batch-receiving" not in found(slow)
    # But the report must not ignore a third of the step.
    note = noted(slow)["batch-receiving"]
    same_text(note)
    assert "uint8" in note.fix[0]


def test_receiving_that_takes_little_or_was_hardly_seen_is_no_finding() -> None:
    assert "batch-receiving" not in found(received(ms=0.8))
    few = received(ready=9, blocked=29, ready_ns=18 * MS)
    assert "batch-receiving" not in found(few)


@pytest.mark.parametrize("ms", [0.3, 0.9])
def test_batches_that_are_quicker_than_a_worker_are_left_alone(ms: float) -> None:
    quick = {"data": ms, "forward": 0.4, "backward": 0.4}
    made = run(quick, step_ms=ms + 0.8, loaders=(loader(ms),))
    assert "data-loading" not in found(made) | noted(made)
    assert build_report(made).loaders[0].workers.advice == ""  # type: ignore[union-attr]


def test_the_advice_for_a_loop_without_a_loader_is_to_use_one() -> None:
    same_text(found(with_cpus(run(SLOW), 2))["data-loading"])


# ---- the optimizer ----

STEPS = {"data": 5, "forward": 25, "backward": 35, "optimizer": 35}


def optimized(name: str, *, how: str = "single_tensor", init: tuple[str, ...] = (),
              count: int = 800, beside: tuple[Node, ...] = (), forward: tuple[Node, ...] = (),
              **fields: object) -> Snapshot:  # fmt: skip
    """Return a run whose torch optimizer takes a third of a step; its update calls ``beside``."""
    file = f"torch/optim/{name.lower()}.py"
    update = calls(torch_py(file, f"_{how}_{name.lower()}", 347), 4, 1,
                   calls(tensor("addcdiv_"), 30, count), *beside)  # fmt: skip
    step = calls(torch_py(file, f"{name}.step", 200), 0.5, 1, update)
    made = run(STEPS, inside={"optimizer": [step], "forward": forward}, **fields)
    extra = tuple(
        Key("python", f"/site-packages/torch/optim/{c.lower()}.py", 5, "__init__", f"{c}.__init__")
        for c in (name, *init)
    )
    return replace(made, keys=(*made.keys, *extra))


@pytest.mark.parametrize("name", ["Adam", "SGD", "Adagrad"])
def test_the_fused_version_is_of_the_class_that_the_program_uses(name: str) -> None:
    rule = found(optimized(name))["optimizer-unfused"]
    fix = " ".join(rule.fix)
    assert f"torch.optim.{name}(..., fused=True)" in fix
    assert "AdamW" not in fix
    assert "foreach" not in fix


def test_the_optimizer_s_function_with_most_time_is_none_of_fastprof_s() -> None:
    ours = calls(Key("python", "", 0, "(fastprof)", "(fastprof)"), 9, 30)
    same_text(found(optimized("Adam", beside=(ours,)))["optimizer-unfused"])


@pytest.mark.parametrize("place", ["", "optimizer"])
def test_a_scheduler_of_the_learning_rate_is_no_optimizer(place: str) -> None:
    """torch/optim has both, and `LRScheduler.step` made "no fused version" of an AdamW."""
    plain = optimized("Adam")
    scheduler = calls(torch_py("torch/optim/lr_scheduler.py", "LRScheduler.step", 260), 2, 1)
    step = calls(torch_py("torch/optim/adam.py", "Adam.step", 200), 0.5, 1,
                 calls(torch_py("torch/optim/adam.py", "_single_tensor_adam", 347), 4, 1,
                       calls(tensor("addcdiv_"), 30, 800)))  # fmt: skip
    inside = {"optimizer": [step, *([scheduler] if place else [])]}
    made = run(STEPS, step_ms=102, inside={**inside, **({} if place else {"": [scheduler]})})
    made = replace(made, keys=(*made.keys, plain.keys[-1]))  # its __init__
    assert Facts(build_report(made)).optimizer == Facts(build_report(plain)).optimizer
    assert "torch.optim.Adam(..., fused=True)" in found(made)["optimizer-unfused"].fix[0]
    without = run(STEPS, inside={"optimizer": [step], "": []})
    assert Facts(build_report(without)).optimizer_ms == pytest.approx(
        Facts(build_report(made)).optimizer_ms
    )


def test_an_adamw_steps_as_an_adam_and_is_called_adamw() -> None:
    fix = " ".join(found(optimized("Adam", init=("AdamW",)))["optimizer-unfused"].fix)
    assert "torch.optim.AdamW(..., fused=True)" in fix
    assert "torch.optim.Adam(" not in fix


@pytest.mark.parametrize("name", ["RMSprop", "NAdam"])
def test_an_optimizer_without_a_fused_version_gets_no_advice_on_it(name: str) -> None:
    made = optimized(name)
    said = " ".join(text(f) for f in {**found(made), **noted(made)}.values())
    assert "fused=True" not in said
    assert "AdamW" not in said


VIEW = c_function("<built-in method torch.view_as_real>", "torch.view_as_real")
NO_GPU = gpu(devices=(), status="unavailable", reason="no NVIDIA device in this machine")
SPARSE = operators({"aten::mm": 2, "aten::embedding_sparse_backward": 1})


@pytest.mark.parametrize(
    "made",
    [
        optimized("Adagrad", beside=(calls(tensor("coalesce"), 0.1, 3),)),
        optimized("SGD", operators=SPARSE),  # nothing in its step tells
        optimized("Adam", beside=(calls(VIEW, 0.1, 8),)),
        optimized("SparseAdam", operators=SPARSE),
        run(STEPS, inside={"optimizer": [calls(tensor("add_"), 30, 800)]}, operators=SPARSE),
        optimized("Adam", meta={"torch_refuses_fused": "differentiable=True"}),
    ],
    ids=["Adagrad", "SGD", "complex", "SparseAdam", "own", "told"],
)
def test_what_torch_refuses_to_fuse_gets_no_advice_on_it(made: Snapshot) -> None:
    """Adagrad with nn.EmbeddingBag(sparse=True): `fused` does not support sparse grad"."""
    assert "optimizer-unfused" not in found(made)
    said = {**found(made), **noted(made)}
    assert "fused" not in " ".join(text(f) for f in said.values())
    assert "torch.compile its step" not in text(said["optimizer-share"])


LOOK_UP = c_function("<built-in method torch.embedding>", "torch.embedding")


def embedded(name: str, *, linear_ms: float = 0.1, count: int = 58) -> Finding:
    """Return the finding about a model of large embeddings and a small network."""
    linear = c_function("<built-in method torch._C._nn.linear>", "torch._C._nn.linear")
    forward = (calls(LOOK_UP, 20, 3), calls(linear, linear_ms, 2))
    return found(optimized(name, count=count, forward=forward))["optimizer-unfused"]


def test_long_calls_of_the_optimizer_are_not_said_to_be_many() -> None:
    """58 calls of 267 us: 125,000 rows of embeddings, of which a batch uses 64."""
    rule = embedded("Adagrad")
    same_text(rule)
    assert rule.fix[0].startswith("torch.optim.Adagrad(..., fused=True)")
    same_text(embedded("Adagrad", count=800))


def test_embeddings_can_have_sparse_gradients_if_the_optimizer_takes_them() -> None:
    assert "nn.Embedding(..., sparse=True)" in embedded("Adagrad").fix[1]
    assert "without fused=True" in embedded("Adagrad").fix[1]
    # Adam refuses them; layers that compute long have the parameters; short calls have few.
    for rule in (
        embedded("Adam"),
        embedded("Adagrad", linear_ms=4),
        embedded("Adagrad", count=800),
    ):
        assert "sparse" not in text(rule)


def test_sparse_tensors_outside_of_the_optimizer_do_not_matter() -> None:
    """A graph's adjacency, for example."""
    made = optimized("Adam", operators=operators({"aten::mm": 2, "aten::_coalesce": 1}))
    assert "optimizer-unfused" in found(made)


def test_foreach_that_the_program_asked_for_is_replaced() -> None:
    """Without a GPU it is no default, and torch takes no fused=True beside it."""
    made = optimized("Adam", how="multi_tensor", gpu=NO_GPU)
    fix = found(made)["optimizer-unfused"].fix[0]
    same_text(found(made)["optimizer-unfused"])
    fix = found(optimized("Adam", how="multi_tensor"))["optimizer-unfused"].fix[0]
    assert "foreach" not in fix


def test_a_fused_optimizer_gets_no_advice_on_fusing() -> None:
    made = optimized("AdamW", how="fused", count=1)
    assert not {"optimizer-unfused", "optimizer-share"} & set(found(made))
    assert "fused=True" not in " ".join(noted(made)["optimizer-share"].fix)
    assert noted(made)["optimizer-share"].saving_ms is None


def test_what_fusing_saves_is_not_all_of_the_optimizer() -> None:
    assert found(optimized("Adam"))["optimizer-unfused"].saving_ms == pytest.approx(0.6 * 35)
    # An update by SGD is one pass over memory: fusing saves only calls, 1.5 us each.
    assert found(optimized("SGD"))["optimizer-unfused"].saving_ms == pytest.approx(1.2)


def test_a_trainers_closure_with_sections_beside_the_optimizers_is_not_taken_off_it() -> None:
    """Lightning calls forward and backward from within the optimizer's step."""
    closure = [Node(section(name), 1, ms * MS) for name, ms in (("forward", 25), ("backward", 35))]
    file = "torch/optim/adam.py"
    update = calls(torch_py(file, "_single_tensor_adam", 347), 4, 1,
                   calls(tensor("addcdiv_"), 28, 800))  # fmt: skip
    step = calls(torch_py(file, "Adam.step", 200), 0, 1,
                 *closure, Node(section("optimizer"), 1, 0, (update,)))  # fmt: skip
    made = run({"data": 5}, inside={"": [step]})
    keys = {key.name: i for i, key in enumerate(made.keys) if key.kind == "section"}
    rows = tuple(
        StepRow(keys[name], 40, 40 * ms * MS)
        for name, ms in (("forward", 25), ("backward", 35), ("optimizer", 32))
    )
    made = replace(made, steps=replace(made.steps, rows=(*made.steps.rows, *rows)))
    facts = Facts(build_report(made))
    assert facts.optimizer_ms == pytest.approx(32)
    assert "optimizer-unfused" not in dict(build_report(made).examination.abstained)


def test_a_closure_of_lbfgs_holds_forward_and_backward_and_is_no_finding() -> None:
    closure = [Node(section(name), 5, 5 * 7 * MS) for name in ("forward", "backward")]
    step = calls(torch_py("torch/optim/lbfgs.py", "LBFGS.step", 200), 10, 1, *closure)
    made = run({"data": 5, "optimizer": 95}, inside={"optimizer": [step]})
    said = {**found(made), **noted(made)}
    assert "optimizer-unfused" not in said
    assert "optimizer-share" not in found(made)
    assert "AdamW" not in " ".join(text(f) for f in said.values())


# ---- work in no phase, many small calls, a machine with other users ----


def outside(ms: float, *nodes: Node) -> Snapshot:
    rest = (100 - ms) / 100
    return run(
        {"data": 5 * rest, "forward": 35 * rest, "backward": 50 * rest, "optimizer": 10 * rest},
        inside={"": list(nodes)},
    )


def test_a_script_that_starts_a_trainer_is_not_what_to_look_at() -> None:
    fit = py("fit", 522, "/usr/lib/python3/site-packages/lightning/trainer.py", "Trainer.fit")
    made = outside(60, calls(py("<module>", 1, "/x/train.py"), 0, 1, calls(fit, 45, 30)))
    assert "unaccounted" not in found(made)
    assert "train.py" not in text(noted(made)["unaccounted"])


def test_the_trainers_own_work_is_named_and_needs_no_sections() -> None:
    """The advice was to put its parts into sections: nobody can in an installed trainer."""
    package = "/usr/lib/python3/site-packages/lightning"
    in_c = calls(c_function("<built-in method builtins.len>", "builtins.len"), 5, 90)
    hooks = calls(py("_call", 203, f"{package}/call.py", "_call"), 20, 4, in_c)
    fit = py("fit", 522, f"{package}/pytorch/trainer/trainer.py", "Trainer.fit")
    script = calls(py("<module>", 1, "/x/train.py"), 0, 1, calls(fit, 12, 1, hooks))
    rule = noted(outside(40, script))["unaccounted"]
    same_text(rule)
    assert "sections" not in rule.fix[0]
    assert "barebones=True" in rule.fix[0]


@pytest.mark.parametrize("starter", ["<module>", "main"])
def test_of_a_trainer_that_a_function_starts_the_callback_is_named(starter: str) -> None:
    """The title named main, which only starts the Trainer; the text named the callback."""
    hook = calls(py("on_after_backward", 24, "/x/train.py", "Norms.on_after_backward"), 25, 1)
    fit = py("fit", 522, "/usr/lib/python3/site-packages/lightning/trainer.py", "Trainer.fit")
    loop = calls(fit, 35, 1, Node(section("forward"), 5, 5 * MS), hook)
    rule = found(outside(60, calls(py(starter, 1, "/x/train.py"), 0.5, 1, loop)))["unaccounted"]
    same_text(rule)
    assert rule.saving_ms == pytest.approx(25, rel=0.02)


def test_a_note_stays_a_note_when_another_finding_has_part_of_its_time() -> None:
    fit = py("fit", 522, "/usr/lib/python3/site-packages/lightning/trainer.py", "Trainer.fit")
    read = calls(
        c_function("<method 'item' of 'torch._C.TensorBase' objects>", "Tensor.item"), 10, 400
    )
    made = outside(70, calls(py("<module>", 1, "/x/train.py"), 0, 1, calls(fit, 45, 30, read)))
    assert list(found(made)) == ["sync-item"]
    assert "unaccounted" in noted(made)
    layer = calls(py("forward", 67, "/x/ff.py", "Layer.forward"), 40, 4, read)
    assert list(found(outside(70, layer))) == ["sync-item"]


def test_what_is_in_no_phase_is_named_by_function_and_line() -> None:
    step = calls(py("step", 40, "/x/rl.py", "Pole.step"), 25, 30,
                 calls(c_function("<built-in method math.sin>", "math.sin"), 20, 900))  # fmt: skip
    rule = found(outside(60, step))["unaccounted"]
    same_text(rule)
    said = "Pole.step (rl.py:40) takes 45.0 ms per step: its own code 25.0, math.sin 20.0"
    assert said in text(rule)
    assert rule.saving_ms == pytest.approx(45)


def with_work_between_steps(made: Snapshot) -> Snapshot:
    """Return a run in which fastprof worked between the steps, outside of all functions."""
    made = replace(made, phases=(PhaseTime("steps", made.steps.sum_ns, 1),))
    nodes = made.threads[0].nodes
    own = (nodes.self_ns[0] + 5 * made.steps.sum_ns, *nodes.self_ns[1:])
    thread = replace(made.threads[0], nodes=replace(nodes, self_ns=own))
    return replace(made, threads=(thread, *made.threads[1:]))


def test_what_fastprof_does_between_steps_hides_no_function() -> None:
    """Operator windows took 3.7 s of a run with 1.4 s in no phase: no function was named."""
    made = outside(60, calls(py("clip", 14, "/x/train.py"), 45, 1))
    for one in (made, with_work_between_steps(made)):
        rule = found(one)["unaccounted"]
        assert "clip (train.py:14)" in rule.title
        assert rule.saving_ms == pytest.approx(45)


def test_the_hooks_cost_is_no_work_in_no_function() -> None:
    """The steps' time is as recorded: what the hook costs in them is not between them."""
    made = outside(60, calls(py("clip", 14, "/x/train.py"), 45, 100_000))
    made = replace(made, phases=(PhaseTime("steps", made.steps.sum_ns, 1),))
    made = replace(made, calibration=cost((100, 100)))
    alone, beside = (
        Facts(build_report(one)).free_ms for one in (made, with_work_between_steps(made))
    )
    assert beside == pytest.approx(alone)


MODULE = torch_py("torch/nn/modules/module.py", "Module._call_impl")
APPLY = c_function("<built-in method apply>", "Function.apply")


@pytest.mark.parametrize(
    ("qualname", "caller", "hooks", "fix"),
    [
        ("Layer.forward", None, True, "The program calls Layer.forward (ff.py:67) itself"),
        ("forward", None, True, "forward (ff.py:67) is a forward pass in no section"),
        ("main.<locals>.forward", None, True, "is a forward pass in no section: put its call into"),
        ("Slow.forward", APPLY, True, "Slow.forward (ff.py:67) is a forward pass in no section"),
        ("Layer.forward", MODULE, False, "Layer.forward (ff.py:67) is a forward pass in no"),
        # The hooks saw this module, and it is no forward of the training: a teacher, a metric.
        ("Teacher.forward", MODULE, True, ""),
    ],
)
def test_a_forward_in_no_section_is_a_forward(
    qualname: str, caller: Key | None, hooks: bool, fix: str
) -> None:
    """`layer.forward(x)` runs no hooks of the module: "call it less often" is no advice on it."""
    forward = py("forward", 67, "/x/ff.py", qualname)
    node = calls(forward, 50, 4) if caller is None else calls(caller, 0, 4, calls(forward, 50, 4))
    made = outside(60, node)
    made = replace(made, meta={**made.meta, **({"steps_ended_by": "optimizers"} if hooks else {})})
    if not fix:
        assert found(made)["unaccounted"].saving_ms == pytest.approx(50)
        return
    assert "unaccounted" not in found(made)
    note = noted(made)["unaccounted"]
    assert fix in note.fix[0]
    assert note.saving_ms is None
    assert "Unusual: 60.0 % of the step is in no phase" in build_report(made).to_text()
    made = run({"forward": 1, "backward": 45}, inside={"": [node]})
    assert "backward-share" not in found(made)
    short = run({"forward": 1, "backward": 80}, inside={"": [calls(forward, 10, 1)]})
    assert "(10.0 ms per step of it in no section)" not in text(found(short)["backward-share"])
    same_text(found(short)["backward-share"])


def test_a_decorator_of_a_library_is_not_named_but_what_it_calls() -> None:
    """torch decorates functions: `_no_grad.<locals>._no_grad_wrapper` tells nobody anything."""
    wrapper = torch_py("torch/nn/utils/clip_grad.py", "_no_grad.<locals>._no_grad_wrapper")
    clip = torch_py("torch/nn/utils/clip_grad.py", "clip_grad_value_")
    named = calls(wrapper, 1, 30, calls(clip, 20, 30))
    rule = found(outside(60, calls(py("step", 40, "/x/rl.py", "Pole.step"), 25, 30, named)))
    said = text(rule["unaccounted"])
    assert "clip_grad_value_ 20.0" in said
    same_text(rule["unaccounted"])
    assert "_wrapper" not in rule["unaccounted"].fix[0]


def test_what_is_in_no_phase_is_not_blamed_on_backward() -> None:
    wait = calls(py("gather", 9, "/x/ddp.py"), 50, 1)
    made = run({"forward": 5, "backward": 30}, inside={"": [wait]})
    assert set(found(made)) == {"unaccounted"}
    assert "unaccounted" not in found(outside(20, wait))


@pytest.mark.parametrize("ranks", [1, 2])
def test_waiting_for_a_late_rank_between_the_phases_is_not_the_loop_s_work(ranks: int) -> None:
    """The Trainer of transformers gathers the number of tokens before each step."""
    file = "torch/distributed/distributed_c10d.py"
    gather = calls(torch_py(file, "all_gather_into_tensor"), 27, 1)
    samples = torch_py("transformers/trainer.py", "Trainer.get_batch_samples")
    made = outside(30, calls(samples, 1, 1, gather))
    made = replace(made, meta={**made.meta, "world_size": ranks})
    assert ("unaccounted" in found(made)) == (ranks == 1)
    made = outside(60, calls(samples, 30, 1, gather))
    rule = found(replace(made, meta={**made.meta, "world_size": ranks}))["unaccounted"]
    assert rule.title.startswith(f"{'60.0' if ranks == 1 else '33.0'} % of the step is in no phase")
    # The table of steps has 60 % in no section.
    said = "Another 27.0 ms per step there are imports, or waits for other ranks."
    assert (said in text(rule)) == (ranks > 1)


@pytest.mark.parametrize("own_ms", [0, 30])
def test_what_fastprof_takes_between_sections_is_not_the_program_s(own_ms: float) -> None:
    """For example in steps of 0.3 ms, of which the automatic sections take 0.1."""
    step = calls(py("rollout", 40, "/app/train.py"), 35)
    made = outside(35, step)
    made = replace(
        made,
        phases=(PhaseTime("steps", made.steps.sum_ns, 1),),
        meta={**made.meta, "own_ns": round(own_ms * MS * made.steps.measured)},
    )
    assert ("unaccounted" in found(made)) == (own_ms == 0)


def test_the_loop_itself_is_not_to_run_less_often_but_what_it_calls() -> None:
    """`train`, which contains the phases, calls many small functions beside them."""
    log_prob = torch_py("torch/distributions/categorical.py", "Categorical.log_prob")
    sample = torch_py("torch/distributions/categorical.py", "Categorical.sample")
    made = outside(60, calls(log_prob, 30, 30), calls(sample, 20, 30))
    rule = found(made)["unaccounted"]
    same_text(rule)
    (fix,) = rule.fix
    assert fix == (
        "Look at what the loop calls there: Categorical.log_prob, Categorical.sample. Call it less "
        "often, or once for many values."
    )


def test_a_loop_without_sections_for_its_phases_gets_them_first() -> None:
    """A notebook with a Profiler and nothing else: not "call Tensor.backward less often"."""
    backward = torch_py("torch/autograd/__init__.py", "backward")
    forward = torch_py("torch/nn/modules/linear.py", "Linear.forward")
    inside = {"": [calls(backward, 50), calls(forward, 40)]}
    rule = found(run({"data": 5}, inside=inside))["unaccounted"]
    same_text(rule)
    assert "torch_loop.attach(profiler)" in rule.fix[0]
    assert rule.saving == ""
    # Without a promise there is nothing to count twice.
    file = "torch/optim/adam.py"
    update = calls(torch_py(file, "_single_tensor_adam", 347), 5, 1,
                   calls(tensor("addcdiv_"), 25, 800))  # fmt: skip
    adam = calls(torch_py(file, "Adam.step", 200), 0, 1, update)
    both = found(run({"data": 5}, inside={"": [calls(backward, 40), adam]}))
    same_text(both["optimizer-unfused"])
    assert both["unaccounted"].evidence == ("So the report has no times for the phases of a step.",)
    sections = run({"data": 5, "forward": 10, "backward": 10}, inside=inside)
    assert "have none" not in text(found(sections)["unaccounted"])


def test_what_the_loop_calls_there_includes_the_program_s_functions() -> None:
    """An environment that takes longer than each single call on tensors beside it."""
    sample = torch_py("torch/distributions/categorical.py", "Categorical.sample")
    observe = calls(py("Grid.observe", 19, "/x/rl.py"), 14)
    step = calls(py("Grid.step", 27, "/x/rl.py"), 6, 1, observe)
    made = outside(60, step, calls(sample, 30, 30))
    rule = found(made)["unaccounted"]
    same_text(rule)
    same_text(rule)


def test_the_share_in_no_phase_is_that_of_the_table() -> None:
    """fastprof's cost between the sections has a row of the table, and is not the program's."""
    made = outside(60, calls(py("rollout", 40, "/app/train.py"), 60))
    made = replace(
        made,
        phases=(PhaseTime("steps", made.steps.sum_ns, 1),),
        meta={**made.meta, "own_ns": 5 * MS * made.steps.measured},
    )
    rule = found(made)["unaccounted"]
    rows = {row.name: row.mean_ms for row in build_report(made).steps.rows}
    assert rows["(fastprof)"] == pytest.approx(5)
    assert rows["(unaccounted)"] == pytest.approx(55)
    assert rule.value == pytest.approx(55)
    same_text(rule)
    assert rule.saving_ms == pytest.approx(55, abs=0.1)


def test_what_the_hook_costs_between_the_phases_is_fastprof_s() -> None:
    """A callback that writes JSON by generators: most of its time is the hook's."""
    step = calls(py("rollout", 40, "/app/train.py"), 40, 200_000)
    made = outside(60, step)
    made = replace(
        made, calibration=cost((100, 100)), phases=(PhaseTime("steps", made.steps.sum_ns, 1),)
    )
    rows = {row.name: row.mean_ms for row in build_report(made).steps.rows}
    assert rows["(fastprof)"] == pytest.approx(40)
    assert rows["(unaccounted)"] == pytest.approx(20)


def test_fastprof_s_code_is_nothing_that_the_loop_calls() -> None:
    """Under `python -X dev` it takes longer than what the report knows and subtracts."""
    own = calls(py("(fastprof)", 0, "~"), 30, 30)
    rule = found(outside(60, own))["unaccounted"]
    assert "(fastprof)" not in text(rule)
    assert rule.fix == ("Look at the loop's own code in train (train.py:20).",)
    assert rule.value == pytest.approx(30)
    same_text(rule)
    assert "unaccounted" not in found(outside(60, calls(py("(fastprof)", 0, "~"), 55, 30)))


def beside(ms: float, *nodes: Node, name: str = "augment") -> Snapshot:
    """Return a run with a section of the program between data and forward."""
    rest = 100 - ms
    return run(
        {name: ms, "forward": 0.4 * rest, "backward": 0.5 * rest, "optimizer": 0.1 * rest},
        inside={name: list(nodes)},
    )


def test_a_large_section_of_the_program_s_names_its_function() -> None:
    augment = calls(py("augment", 28, "/x/train.py"), 0, 1,
                    calls(c_function("<built-in function sleep>", "time.sleep"), 60))  # fmt: skip
    made = beside(60, augment)
    assert set(found(made)) == {"own-section"}
    rule = found(made)["own-section"]
    same_text(rule)
    assert rule.saving_ms is None  # the part that training needs is unknown


def test_braces_in_a_name_are_kept() -> None:
    made = beside(60, calls(py("augment", 28, "/x/{a}.py"), 60), name="{b}")
    same_text(found(made)["own-section"])


@pytest.mark.parametrize(
    "made",
    [
        beside(20, calls(py("augment", 28, "/x/train.py"), 20)),
        # A loss is a part of training: most of it is torch's.
        beside(60, calls(torch_py("torch/nn/functional.py", "cross_entropy"), 50), name="loss"),
        beside(60, calls(tensor("sum"), 50), name="loss"),
        # One section for all, and no phase beside it.
        run({"train_step": 95}, inside={"train_step": [calls(py("fit", 3, "/x/t.py"), 90)]}),
    ],
)
def test_a_section_of_the_program_s_may_be_healthy(made: Snapshot) -> None:
    assert "own-section" not in found(made)


def test_the_phases_within_a_section_are_no_part_of_it() -> None:
    """A section `generator` contains a forward; its other time is short, and in torch."""
    inner = Node(section("forward"), 1, 0, [calls(tensor("matmul"), 50)])
    rest = calls(tensor("sum"), 5)
    assert "own-section" not in found(beside(60, inner, rest, name="generator"))


def test_what_another_rule_knows_is_not_in_no_phase() -> None:
    printed = calls(c_function("<built-in method builtins.print>", "print"), 35, 40)
    assert set(found(outside(40, printed))) == {"logging-share"}


def test_many_small_operations_are_counted() -> None:
    linear = calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 2, 400)
    linear = calls(torch_py("torch/nn/modules/module.py", "Module._call_impl"), 0, 400, linear)
    made = run({"data": 0.5, "forward": 4, "backward": 4, "optimizer": 1}, step_ms=10,
               inside={"forward": [linear]}, loaders=(loader(0.5, batch_size=64),))  # fmt: skip
    rule = found(made)["small-batch"]
    same_text(rule)
    for word in ("batch size", "torch.compile"):
        assert word in text(rule)
    assert "CUDA" not in text(rule)  # there is no GPU


def test_operators_on_tensors_in_the_dataset_are_no_cost_of_the_network() -> None:
    """(x - x.mean()) / x.std() of each sample: "100 % of forward and backward is calling"."""
    linear = calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 0.3, 2)
    mean = calls(tensor("mean"), 0.5, 256)
    rows = tuple(
        replace(row, calls=3 * 2000) for row in operators({"aten::sub": 1, "aten::div": 1}).rows
    )
    recorded = replace(operators({}), rows=rows)
    sections = {"data": 2, "forward": 0.4, "backward": 0.3, "optimizer": 0.1}
    made = run(sections, step_ms=3, inside={"forward": [linear], "data": [mean]},
               loaders=(loader(2, batch_size=32),), operators=recorded)  # fmt: skip
    assert "small-batch" not in found(made)
    inside = run(sections, step_ms=3, inside={"forward": [linear]},
                 loaders=(loader(2, batch_size=32),), operators=recorded)  # fmt: skip
    same_text(found(inside)["small-batch"])


def test_what_a_loader_writes_to_its_workers_is_no_logging() -> None:
    write = calls(c_function("<built-in method posix.write>", "posix.write"), 3, 8)
    send = calls(py("_send", 381, "/usr/lib/python3/multiprocessing/connection.py"), 0, 8, write)
    printed = calls(c_function("<built-in method builtins.print>", "print"), 10, 2)
    log = calls(py("log", 9, "/x/train.py"), 0, 1, printed)
    made = run({"data": 5, "forward": 60}, inside={"data": [send], "": [log]})
    rule = found(made)["logging-share"]
    assert rule.saving_ms == pytest.approx(10)
    same_text(rule)
    assert "_send" not in text(rule)


def test_what_a_trainer_logs_is_no_cost_of_calling_operations() -> None:
    """A Lightning module calls self.log() in each step; a larger batch is no fix."""
    linear = calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 0.2, 20)
    checks = calls(tensor("detach"), 0.3, 60)
    log = calls(torch_py("lightning/pytorch/core/module.py", "LightningModule.log", 400), 2.5, 2,
                checks)  # fmt: skip
    made = run({"data": 0.5, "forward": 4, "backward": 2, "optimizer": 0.5}, step_ms=7,
               inside={"forward": [linear, log]}, loaders=(loader(0.5, batch_size=64),),
               meta={"framework": "lightning"})  # fmt: skip
    rules = found(made)
    assert "small-batch" not in rules
    same_text(rules["logging-share"])
    assert "self.log()" in rules["logging-share"].fix[0]


def test_a_thread_that_waits_for_a_cpu_most_of_its_time_is_a_finding() -> None:
    made = run()
    ns = round(82 * MS) * made.steps.count
    split = (("compute", made.steps.sum_ns - ns), ("cpu_wait", ns))
    made = with_cpus(replace(made, steps=replace(made.steps, split=split)), 2, used=0.3)
    rule = found(made)["cpu-contention"]
    same_text(rule)
    assert "Other programs" in text(rule)
    assert "set_num_threads" not in text(rule)


def test_collections_in_no_phase_are_the_collectors_and_not_of_no_phase() -> None:
    made = outside(60, calls(py("sentence", 4, "/x/m.py"), 55, 1))
    ns = round(50 * MS) * made.steps.count
    tree = made.threads[0].nodes
    node = next(i for i, key in enumerate(tree.key) if made.keys[key].name == "sentence")
    steps = replace(
        made.steps,
        split=(("gc", ns), ("compute", made.steps.sum_ns - ns)),
        split_places=(SplitPlace("gc", 0, node, ns),),
    )
    assert set(found(replace(made, steps=steps))) == {"gc-pressure"}


def test_what_an_optimizer_of_torchs_reads_is_the_optimizers() -> None:
    read = calls(tensor("item"), 12, 96)
    update = calls(torch_py("torch/optim/adam.py", "_single_tensor_adam", 347), 2, 1, read)
    step = calls(torch_py("torch/optim/adam.py", "Adam.step", 200), 0.5, 1, update)
    made = run(STEPS, inside={"optimizer": [step]})
    assert "sync-item" not in found(made)
    assert "sync-item" in found(run(STEPS, inside={"optimizer": [read]}))


@pytest.mark.parametrize(("used", "workers"), [(1.0, 2), (1.9, None)])
def test_a_worker_more_is_advised_where_a_cpu_is_idle(used: float, workers: int | None) -> None:
    waited = loader(60, workers=1, cpus=2, ready=1, blocked=39, blocked_ns=39 * 60 * MS,
                    loads=loads(100))  # fmt: skip
    made = with_cpus(run(SLOW, loaders=(waited,)), 2, used=used)
    fix = " ".join(found(made)["data-loading"].fix)
    assert (f"num_workers={workers}" in fix) if workers else ("num_workers" not in fix)


def test_workers_that_end_between_the_epochs_are_found_though_no_step_has_them() -> None:
    shutdown = torch_py(
        "torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._shutdown_workers"
    )
    made = run(inside={"": [Node(shutdown, 1, 300 * MS)]}, after_ms=12_000)
    tree = made.threads[0].nodes
    outside = RUN_PHASES.index("outside")
    nodes = replace(
        tree,
        phase=tuple(outside if made.keys[key].name == shutdown.name else 0 for key in tree.key),
    )
    phases = (PhaseTime("steps", 4 * 10**9, 1), PhaseTime("outside", 12 * 10**9, 2))
    made = replace(made, threads=(replace(made.threads[0], nodes=nodes),), phases=phases)
    rule = found(made)["worker-shutdown"]
    same_text(rule)
    assert (rule.saving_total_ms, rule.saving) == (12_000, "12.0 s in total")


@pytest.mark.parametrize(("times", "rules"), [(2, set()), (20, {"checkpoint-often"})])
def test_many_checkpoints_in_a_separate_phase_count(times: int, rules: set[str]) -> None:
    phases = (PhaseTime("steps", 4 * 10**9, 1), PhaseTime("checkpoint", 10**9, times))
    made = replace(run(), phases=phases)
    assert set(found(made)) == rules
    for finding in found(made).values():
        same_text(finding)


def test_a_checkpoint_is_counted_once_in_a_step_and_its_phase() -> None:
    """The saving function begins in the step, and then the phase begins."""
    phases = (PhaseTime("steps", 4 * 10**9, 1), PhaseTime("checkpoint", 10**9, 4))
    save = calls(torch_py("torch/serialization.py", "save"), 0.01)
    made = replace(run(inside={"": [save]}), phases=phases)
    nodes = made.threads[0].nodes
    four = tuple(
        4 if made.keys[key].name == "save" else n
        for key, n in zip(nodes.key, nodes.calls, strict=True)
    )
    made = replace(made, threads=(replace(made.threads[0], nodes=replace(nodes, calls=four)),))
    same_text(found(made)["checkpoint-often"])


def test_no_worker_is_advised_where_other_programs_have_the_cpus() -> None:
    made = with_cpus(computing(), 2, used=0.5)
    ns = round(40 * MS) * made.steps.count
    split = (("compute", made.steps.sum_ns - ns), ("cpu_wait", ns))
    rule = found(replace(made, steps=replace(made.steps, split=split)))["data-loading"]
    assert "num_workers" not in " ".join(rule.fix)
    same_text(rule)


# ---- backward ----


def test_a_rank_that_waits_for_others_gets_no_advice_on_its_backward() -> None:
    made = run({"forward": 5, "backward": 90})
    assert "backward-share" in found(made)
    job = replace(made, meta={**made.meta, "world_size": 2})
    assert "backward-share" not in found(job)
    alone = replace(made, meta={**made.meta, "world_size": 1})
    assert "backward-share" in found(alone)


def test_a_batch_that_is_received_without_a_cpu_is_not_slow_to_receive() -> None:
    made = received()
    assert "batch-receiving" in found(made)
    wait = round(0.6 * made.steps.sum_ns)
    split = (("compute", made.steps.sum_ns - wait), ("cpu_wait", wait))
    busy = replace(made, steps=replace(made.steps, split=split))
    assert "batch-receiving" not in found(busy) | noted(busy)


def test_gradients_that_no_optimizer_uses_are_a_finding() -> None:
    meta = {
        "torch_untrained": "model.teacher (Net)",
        "torch_untrained_size": 71674,
        "torch_untrained_all": 71674,
        "torch_untrained_share": 0.93,
    }
    rule = found(run(meta=meta))["untrained-gradients"]
    same_text(rule)
    assert rule.saving == ""
    outermost = {**meta, "torch_untrained": "Sequential"}
    same_text(found(run(meta=outermost))["untrained-gradients"])
    later = {**meta, "torch_untrained_of": "optimizers that stepped"}
    same_text(found(run(meta=later))["untrained-gradients"])
    numbered = found(run(meta={**meta, "torch_untrained": "0 (Net)"}))["untrained-gradients"]
    same_text(numbered)
    many = {**meta, "torch_untrained_all": 3412992}
    rule = found(run(meta=many))["untrained-gradients"]
    same_text(rule)
    large = {**meta, "torch_untrained_size": 7447652, "torch_untrained_all": 7447652}
    same_text(found(run(meta=large))["untrained-gradients"])
    small = {**meta, "torch_untrained_share": 0.05}
    assert "untrained-gradients" not in found(run(meta=small))


@pytest.mark.parametrize(
    ("times", "seconds", "fires"), [(4, 3, True), (4, 1, False), (2, 3, False)]
)
def test_a_long_validation_is_a_finding(times: int, seconds: int, fires: bool) -> None:
    phases = (
        PhaseTime("steps", 4 * 10**9, 1),
        PhaseTime("validation", seconds * 10**9, times),
    )
    rule = found(replace(run(), phases=phases)).get("validation-share")
    assert (rule is not None) == fires
    if rule is not None:
        same_text(rule)
        assert rule.evidence == (
            "It ran 4 times, 750 ms each; the steps between two validations take 1.00 s.",
        )
        assert rule.saving == ""


def test_several_files_of_one_checkpoint_count_once() -> None:
    phases = (PhaseTime("steps", 4 * 10**9, 1), PhaseTime("checkpoint", 10**9, 4))
    save = Node(torch_py("torch/serialization.py", "save"), 3, MS // 10)
    made = replace(run(inside={"": [save]}), phases=phases)
    same_text(found(made)["checkpoint-often"])


@pytest.mark.parametrize("steps", [47, 94])  # 3 / 47 * 47 is less than 3
def test_a_third_validation_counts_whatever_the_number_of_steps(steps: int) -> None:
    phases = (
        PhaseTime("steps", steps * 10**8, 1),
        PhaseTime("validation", steps * 10**8, 3),
    )
    rule = found(replace(run(steps=steps), phases=phases))["validation-share"]
    same_text(rule)
