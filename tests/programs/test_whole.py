"""Whole programs under ``fastprof run``: what their steps are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import run_child
from programs.whole import PROGRAMS

pytest.importorskip("torch")

RUN = """
import sys
from fastprof.cli import main
status = main(["run", "-o", "out", "program.py"])
import fastprof
report = fastprof.load("out/train_profile.fprof")
print("STEPS", report.steps.count, "|", report.meta.get("steps_ended_by"))
print("ROWS", *(row.name for row in report.steps.rows))
print("PHASES", *(row.name for row in report.phases))
for stage in report.stages:
    print(stage.name.upper().replace(" ", ""), stage.of, "|", stage.mean_ms)
print("LOADERS", *(f"{row.name}:{row.batches}" for row in report.loaders))
for table in report.worker_functions:
    print("INWORKERS", *(row.name for row in table.functions))
for note in report.notes:
    print("NOTE", note)
"""


def recorded(name: str, folder: Path) -> dict[str, Any]:
    (folder / "program.py").write_text(PROGRAMS[name])
    said = run_child(f"import os; os.chdir({str(folder)!r})\n{RUN}", timeout=300).stdout
    lines = [line.partition(" ")[::2] for line in said.splitlines()]
    found: dict[str, Any] = {word: rest for word, rest in lines if word.isupper()}
    found["screen"] = said
    return found


def test_the_batches_of_an_inference_are_its_steps(tmp_path: Path) -> None:
    found = recorded("inference", tmp_path)
    assert found["STEPS"] == "40 | batches"
    assert {"data", "forward", "(unaccounted)"} <= set(found["ROWS"].split())
    assert "validation" not in found["PHASES"]
    assert "No optimizer stepped: a step is a batch of the loader" in found["screen"]


def test_the_batches_of_an_inference_in_a_thread_are_its_steps(tmp_path: Path) -> None:
    found = recorded("inference_in_thread", tmp_path)
    steps, ended_by = found["STEPS"].split(" | ")
    assert (38 <= int(steps) <= 40, ended_by) == (True, "batches")
    assert {"data", "forward", "(unaccounted)"} <= set(found["ROWS"].split())


def test_a_thread_that_fetches_for_the_main_thread_does_not_infer(tmp_path: Path) -> None:
    assert recorded("prefetched_inference", tmp_path)["STEPS"].startswith("0 |")


@pytest.mark.slow
def test_batches_are_the_steps_of_a_loop_that_is_compiled_whole(tmp_path: Path) -> None:
    found = recorded("compiled", tmp_path)
    steps, ended_by = found["STEPS"].split(" | ")
    assert (20 <= int(steps) <= 40, ended_by) == (True, "batches, compiled")
    assert "torch.compile hides forward" in found["screen"]


def test_steps_of_an_inner_loop_are_not_those_of_the_run(tmp_path: Path) -> None:
    assert recorded("maml", tmp_path)["STEPS"] == "25 | optimizers"


def test_batches_that_were_read_before_the_training_need_no_workers(tmp_path: Path) -> None:
    found = recorded("list", tmp_path)
    assert found["STEPS"] == "80 | optimizers"
    assert "could load them meanwhile" not in found["screen"]


def test_a_run_with_two_stages_has_the_steps_of_each(tmp_path: Path) -> None:
    found = recorded("stages", tmp_path)
    assert found["LOADERS"] == "loader0:40 loader1:25"
    first, second = (found[name].split(" | ") for name in ("STAGE1", "STAGE2"))
    assert (first[0], second[0]) == ("SGD, loader0", "Adam, loader1")
    assert float(second[1]) >= 60
    assert float(first[1]) < float(second[1]) / 2
    assert "stage 1 (SGD, loader0)" in found["screen"]
    assert "Step times vary" not in found["screen"]
    assert "its shapes or sequence lengths differ" not in found["screen"]


def test_the_slow_function_of_a_stream_in_workers_is_named(tmp_path: Path) -> None:
    found = recorded("workers", tmp_path)
    assert found["STEPS"] == "80 | optimizers"
    assert "parse_slowly" in found["INWORKERS"].split()


def test_an_actor_and_a_critic_have_one_step_per_rollout(tmp_path: Path) -> None:
    found = recorded("rollouts", tmp_path)
    assert found["STEPS"] == "12 | optimizers"
    assert "STAGE1" not in found
