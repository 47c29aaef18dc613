"""Rank 0's report on all ranks at the end of its run."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fastprof.cli import job
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.now import JobNow
from fastprof.ranks.live.window import RankWindow, encode
from fastprof.ranks.model import LatePeriod, LateStep, Straggler
from fastprof.results.report import build_report
from unit.test_ranks import waiting

NAME = "train_profile.fprof"


@pytest.fixture
def save(tmp_path):
    def saved(*ranks, late=2, world=4):
        for rank in ranks:
            snapshot = waiting(rank, data=35 if rank == late else 5, world=world)
            build_report(snapshot).save(tmp_path / f"rank{rank}_{NAME}")
        return str(tmp_path)

    return saved


def nothing():
    return None


def lines(folder, world=4, live=nothing, began_ns=0, width=80, wait=True, here=64):
    said, last = job.job_lines(folder, NAME, world, began_ns, live, width, lambda: wait, here)
    assert all(len(line) <= width for line in (*said, *last))
    return said, last


def test_the_ranks_are_told_from_their_files_the_late_one_first(save):
    said, last = lines(save(0, 1, 2, 3))
    assert said[0].startswith("Ranks: 4 of 4. Rank 2 is late: its own work takes 6")
    table = said[said.index("ms per step:") + 1 :]
    assert table[0].split() == [
        "rank", "step", "own", "work", "backward", "forward", "data", "optimizer",
    ]  # fmt: skip
    assert [row.split()[0] for row in table[1:5]] == ["2", "0", "1", "3"]
    assert table[1].startswith("2 (late)")
    assert "shorter while the others wait for rank 2." in " ".join(said)
    assert last == ["Rank 2 is late by 30.0 ms per step (30.0 %): see above."]


def test_a_rank_that_was_late_in_one_step_is_not_called_late(save, monkeypatch):
    real = job.merge

    def hung(*args, **kwargs):
        return replace(real(*args, **kwargs), hangs=(LateStep(0, 12, 46.3, "optimizer"),))

    monkeypatch.setattr(job, "merge", hung)
    said, _ = lines(save(0, 1, 2, 3))
    table = said[said.index("ms per step:") + 2 :]
    assert [row.split("  ")[0] for row in table[:2]] == ["2 (late)", "0 (late once)"]


def test_a_job_of_many_ranks_is_told_from_what_they_exchanged(save):
    """There, only late and silent ranks have rows."""
    verdict = "No rank is late: 2.00 ms per step would have been seen."
    now = JobNow(160, (), None, verdict, heard=158)
    said, last = lines(save(0), world=160, live=lambda: now)
    text = " ".join(said)
    assert text.startswith(f"Ranks: 158 of 160, in the last 10 s of steps. {verdict}")
    assert last == []


def test_what_is_in_no_section_has_a_column_if_it_is_much(tmp_path):
    """It may contain the cause of a late rank, and completes the sum of a step's parts."""
    for rank in (0, 1):
        made = waiting(rank, data=35 if rank == 1 else 5, world=2)
        data = next(i for i, key in enumerate(made.keys) if key.name == "data")
        rows = tuple(row for row in made.steps.rows if row.key != data)
        made = replace(made, steps=replace(made.steps, rows=rows))
        build_report(made).save(tmp_path / f"rank{rank}_{NAME}")
    said, _ = lines(str(tmp_path), world=2)
    table = said[said.index("ms per step:") + 1 :]
    head = table[0].replace("own work", "own-work").split()
    late = dict(zip(head, table[1].replace(" (late)", "").split(), strict=True))
    assert late["rank"] == "1"
    assert float(late["(unaccounted)"]) >= 35
    parts = sum(float(late[name]) for name in head[3:])
    assert abs(parts - float(late["step"])) < 1


def test_why_it_is_not_known_who_is_late_is_said(save, monkeypatch):
    real = job.merge

    def unknown(*args, **kwargs):
        why = "Who is late is not known: the ranks have too few steps in common. More."
        return replace(
            real(*args, **kwargs), straggler=None, seen_from_ms=None, notes=("Other.", why)
        )

    monkeypatch.setattr(job, "merge", unknown)
    said, _ = lines(save(0, 1, 2, 3), width=200)
    assert said[0] == (
        "Ranks: 4 of 4. It is not known whether a rank is late: the ranks have too few steps in "
        "common."
    )


def test_of_many_ranks_the_late_ones_have_a_row_and_the_others_one(save):
    said, _ = lines(save(*range(8), world=8), 8)
    rows = said[said.index("ms per step:") + 2 :]
    assert [row.split("  ")[0] for row in rows[:2]] == ["2 (late)", "median of 7"]


def test_equal_ranks_are_said_to_be_equal_and_nothing_is_said_last(save):
    said, last = lines(save(*range(8), world=8, late=None), 8)
    assert "No straggler outside of backward: one that is late" in " ".join(said)
    assert len(said) <= 2
    assert last == []


def test_a_rank_without_a_file_is_waited_for_and_said(save, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_S", 1.0)
    began = time.monotonic()
    said, _ = lines(save(0, 1, 2))
    assert 1.0 <= time.monotonic() - began < 10.0
    text = " ".join(said)
    assert text.startswith("Ranks: 3 of 4. Rank 2 is late: ")
    assert (
        "Rank 3 saved no file in the 1 s after rank 0 ended: it has not ended, was killed, or "
        "saved its file elsewhere. `fastprof merge` compares all ranks by their files." in text
    )


def test_files_of_an_earlier_run_are_not_those_of_this_one(save, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_S", 0.1)
    said, last = lines(save(0, 1, 2, 3), began_ns=time.time_ns() + 10**12)
    assert said[0].startswith("Ranks 1, 2, 3 saved no file")
    assert last == []


def test_ranks_whose_files_cannot_come_here_are_not_waited_for(save, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_S", 3600.0)
    said, _ = lines(save(0, 1), here=2)
    assert (
        "Ranks 2, 3 save their files on other machines, in folders with other names; -o DIR sets "
        "one name for all. `fastprof merge` compares all ranks by their files." in " ".join(said)
    )


def test_files_that_take_long_to_read_are_left_to_merge(save, monkeypatch):
    monkeypatch.setattr(job, "MOST_BYTES", 1000)
    said, last = lines(save(0, 1, 2, 3))
    assert said == ["`fastprof merge` compares all ranks by their files, when all have ended."]
    assert last == []


def test_a_rank_that_is_late_in_some_steps_is_not_called_late_in_each(monkeypatch, save):
    late = Straggler(
        2,
        None,
        65.0,
        35.0,
        30.0,
        0.3,
        "data",
        35.0,
        5.0,
        ((0, 30.0),),
        (),
        LatePeriod(2, 50, 80, 30.0),
    )
    report = job.merge([f"{save(0, 1, 2, 3)}/rank{rank}_{NAME}" for rank in range(4)])
    monkeypatch.setattr(job, "merge", lambda files: replace(report, straggler=late))
    _, last = lines(save(0, 1, 2, 3))
    assert " ".join(last) == (
        "Rank 2 is late in steps 50 to 80 by 30.0 ms per step (30.0 %): see above."
    )
    late = replace(late, period=None, late_steps=0.1)
    _, last = lines(save(0, 1, 2, 3))
    assert " ".join(last) == (
        "Rank 2 is late by 30.0 ms per step (30.0 %), in 10.0 % of the steps: see above."
    )


def test_without_files_ranks_are_told_by_what_they_told_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_S", 0.1)
    judge = Judge("job", 2)
    for rank in range(2):
        own = 20_000 if rank else 10_000
        blocks = {16 * i: (30_000, 30_000 - own, own + i % 3) for i in range(30)}
        window = RankWindow(
            "job", rank, 2, "n1", 2, 480, ended=True, size=16, columns=("wall", "communication"),
            sections=("data",), blocks=blocks,
        )  # fmt: skip
        judge.hear(rank, encode(window), 1.0)
    said, last = lines(str(tmp_path), 2, live=lambda: judge.job_now(1.0))
    text = " ".join(said)
    assert (
        "Ranks: 2 of 2, in the last 10 s of steps. Rank 1 (host n1) is late by 10.0 ms per step "
        "since about step 0: " in text
    )
    assert "data +10.0 ms; this costs the job up to 33.3 %." in text
    assert "Ranks 0, 1 saved no file" in text
    assert " ".join(last) == (
        "Rank 1 is late by 10.0 ms per step (33.3 %), as compared while the job ran: see above."
    )


def test_of_very_many_ranks_no_file_is_read_at_the_end(save, monkeypatch):
    monkeypatch.setattr(job, "MOST_FILES", 2)
    said, _ = lines(save(0, 1, 2, 3))
    assert said == ["`fastprof merge` compares all ranks by their files, when all have ended."]


def test_files_of_other_ranks_are_counted():
    names = ["prof_000_x", "prof_001_x", "rank0_a", "rank1_a", "rank10_a", "train.txt"]
    assert job.others_counted(names) == [
        "prof_000_x", "rank0_a", "train.txt", "3 files of other ranks",
    ]  # fmt: skip
    assert job.others_counted(names[:1]) == ["prof_000_x"]


def test_files_of_windows_are_counted():
    names = ["prof_000_a", "prof_000_b", "prof_001_a", "train.txt"]
    assert job.others_counted(names) == [
        "train.txt", "2 files of operator windows (prof_*)", "1 file of other ranks",
    ]  # fmt: skip
