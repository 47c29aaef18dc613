"""Real torch loaders: ready batches, the work of workers, the cost of start and end."""

from __future__ import annotations

import gc
import json
import os
import queue
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.report.figures import duration
from fastprof.session.faults import Faults
from fastprof.session.loaders import worker_side, worker_stats
from fastprof.session.loaders.worker_profiles import MergedTree, WorkerProfiles
from fastprof.session.loaders.worker_side import WorkerInit

torch = pytest.importorskip("torch")
# Here more workers than processors are no fault.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
data = torch.utils.data

# Against hanging only: a child imports torch once for each process that it starts.
LIMIT_S = 300
MS = 1_000_000


@pytest.fixture(autouse=True)
def nothing_hangs():
    def too_long(*_: object) -> None:
        raise TimeoutError(f"the test took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Sleepy(data.Dataset):
    """Numbers; every sample takes ``ms``; one of them may fail, or kill its worker."""

    def __init__(self, length: int = 24, ms: float = 1, fails_at: int = -1, dies_at: int = -1):
        self.length = length
        self.ms = ms
        self.fails_at = fails_at
        self.dies_at = dies_at

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        time.sleep(self.ms / 1e3)
        if index == self.fails_at:
            raise ValueError(f"sample {index} is broken")
        if index == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(index)


def decode(index: int) -> int:
    return index


class Shards(data.IterableDataset):
    """Worker 0 has three samples, any other seven."""

    def __iter__(self):
        info = data.get_worker_info()
        yield from range(3 if info is not None and info.id == 0 else 7)


def loader_of(dataset=None, workers: int = 1, context: str = "fork", **options):
    if workers:
        options["multiprocessing_context"] = context
    options.setdefault("batch_size", 2)
    return data.DataLoader(Sleepy() if dataset is None else dataset, num_workers=workers, **options)


def profiler(**options) -> fastprof.Profiler:
    return fastprof.Profiler(**{"functions": False, "gpu": False, "skip_first": 0, **options})


def stats(prof: fastprof.Profiler):
    return prof.snapshot().loaders[0].workers


def steps(prof: fastprof.Profiler, loader) -> None:
    for _ in prof.loader(loader, "main"):
        prof.step()


# ---- ready or blocked, load time ----


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_s4_05_every_batch_is_ready_or_waited_for(count: int) -> None:
    loader = loader_of(Sleepy(48, ms=2), count, prefetch_factor=3 if count else None)
    with profiler() as prof:
        for _ in prof.loader(loader, "main"):
            prof.step()
    seen = stats(prof)
    wall_ns = prof.snapshot().duration_ns
    assert (seen.workers, seen.batch_size, seen.processes) == (count, 2, count)
    assert seen.prefetch == (3 if count else None)
    assert seen.starts[0] == seen.firsts[0] == 1
    assert seen.ready + seen.blocked == sum(seen.depth) == (23 if count else 0)
    assert seen.blocked_ns <= wall_ns
    # A worker cannot load more than all the time.
    assert all(load.sum_ns <= wall_ns and load.worker < count for load in seen.loads)
    if count:
        assert seen.start_method == "fork"
        assert seen.shutdowns[0] == 1


def test_s4_04_a_loop_that_never_waits_blocks_nowhere() -> None:
    with profiler() as prof:
        iterator = iter(prof.loader(loader_of(), "main"))
        for i in range(12):
            if i:
                while iterator._data_queue.empty():
                    time.sleep(0.001)
            next(iterator)
            prof.step()
        del iterator
    seen = stats(prof)
    assert (seen.ready, seen.blocked, seen.blocked_ns) == (11, 0, 0)
    assert seen.depth[0] == 0
    assert seen.loads == ()  # the loop never waited, so the loads are unknown
    # But the time to receive the ready ones is known.
    assert 0 < seen.ready_ns < prof.snapshot().duration_ns


def test_a_worker_that_has_caught_up_bounds_the_time_of_a_batch() -> None:
    with profiler() as prof:
        iterator = iter(prof.loader(loader_of(Sleepy(24, ms=4)), "main"))
        for _ in range(12):
            next(iterator)
            while iterator._data_queue.qsize() < iterator._tasks_outstanding:
                time.sleep(0.001)
            time.sleep(0.01)
            prof.step()
        del iterator
    count, sum_ns = stats(prof).caught_up
    assert count == 11
    # Two samples of 4 ms, and the 10 ms after them.
    assert sum_ns / count >= 18e6
    row = prof.report().loaders[0].workers
    assert row.load_within_ms is None  # fewer than 20 batches give no result
    assert row.ready_ms is None


def test_s4_17_a_loop_that_waits_learns_how_many_workers_it_needs() -> None:
    with profiler() as prof:
        for _ in prof.loader(loader_of(Sleepy(80, ms=15)), "main"):
            with fastprof.profile_section("forward"):
                time.sleep(0.003)
            prof.step()
    row = prof.report().loaders[0].workers
    assert row.blocked > row.ready
    # A load sleeps 30 ms; a batch that was seen late, as many are on a busy machine, makes the
    # next one seem faster.
    assert row.load_ms >= 20
    assert row.load_samples >= 5
    assert row.step_ms >= 3
    assert row.needed == -(-row.load_ms // row.step_ms) > 1
    assert f"1 worker x {duration(row.load_ms)} per batch against" in row.advice
    assert row.advice in prof.report().notes


def test_batches_that_come_in_order_are_ready_although_a_later_one_came_first() -> None:
    # Worker 1's batches wait for worker 0's slow ones.
    class Uneven(Sleepy):
        def __getitem__(self, index: int):
            time.sleep(0.02 if index % 4 < 2 else 0)
            return index

    with profiler() as prof:
        batches = list(prof.loader(loader_of(Uneven(), 2), "main"))
        for _ in batches:
            prof.step()
    assert [b.tolist() for b in batches] == [[i, i + 1] for i in range(0, 24, 2)]
    seen = stats(prof)
    assert seen.ready >= 2


def test_an_iterable_dataset_with_shards_of_unequal_length() -> None:
    with profiler() as prof:
        got = list(prof.loader(loader_of(Shards(), 2, batch_size=1), "main"))
    assert len(got) == 10
    seen = stats(prof)
    assert seen.ready + seen.blocked == 9
    assert (seen.died, seen.shutdowns[0]) == (0, 1)


@pytest.mark.parametrize("count", [0, 2])
def test_s1_20_the_samplers_time_is_under_section_data(count: int) -> None:
    class DynamicBatchSampler:
        def __init__(self) -> None:
            self.lengths = [random.randrange(100) for _ in range(200)]

        def __iter__(self):
            order = self.by_length()
            for i in range(0, len(order), 20):
                yield order[i : i + 20]

        def by_length(self) -> list[int]:
            return sorted(range(len(self.lengths)), key=self.lengths.__getitem__)

        def __len__(self) -> int:
            return 10

    # The first indices are sent when workers start: in iter(), not in next().
    loader = loader_of(Sleepy(200, ms=0), count, batch_size=1, batch_sampler=DynamicBatchSampler())
    with profiler(functions=True) as prof:
        for _ in prof.loader(loader, "main"):
            prof.step()
    inside = {f.name: f for f in prof.report().functions_in("data")}
    sampled = inside["__iter__"]
    assert sampled.file == __file__
    assert sampled.calls + sampled.resumes >= 5
    if not count:
        assert inside["by_length"].calls == 1


# ---- work outside of steps ----


def test_breaking_off_a_pass_shuts_the_workers_down_at_once() -> None:
    loader = loader_of(workers=2)
    gc.disable()
    try:
        with profiler() as prof:
            for _ in range(3):
                for i, _ in enumerate(prof.loader(loader, "main")):
                    prof.step()
                    if i == 2:
                        break
            assert torch.multiprocessing.active_children() == []
            seen = stats(prof)
    finally:
        gc.enable()
    assert (seen.starts[0], seen.firsts[0], seen.shutdowns[0]) == (3, 3, 3)
    assert seen.processes == 6
    assert seen.ready + seen.blocked == 6
    assert all(count and ns > 0 for count, ns in (seen.starts, seen.firsts, seen.shutdowns))


def test_a_watched_iterator_is_in_no_cycle() -> None:
    with profiler() as prof:
        iterator = iter(prof.loader(loader_of(), "main"))
        next(iterator)
        gc.disable()
        try:
            gone = weakref.ref(iterator._fp_of)
            del iterator
            assert gone() is None
        finally:
            gc.enable()


def test_persistent_workers_are_started_once() -> None:
    loader = loader_of(workers=2, persistent_workers=True)
    with profiler() as prof:
        for _ in range(2):
            for _ in prof.loader(loader, "main"):
                prof.step()
        seen = stats(prof)
        assert seen.persistent
        assert (seen.starts[0], seen.resumes[0], seen.firsts[0]) == (1, 1, 2)
        assert (seen.shutdowns[0], seen.processes) == (0, 2)
        assert seen.ready + seen.blocked == 22
        # The pass is aborted and restarted, with batches of the old pass on their way.
        for _ in prof.loader(loader, "main"):
            break
        assert len(list(prof.loader(loader, "main"))) == 12
        assert stats(prof).resumes[0] == 3
    assert prof.snapshot().notes == ()


def test_torch_is_as_it_was_after_the_run() -> None:
    cls = data.dataloader._MultiProcessingDataLoaderIter
    before = (cls._get_data, cls._shutdown_workers)
    loader = loader_of(workers=2)
    with profiler() as prof:
        wrapped = prof.loader(loader, "main")
        list(wrapped)
        assert cls._get_data is not before[0]
    assert (cls._get_data, cls._shutdown_workers) == before
    assert len(list(wrapped)) == 12  # outlives the run, and counts no more
    assert (cls._get_data, cls._shutdown_workers) == before
    assert stats(prof).starts[0] == 1
    assert loader.worker_init_fn is None


def test_f19_torch_is_as_it_was_in_a_forked_child() -> None:
    cls = data.dataloader._MultiProcessingDataLoaderIter
    before = cls._get_data
    with profiler() as prof:
        list(prof.loader(loader_of(), "main"))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if cls._get_data is before else 1)
        assert os.waitpid(pid, 0)[1] == 0


# ---- faults ----


def test_an_exception_in_a_worker_reaches_the_loop() -> None:
    with profiler() as prof:
        with pytest.raises(ValueError, match="sample 9 is broken"):
            steps(prof, loader_of(Sleepy(fails_at=9)))
    seen = stats(prof)
    assert seen.died == 0
    assert prof.steps == 4


@pytest.fixture
def no_sigchld() -> Iterator[None]:
    """Disable torch's handler, which raises anywhere in the training process.

    Without it the loader notices the death while it waits for a batch, after 5 s.
    """
    data._utils.signal_handling._set_SIGCHLD_handler()
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    gc.collect()  # frees the workers' iterators, which torch observes
    signal.signal(signal.SIGCHLD, handler)


#: Exceptions of torch when a worker dies: it notices the death, or a tensor of an earlier batch,
#: which the worker should have passed on, does not arrive.
DIED = (RuntimeError, EOFError, ConnectionError)


@pytest.mark.usefixtures("no_sigchld")
def test_f20_a_killed_worker_is_counted_and_hangs_nothing() -> None:
    loader = loader_of(Sleepy(dies_at=9), 2)
    with profiler(recorder={"worker_functions": True}) as prof:
        with pytest.raises(DIED):
            steps(prof, loader)
        gc.collect()
    assert stats(prof).died == 1
    assert any("that died: 1" in note for note in prof.report().notes)


@pytest.mark.usefixtures("no_sigchld")
def test_f20_a_worker_that_has_no_exit_status_yet_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dying process closes its pipes before it has a status: the loop notices the closed pipe."""
    begins = worker_stats.Pass.shutdown_begins

    def dying(self: worker_stats.Pass, iterator: Any) -> None:
        begins(self, iterator)
        os.kill(iterator._workers[1].pid, signal.SIGKILL)

    monkeypatch.setattr(worker_stats.Pass, "shutdown_begins", dying)
    loader = loader_of(Sleepy(), 2)
    with profiler() as prof:
        iterator = iter(prof.loader(loader, "main"))
        next(iterator)
        del iterator
        gc.collect()
    assert stats(prof).died == 1


@pytest.mark.usefixtures("no_sigchld")
def test_f20_a_worker_that_died_is_found_at_the_end_of_the_run() -> None:
    loader = loader_of(Sleepy(dies_at=9), 2)
    with profiler() as prof:
        iterator = iter(prof.loader(loader, "main"))
        with pytest.raises(DIED):
            list(iterator)
        # The kernel closes its pipes, which the loop notices, before it has an exit status.
        while not any(worker.exitcode for worker in iterator._workers):
            time.sleep(0.001)
    assert stats(prof).died == 1


@pytest.mark.parametrize("missing", ["_task_info", "_data_queue", "_send_idx"])
def test_an_unknown_kind_of_iterator_switches_watching_off(missing: str, monkeypatch) -> None:
    cls = data.dataloader._MultiProcessingDataLoaderIter
    name = {"_task_info": "_tasks_outstanding"}.get(missing, missing)
    original = cls.__next__

    def hidden(self):
        # As if this release of torch used another name.
        self.__dict__.update(self.__dict__.pop("hidden", {}))
        try:
            return original(self)
        finally:
            if name in self.__dict__:
                self.__dict__["hidden"] = {name: self.__dict__.pop(name)}

    monkeypatch.setattr(cls, "__next__", hidden)
    with profiler() as prof:
        for _ in range(2):
            iterator = iter(prof.loader(loader_of(), "main"))
            got = [next(iterator) for _ in range(12)]
            inner = iterator._fp_of
            inner.__dict__.update(inner.__dict__.pop("hidden", {}))
            assert len(got) == 12
            del iterator, inner
    notes = [n for n in prof.snapshot().notes if "workers are not watched any more" in n]
    assert len(notes) == 1


def test_p9_workers_stay_watched_where_the_program_is_at_its_recursion_limit(monkeypatch) -> None:
    real, deep = worker_stats._batches_ready, [True]

    def first_too_deep(iterator: Any) -> int:
        if deep and deep.pop():
            raise RecursionError("maximum recursion depth exceeded")
        return real(iterator)

    monkeypatch.setattr(worker_stats, "_batches_ready", first_too_deep)
    with profiler() as prof:
        assert len(list(prof.loader(loader_of(), "main"))) > 1
    snapshot = prof.snapshot()
    assert not any("not watched" in note for note in snapshot.notes)
    assert snapshot.counters["loader_errors"] == 1


def test_an_object_with_strange_attributes_is_left_alone() -> None:
    class Strange:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def __getattr__(self, name: str):
            raise RuntimeError(name)

    with profiler() as prof:
        assert next(iter(prof.loader(Strange(), "main"))) == 1
    assert stats(prof) is None
    assert prof.snapshot().notes == ()


def test_queues_are_asked_whether_they_are_empty() -> None:
    for one in (queue.Queue(), torch.multiprocessing.Queue()):
        assert worker_stats._is_empty(one)
        one.put(1)
        while worker_stats._is_empty(one):
            time.sleep(0.001)
        assert one.get() == 1
        assert worker_stats._is_empty(one)


# ---- functions of the workers ----


def worker_rows(prof: fastprof.Profiler):
    (table,) = prof.report().worker_functions
    assert (table.name, table.ended) == ("(workers of main)", True)
    return {f.name: f for f in table.functions if f.file == __file__}


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_f20_the_functions_of_workers_are_recorded(context: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    loader = loader_of(workers=2, context=context)
    with profiler(recorder={"worker_functions": True}) as prof:
        for _ in prof.loader(loader, "main"):
            prof.step()
    rows = worker_rows(prof)
    assert rows["__getitem__"].calls == rows["decode"].calls == 24
    assert rows["__getitem__"].cum_ms >= 20
    seen = stats(prof)
    assert (seen.start_method, seen.profiled, seen.measured) == (context, 2, True)
    assert sum(load.count for load in seen.loads) == 12
    assert all(load.sum_ns >= load.count * 2 * MS for load in seen.loads)
    # The process's own tables do not contain it, and no files remain on the disk.
    assert "__getitem__" not in {f.name for f in prof.report().functions}
    assert not any("fastprof" in f.name for f in tmp_path.iterdir())
    assert loader.worker_init_fn is None


def test_f20_the_programs_own_init_function_runs_and_stays() -> None:
    def mine(worker: int) -> None:
        data.get_worker_info().dataset.ms = 0

    loader = loader_of(Sleepy(ms=10_000), 2, worker_init_fn=mine)
    with profiler(recorder={"worker_functions": True}) as prof:
        assert len(list(prof.loader(loader, "main"))) == 12
        assert loader.worker_init_fn is mine
    assert worker_rows(prof)["mine"].calls == 2


def test_f20_workers_that_go_on_are_read_as_of_their_last_save() -> None:
    loader = loader_of(workers=2, persistent_workers=True)
    with profiler(recorder={"worker_functions": True}) as prof:
        for _ in range(2):
            list(prof.loader(loader, "main"))
    assert 1 <= worker_rows(prof)["__getitem__"].calls <= 48
    assert stats(prof).profiled == 2
    assert len(list(loader)) == 12  # saving without a folder does no harm


def test_worker_functions_and_the_loops_own_are_apart() -> None:
    with profiler(functions=True, recorder={"worker_functions": True}) as prof:
        for batch in prof.loader(loader_of(workers=2), "main"):
            decode(int(batch[0]))
            prof.step()
    own = {f.name: f for f in prof.report().functions}
    assert own["decode"].calls == 12
    assert worker_rows(prof)["decode"].calls == 24
    text = prof.report().to_text(full=True)
    assert "Functions in other processes: (workers of main)" in text


def test_many_worker_processes_are_merged_during_the_run(monkeypatch) -> None:
    monkeypatch.setattr("fastprof.session.loaders.worker_profiles._MANY", 2)
    with profiler(recorder={"worker_functions": True}) as prof:
        for epoch in range(3):
            list(prof.loader(loader_of(Sleepy(8, ms=0)), "main"))
            if epoch:
                assert prof._run.loading.watches.profiles.of(0) is not None
    assert worker_rows(prof)["__getitem__"].calls == 24
    assert stats(prof).profiled == 3


def test_f20_fastprof_1_makes_no_reports_of_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import fastprof, torch\n"
        "from fastprof.session import current\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n"
        "        assert current.running() is None\n"
        "        return i\n"
        "if __name__ == '__main__':\n"
        "    for context in ('fork', 'spawn'):\n"
        "        loader = torch.utils.data.DataLoader(\n"
        "            Data(), num_workers=1, multiprocessing_context=context)\n"
        "        assert len(list(current.running().profiler.loader(loader, context))) == 8\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FASTPROF": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" s recorded, cost") == 1
    assert [f.name for f in tmp_path.iterdir()] == ["train.py"]


# ---- merging ----


def worker_file(**changes):
    keys = [["root", "", 0, "r", "r"], ["python", "a.py", 1, "f", "f"], ["c", "~", 0, "g", "g"]]
    tree = [[-1, 0, 1], [0, 1, 2], [0, 2, 3], [0, 0, 0], [5, 6, 7]]
    return {
        "worker": 0,
        "forms": [],
        "error": "",
        "backend": "setprofile",
        "fetches": [2, 30, 20],
        "keys": keys,
        "threads": [[1, 0, tree]],
        **changes,
    }


def test_trees_of_processes_add_up() -> None:
    merged = MergedTree()
    for _ in range(3):
        merged.add(json.loads(json.dumps(worker_file())))
    keys = []
    tree = merged.tree("(workers of x)", keys, {})
    assert tree.nodes.self_ns == (15, 18, 21)
    assert tree.nodes.calls == (0, 6, 9)
    assert [k.name for k in keys] == ["(root)", "f", "g"]
    assert (merged.loads[0].count, merged.loads[0].max_ns, merged.processes) == (6, 20, 3)


def test_how_functions_of_a_worker_were_called_is_kept() -> None:
    merged = MergedTree()
    merged.add(worker_file(forms=[[1, "implicit"]]))
    keys = []
    merged.tree("(workers of x)", keys, {})
    assert [k.form for k in keys] == ["short", "implicit", "short"]


def test_a_merged_tree_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("fastprof.session.loaders.worker_profiles.MAX_ROWS", 2)
    merged = MergedTree()
    merged.add(worker_file())
    assert (len(merged.nodes), merged.dropped) == (2, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"keys": [["section", "", 0, "data", "data"]]},
        {"threads": [[1, 0, [[-1, 1], [0, 1], [0, 0], [0, 0], [0, 0]]]]},
        {"threads": [[1, 0, [[-1, 0], [0, 9], [0, 0], [0, 0], [0, 0]]]]},
        {"fetches": [1, 2]},
        {"worker": "x"},
        {"forms": [[9, "implicit"]]},
        {"forms": [[1, "other"]]},
    ],
)
def test_a_damaged_file_of_a_worker_is_reported_and_left_out(bad, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    faults = Faults()
    profiles = WorkerProfiles(True, "auto", 1024, faults)
    loader = loader_of()
    with profiles.recorded(loader, 0):
        folder = Path(loader.worker_init_fn.folder)
    assert folder.stat().st_mode & 0o077 == 0
    (folder / "0-0-1.json").write_text(json.dumps(worker_file(**bad)))
    (folder / "0-0-2.json").write_text(json.dumps(worker_file()))
    profiles.close()
    assert profiles.of(0).processes == 1
    assert [n for n in faults.notes if "a worker's profile is lost" in n]
    assert not folder.exists()


def test_a_worker_whose_hook_is_taken_says_so(tmp_path) -> None:
    def taken(worker: int) -> None:
        pass

    init = WorkerInit(WorkerInit(taken, "", 0, "auto", 9), str(tmp_path), 0, "auto", 1024)
    assert init.original is taken  # wrapped twice, it still runs once
    pid = os.fork()
    if pid == 0:
        sys.setprofile(lambda *_: None)
        WorkerInit(None, str(tmp_path), 0, "setprofile", 1024)(3)
        os._exit(0)
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    assert json.loads(left.read_text())["error"].startswith("BusyError")


def test_worker_functions_is_a_switch() -> None:
    with pytest.raises(ValueError, match="worker_functions"):
        fastprof.Profiler(recorder={"worker_functions": 1})  # type: ignore[arg-type]


class Clock:
    """A worker's clock on which a sample takes 2 ms, however busy the machine is."""

    def __init__(self) -> None:
        self.now_ns = time.perf_counter_ns()

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def perf_counter(self) -> float:
        return self.now_ns / 1e9


class Timed(Sleepy):
    def __getitem__(self, index: int):
        if isinstance(worker_side.time, Clock):
            worker_side.time.now_ns += 2 * MS
        return super().__getitem__(index)


def use_clock(worker: int) -> None:
    worker_side.time = Clock()  # type: ignore[assignment]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_record_single_batches_of_the_first_passes(context: str) -> None:
    loader = loader_of(Timed(48, ms=2), 1, context, worker_init_fn=use_clock)
    with profiler(recorder={"worker_functions": "auto"}) as prof:
        for _ in range(2 if context == "spawn" else 5):
            assert len(list(prof.loader(loader, "main"))) == 24
    rows, seen = worker_rows(prof), stats(prof)
    passes = 2 if context == "spawn" else 3
    assert (seen.profiled, seen.windows) == (passes, True)
    # The second batch of each pass, and the one after 20 others.
    assert rows["decode"].calls == passes * 2 * 2
    assert rows["__getitem__"].cum_ms >= rows["decode"].calls * 2
    # Other batches have the load times.
    assert sum(load.count for load in seen.loads) == passes * 22
    assert all(load.sum_ns == load.count * 4 * MS for load in seen.loads)
    notes = prof.report().notes
    assert any("recorded in single batches" in note for note in notes)


def test_a_stream_and_an_error_end_the_window_of_a_worker() -> None:
    with profiler(recorder={"worker_functions": "auto"}) as prof:
        assert len(list(prof.loader(loader_of(Shards(), 2), "main"))) == 6
        with pytest.raises(ValueError, match="sample 2 is broken"):
            list(prof.loader(loader_of(Sleepy(fails_at=2)), "broken"))
    assert prof.snapshot().counters == {}
