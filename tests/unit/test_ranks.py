"""Row S1-22: comparing the ranks of a job, on hand-made runs with known truth."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from dataclasses import replace

import fastprof
import pytest
from fastprof.cli import main
from fastprof.errors import LoadError
from fastprof.ranks.build import rank_report
from fastprof.ranks.live.amount import Begin
from fastprof.ranks.live.text import late_text
from fastprof.ranks.model import Straggler
from fastprof.ranks.row import rank_run
from fastprof.read import merge as merging
from fastprof.render import formats
from fastprof.report.phase_names import is_communication
from fastprof.results.ranks import RankReport, merge
from fastprof.results.report import build_report
from fastprof.results.result import as_result
from fastprof.snapshot import LoaderStats, StepRow, Steps
from fastprof.snapshot.loaders import WorkerStats
from fastprof.snapshot.steps import StepSeries
from unit.hostile import NAMES
from unit.snapshots import (
    MIB,
    MS,
    Builder,
    Node,
    gpu,
    h200,
    health,
    memory,
    py,
    replaced,
    section,
    timeline,
)
from wording import same_text

STEPS = 20


def run(rank, world=4, *, steps=STEPS, jitter_ms=0.0, whole_ms=None, meta=(), **sections):
    """Return a run of one rank; ``sections`` are ms per step, the rest is unaccounted."""
    builder = Builder()
    ms = {name.replace("_", "-") if "_" in name else name: v for name, v in sections.items()}
    whole = sum(ms.values()) if whole_ms is None else whole_ms
    rows = tuple(
        StepRow(builder.key(section(name)), steps, round(value * MS) * steps)
        for name, value in ms.items()
    )
    builder.thread(Node(py("train"), 1, round(whole * MS) * steps))
    one = round(whole * MS)
    noise = random.Random(rank)
    wall = [round((whole + noise.gauss(0, jitter_ms)) * MS) for _ in range(steps)]
    squares = steps * ((whole / 1e3) ** 2 + (jitter_ms / 1e3) ** 2)
    series = StepSeries(
        start_ns=(0,) * steps,
        wall_ns=tuple(wall),
        sections=tuple((row.key, (row.sum_ns // max(1, steps),) * steps) for row in rows),
    )
    return builder.snapshot(
        meta={"rank": rank, "world_size": world, "python": "3.12.1", **dict(meta)},
        steps=Steps(
            steps, 0, one * steps, squares, one, one, (one,) * steps, rows=rows, series=series
        ),
    )


def waiting(rank, data=5.0, **fields):
    """Return a rank of DDP without a GPU layer: backward takes the rest of 100 ms."""
    return run(rank, data=data, forward=20, backward=70 - data, optimizer=10, **fields)


def ranks(*snapshots):
    runs = [rank_run(s, f"rank{s.meta['rank']}.fprof") for s in snapshots]
    return as_result(RankReport, rank_report(runs))


def test_s1_22_the_rank_that_loads_slowly_is_named_with_its_section_and_the_wait():
    made = ranks(*(waiting(r, data=35 if r == 2 else 5) for r in range(4)))
    late = made.straggler
    assert (late.rank, late.section) == (2, "data")
    assert (late.section_ms, late.section_others_ms) == (35, 5)
    assert late.late_ms == pytest.approx(30)
    assert late.late_share == pytest.approx(0.3)
    assert dict(late.waits) == pytest.approx({0: 30, 1: 30, 3: 30})
    assert late.text == (
        "Rank 2 is late: its own work takes 65.0 ms per step, that of the others 35.0 ms (median); "
        "data takes 35.0 ms against 5.00 ms. The others wait for it about 30.0 ms per step "
        "(30.0 % of the step), backward not counted."
    )
    assert made.imbalance == pytest.approx(65 / ((65 + 3 * 35) / 4) - 1)
    assert made.signal == "backward"
    assert any("a rank whose backward is slow is missed" in note for note in made.notes)


@pytest.mark.parametrize(
    ("signal", "wait", "left_out"),
    [
        ("gpu", "at most", ""),
        ("split", "at most", ""),
        ("sections", "at most", ""),
        ("none", "at most", ""),
        ("backward", "about", ", backward not counted"),
        ("autograd", "about", ", backward in C++ not counted"),
        ("cpu", "about", ""),
    ],
)
def test_s1_22_a_wait_is_the_most_only_if_all_own_work_counts(signal, wait, left_out):
    """A rank with longer sequences computes longer in backward, too, where others may wait."""
    late = Straggler(
        rank=1, host=None, work_ms=60.0, others_ms=50.0, late_ms=10.0, late_share=0.1,
        section="forward", section_ms=26.0, section_others_ms=16.0, waits=((0, 10.0),), also=(),
        signal=signal,
    )  # fmt: skip
    end = f"The others wait for it {wait} 10.0 ms per step (10.0 % of the step){left_out}."
    assert late.text.endswith(end)
    costs = "up to" if wait == "at most" else "about"
    live = late_text(late, Begin(100, shown=True), False)
    assert live.endswith(f"; this costs the job {costs} 10.0 %{left_out}.")
    # Nor if waits for a CPU do not count, which the sentence on own work says.
    late = replace(late, without_cpu_wait=True)
    assert f"The others wait for it about 10.0 ms per step (10.0 % of the step){left_out}." in (
        late.text
    )
    live = late_text(late, Begin(100, shown=True), False)
    assert live.endswith(f"; this costs the job about 10.0 %{left_out}.")


def test_s1_22_the_verdict_and_the_table_have_the_same_times_of_sections(monkeypatch):
    """Both are without fastprof's own cost, of which ranks may have different amounts."""
    cost_ms = {0: 3, 1: 1}

    def costs(whole):
        rank = whole.meta["rank"]
        data = next(row.key for row in whole.steps.rows if whole.keys[row.key].name == "data")
        return {data: cost_ms[rank] * MS * STEPS}

    monkeypatch.setattr("fastprof.report.step_table.costs_of_steps", costs)
    made = ranks(waiting(0, world=2, data=8), waiting(1, world=2, data=36))
    late = made.straggler
    assert (late.rank, late.section) == (1, "data")
    assert [dict(row.sections)["data"] for row in made.rows] == pytest.approx([5, 35])
    assert (late.section_others_ms, late.section_ms) == pytest.approx((5, 35))


def test_s1_22_the_table_has_a_row_per_rank():
    made = ranks(
        *(
            replaced(
                waiting(r, meta={"hostname": f"node{r // 2}"}), memory=memory(peak_reserved=r << 30)
            )
            for r in (3, 1, 0, 2)
        )
    )
    lines = made.to_text().splitlines()
    assert lines[0] == "fastprof ranks: 4 of 4 on 2 hosts"
    at = next(i for i, line in enumerate(lines) if line.startswith("rank"))
    header, rows = re.split(r"  +", lines[at]), [line.split() for line in lines[at + 2 : at + 6]]
    found = [dict(zip([h.strip() for h in header], row)) for row in rows]
    assert [row["rank"] for row in found] == ["0", "1", "2", "3"]
    assert [row["memory GiB"] for row in found] == ["0", "1.00", "2.00", "3.00"]
    assert found[3] == {
        "rank": "3", "host": "node1", "steps": "20", "step": "100", "p95": "100",
        "own work": "35.0", "data": "5.00", "forward": "20.0", "backward": "65.0",
        "optimizer": "10.0", "memory GiB": "3.00",
    }  # fmt: skip


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_ranks_fit_the_terminal(columns):
    made = ranks(*(waiting(r, data=35 if r == 2 else 5) for r in range(4)))
    lines = formats.render_ranks(made, "text", width=columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert {word for line in lines for word in line.split()} == set(made.to_text().split())


def on_gpu(rank, compute, **fields):
    """Return a rank whose GPU computes ``compute`` of 100 ms and communicates the rest."""
    builder_run = waiting(rank, **fields)
    communication = round((90 - compute) * MS) * STEPS
    span = timeline(
        round(90 * MS) * STEPS, (-1, round(10 * MS) * STEPS),
        compute_ns=round(compute * MS) * STEPS, communication_ns=communication,
    )  # fmt: skip
    device = h200(whole=span, steps=span, step_count=STEPS)
    return replaced(builder_run, gpu=gpu(devices=(device,)))


def test_s1_22_a_slow_gpu_is_the_one_that_waits_least_in_all_reduce():
    made = ranks(*(on_gpu(r, 80 if r == 1 else 50) for r in range(4)))
    assert made.signal == "gpu"
    late = made.straggler
    assert (late.rank, late.section) == (1, "GPU")
    assert (late.section_ms, late.section_others_ms) == (80, 50)
    assert late.wait_ms == pytest.approx(30)
    assert "work on the GPU takes 80.0 ms against 50." in late.text
    assert [row.gpu_communication_ms for row in made.rows] == [40, 10, 40, 40]


def test_communication_that_other_work_hides_is_no_waiting():
    span = timeline(90 * MS * STEPS, (-1, 10 * MS * STEPS), compute_ns=90 * MS * STEPS,
                    communication_ns=40 * MS * STEPS, overlap_ns=40 * MS * STEPS)  # fmt: skip
    device = h200(whole=span, steps=span, step_count=STEPS)
    made = ranks(*(replaced(waiting(r), gpu=gpu(devices=(device,))) for r in range(2)))
    assert (made.signal, made.work_ms) == ("gpu", (100.0, 100.0))


def test_a_section_named_as_communication_is_waiting():
    def one(rank, forward):
        return run(rank, 2, data=5, forward=forward, synchronization=50 - forward, optimizer=20)

    made = ranks(one(0, 10), one(1, 30))
    assert (made.signal, made.straggler.rank, made.straggler.section) == ("sections", 1, "forward")
    assert made.straggler.late_ms == pytest.approx(20)
    assert [is_communication(n) for n in ("all_reduce", "Gradient-Sync", "sync_batchnorm")] == [
        True, True, False,
    ]  # fmt: skip


def test_healthy_ranks_have_no_straggler():
    made = ranks(*(waiting(r, data=5 + 0.5 * r) for r in range(8)))
    assert made.straggler is None
    same_text(made.notes[0], "ranks-merged")
    same_text(made.to_text().splitlines()[2], "ranks-merged")


def test_a_difference_within_the_noise_is_no_straggler():
    # 8 ms late; of 20 steps that vary by 40 ms the mean has an error of 9 ms.
    noisy = ranks(*(waiting(r, data=13 if r == 2 else 5, jitter_ms=40) for r in range(4)))
    assert noisy.straggler is None
    quiet = ranks(*(waiting(r, data=13 if r == 2 else 5, jitter_ms=4) for r in range(4)))
    assert quiet.straggler.rank == 2


def test_several_late_ranks_are_all_named():
    made = ranks(*(waiting(r, data=40 if r in (1, 6) else 5, world=8) for r in range(8)))
    assert {made.straggler.rank, *made.straggler.also} == {1, 6}
    assert re.search(r"Late as well: rank [16]\.$", made.straggler.text)
    assert made.straggler.wait_ms == pytest.approx(35 * 6 / 7)


def test_ranks_that_recorded_nothing_else_than_steps_are_compared_by_them():
    made = ranks(run(0, 2, work=50), run(1, 2, work=80))
    assert (made.signal, made.straggler.rank, made.straggler.section) == ("none", 1, "work")
    assert any(note.startswith("Steps do not take equally long (50.0 ms") for note in made.notes)


def test_too_few_steps_say_nothing():
    made = ranks(waiting(0), waiting(1, data=60, steps=3))
    assert made.straggler is None
    same_text(made.notes[0], "ranks-merged")
    none = ranks(waiting(0), replaced(waiting(1), steps=Steps()))
    assert none.straggler is None
    same_text(none.notes[0], "ranks-merged")
    same_text(ranks(waiting(0)).notes[0], "ranks-merged")


def test_different_numbers_of_steps_and_options_are_told():
    def loader(workers):
        stats = WorkerStats(workers, batch_size=8)
        return (LoaderStats("main", "train", STEPS, {}, workers=stats),)

    made = ranks(
        replaced(waiting(0, meta={"functions": True}), loaders=loader(4)),
        replaced(waiting(1, meta={"functions": True}), loaders=loader(4)),
        replaced(waiting(3, steps=15, meta={"functions": False}), loaders=loader(2)),
    )
    notes = "\n".join(made.notes)
    same_text(notes, "ranks-merged")
    assert "batch size" not in notes


# ---- reading the files


@pytest.fixture
def saved(tmp_path):
    def save(snapshot, name=None):
        path = tmp_path / (name or f"rank{snapshot.meta['rank']}_run.fprof")
        build_report(snapshot).save(path)
        return str(path)

    return save


def test_merging_reads_the_files_in_any_order(saved):
    paths = [saved(waiting(r, data=35 if r == 2 else 5)) for r in (2, 0, 3, 1)]
    made = fastprof.merge(paths)
    assert isinstance(made, fastprof.RankReport)
    assert [row.rank for row in made.rows] == [0, 1, 2, 3]
    assert made.straggler.rank == 2
    assert [row.path for row in made.rows] == sorted(paths)


def test_functions_of_all_ranks_are_added_up(saved):
    def one(rank, own):
        builder = Builder()
        builder.thread(Node(py("train"), 1, own * MS, [Node(py(f"only{rank}", 9), 3, 7 * MS)]))
        return builder.snapshot(meta={"rank": rank, "world_size": 3})

    made = merge([saved(one(r, own)) for r, own in enumerate((10, 40, 20))])
    train = made.functions[0]
    assert (train.qualname, train.ranks, train.calls, train.self_ms) == ("train", 3, 3, 70)
    assert (train.cum_ms, train.max_self_ms, train.max_rank) == (91, 40, 1)
    assert {f.qualname: f.ranks for f in made.functions[1:]} == {f"only{r}": 1 for r in range(3)}


def test_more_functions_than_are_kept_are_one_row(saved, monkeypatch):
    monkeypatch.setattr(merging, "MAX_FUNCTIONS", 2)
    builder = Builder()
    builder.thread(*(Node(py(f"f{i}", i), 1, (10 - i) * MS) for i in range(5)))
    run_ = builder.snapshot(meta={"rank": 0, "world_size": 2})
    made = merge([saved(run_), saved(replaced(run_, meta={"rank": 1, "world_size": 2}))])
    found = {f.qualname: (f.ranks, f.calls, f.self_ms) for f in made.functions}
    assert found == {"f0": (2, 2, 20), "f1": (2, 2, 18), "(other functions)": (2, 6, 42)}


def test_a_rank_twice_is_refused_with_both_files(saved):
    paths = [saved(waiting(1), "a.fprof"), saved(waiting(1), "b.fprof")]
    with pytest.raises(ValueError, match=r"rank 1 is in two files: '.*a\.fprof' and '.*b\.fprof'"):
        merge(paths)
    alone = [saved(waiting(0, world=1), "c.fprof"), saved(waiting(0, world=1), "d.fprof")]
    with pytest.raises(ValueError, match="RANK gives each process its rank"):
        merge(alone)


def test_ranks_of_different_jobs_are_refused(saved):
    paths = [saved(waiting(0, world=4)), saved(waiting(1, world=8))]
    with pytest.raises(ValueError, match=r"different jobs: '.*' is of 4 ranks, '.*' of 8"):
        merge(paths)


def test_what_is_no_ranks_file_is_refused(saved, tmp_path):
    stats = saved(waiting(0), "x.stats")
    with pytest.raises(LoadError, match=r"x\.stats': does not say of which rank it is"):
        merge([stats])
    (tmp_path / "y.fprof").write_bytes(b"nothing")
    with pytest.raises(LoadError, match=r"y\.fprof': neither"):
        merge([tmp_path / "y.fprof"])
    with pytest.raises(FileNotFoundError):
        merge([tmp_path / "z.fprof"])
    # A list of the missing ranks would fill the memory.
    for meta in ({"rank": 0, "world_size": 2**53}, {"rank": 10**7}):
        with pytest.raises(LoadError, match="expected at most 1000000 ranks"):
            merge([saved(replaced(waiting(0), meta=meta), "huge.fprof")])
    with pytest.raises(ValueError, match="no ranks to merge"):
        merge([])
    with pytest.raises(TypeError, match="expected several paths, one per rank"):
        merge(stats)


def test_own_rank_numbers_without_a_world_size_are_enough(saved):
    made = merge([saved(waiting(r, world=1)) for r in range(3)])
    assert (made.world_size, made.missing, len(made.rows)) == (None, (), 3)


@pytest.mark.slow
def test_p2_a_thousand_ranks_take_little_memory(saved, monkeypatch):
    path = saved(waiting(0, world=1000))
    runs = iter(range(1000))

    def run_of(snapshot, path, **options):
        # The same file for another rank; reading and building are real.
        return rank_run(
            replaced(snapshot, meta={**snapshot.meta, "rank": next(runs)}), path, **options
        )

    monkeypatch.setattr(merging, "rank_run", run_of)
    tracemalloc.start()
    made = merge([path] * 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(made.rows), made.missing) == (1000, ())
    assert peak < 16 * MIB
    text = made.to_text()
    assert "Ranks (ms per step; 64 of 1000, most own work first)" in text
    assert len(text) < 20_000
    assert len(made.to_markdown()) < 8192
    assert len(json.loads(made.to_json())["rows"]) == 1000


# ---- outputs


@pytest.fixture
def late():
    return ranks(*(waiting(r, data=35 if r == 2 else 5) for r in range(4)))


def test_s1_22_unequal_ranks_are_a_finding_and_equal_ones_are_not(late):
    found = late.finding
    assert (found.rule, found.severity) == ("imbalance", "critical")
    assert found.value == pytest.approx(100 * late.imbalance)
    same_text(found)
    assert found.evidence == (late.straggler.text,)
    assert found.saving_ms == pytest.approx(30)
    assert f"Finding (critical): {found.title}" in late.to_text()
    assert json.loads(late.to_json())["finding"]["rule"] == "imbalance"
    healthy = ranks(*(waiting(r, data=5 + 0.5 * r) for r in range(8)))
    assert healthy.finding is None
    # Far apart, but each step varies by more: chance explains it.
    noisy = ranks(*(waiting(r, data=13 if r == 2 else 5, jitter_ms=40) for r in range(4)))
    assert noisy.imbalance > 0.1
    assert noisy.finding is None


def hot(late_rank=2, **devices):
    """Return four ranks, one of them late on the GPU; ``devices``: health by rank."""

    def made(rank):
        computing = on_gpu(rank, 80 if rank == late_rank else 40)
        found = devices.get(f"r{rank}", health((62,), (1980,), judged=10))
        device = replace(computing.gpu.devices[0], health=found)
        return replaced(computing, gpu=replace(computing.gpu, devices=(device,)))

    return ranks(*(made(rank) for rank in range(4)))


def test_s1_22_the_table_has_temperature_clock_and_throttling_of_each_rank():
    made = hot(r1=health((80, 91), (1500, 1200), judged=8, hw_thermal=2), r3=None)
    assert [r.gpu_temperature_c for r in made.rows] == [62, 85.5, 62, None]
    assert [r.gpu_temperature_max_c for r in made.rows] == [62, 91, 62, None]
    assert [r.gpu_sm_clock_mhz for r in made.rows] == [1980, 1350, 1980, None]
    assert [r.gpu_throttled for r in made.rows] == [0, 0.25, 0, None]
    lines = made.to_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("rank"))
    header = re.split(r"  +", lines[at])
    assert header[-4:] == ["GPU mean C", "GPU most C", "SM clock MHz", "throttled %"]
    cells = [line.split()[-4:] for line in lines[at + 2 : at + 6]]
    assert cells[1] == ["86", "91", "1350", "25.0"]
    assert cells[3] == ["n/a"] * 4
    assert "SM clock MHz" in made.to_markdown()
    assert json.loads(made.to_json())["rows"][1]["gpu_temperature_max_c"] == 91
    # Other reports have no empty column.
    assert "SM clock" not in ranks(*(on_gpu(r, 40) for r in range(2))).to_text()


def test_s1_22_of_several_devices_the_worst_counts():
    made = on_gpu(0, 40)
    devices = (
        replace(made.gpu.devices[0], health=health((60,), (1980,), judged=2)),
        replace(made.gpu.devices[0], index=1, health=None),
        replace(made.gpu.devices[0], index=2, health=health((80,), None, judged=0)),
        replace(made.gpu.devices[0], index=3, health=health(None, (1200,), judged=2, hw_thermal=1)),
    )
    row = rank_run(replaced(made, gpu=replace(made.gpu, devices=devices)), "x").row
    found = (row.gpu_temperature_c, row.gpu_sm_clock_mhz, row.gpu_throttled)
    assert found == (80, 1200, 0.5)


def test_s1_22_a_late_rank_with_a_hot_gpu_is_told_so_in_the_finding():
    sick = health((88,), (1410,), judged=10, hw_thermal=4)
    made = hot(r2=sick)
    text = (
        "The GPU of rank 2 is worse than the others' (medians): its SM clock is 1410 MHz "
        "against 1980 MHz, it is at 88 C against 62 C, its clocks were throttled in 40.0 % of the "
        "samples."
    )
    assert made.finding.evidence == (made.straggler.text, text)
    assert text in made.notes
    # It is late for another reason than heat; the report names the hot rank anyway.
    other = hot(r1=sick)
    assert other.finding.evidence == (other.straggler.text,)
    assert any("GPU of rank 1 is worse" in note for note in other.notes)


@pytest.mark.parametrize(
    ("temperature", "clock", "worse"),
    [
        (71, 1980, False), (72, 1980, True), (62, 1890, False), (62, 1870, True),
        (40, 2500, False), (None, 1000, True), (90, None, True), (None, None, False),
    ],
)  # fmt: skip
def test_s1_22_gpus_are_alike_within_10_c_and_5_percent(temperature, clock, worse):
    one = health(temperature and (temperature,), clock and (clock,), judged=10)
    assert any("is worse than" in note for note in hot(r0=one).notes) == worse


def test_json_has_every_field(late):
    data = json.loads(late.to_json())
    assert data["schema"] == "fastprof.ranks/1"
    assert data["straggler"]["rank"] == 2
    assert data["straggler"]["text"] == late.straggler.text
    assert [row["rank"] for row in data["rows"]] == [0, 1, 2, 3]
    assert data["sections"][0]["max_rank"] == 2


def test_ranks_are_saved_by_suffix_and_shown_in_notebooks(late, tmp_path):
    for suffix, text in ((".txt", late.to_text()), (".json", late.to_json())):
        late.save(tmp_path / f"ranks{suffix}")
        assert (tmp_path / f"ranks{suffix}").read_text() == text
    with pytest.raises(ValueError, match=r"cannot tell the format of 'ranks.csv'; use one of: "):
        late.save(tmp_path / "ranks.csv")
    # Elsewhere these suffixes mean traces and flame graphs, which ranks do not have.
    for name in ("x.trace.json", "x_trace.json", "x.speedscope.json"):
        with pytest.raises(ValueError, match="cannot tell the format"):
            late.save(tmp_path / name)
    assert late._repr_html_().startswith("<pre>fastprof ranks: 4 of 4")


def test_markdown_is_a_table_of_ranks(late):
    text = late.to_markdown()
    assert text.startswith("### fastprof ranks: 4 of 4\n\nRank 2 is late: ")
    assert "\n| 2 | 20 | 100 |" in text


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_f43_hostile_names_of_hosts_and_sections(name):
    made = ranks(*(waiting(r, meta={"hostname": name}, **{name: 60 * r}) for r in range(2)))
    assert made.straggler is not None
    for text in (made.to_text(), made.to_markdown()):
        assert all(line.isprintable() for line in text.splitlines())
        assert len(text) < 20_000
    json.loads(made.to_json())


def test_the_command_shows_and_writes_the_ranks(saved, tmp_path, capsys):
    paths = [saved(waiting(r, data=35 if r == 2 else 5)) for r in range(4)]
    assert main(["merge", *paths]) == 0
    shown = capsys.readouterr().out
    assert "Rank 2 is late" in shown
    for suffix, begin in (
        (".txt", shown.splitlines()[0]),
        (".json", "{"),
        (".md", "### fastprof ranks: 4 of 4"),
    ):
        out = tmp_path / f"ranks{suffix}"
        assert main(["merge", *paths, "-o", str(out)]) == 0
        assert out.read_text().startswith(begin)
    assert main(["merge", *paths, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["straggler"]["rank"] == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [(["{0}", "{0}"], "rank 0 is in two files"),
     (["{0}", "-o", "x.csv"], "use one of: .json .txt .html .htm .md"),
     (["nowhere.fprof"], "no such file: ")],
)  # fmt: skip
def test_what_cannot_be_merged_is_one_line_and_status_2(args, said, saved, capsys):
    path = saved(waiting(0))
    assert main(["merge", *(arg.format(path) for arg in args)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
