"""What a run says about what it was made with."""

from __future__ import annotations

import sys

import fastprof
import pytest
from fastprof.session.surroundings import command_line, surroundings, variables


def test_the_command_line_has_no_directory_and_no_secret():
    argv = ["/home/me/train.py", "--lr", "0.1", "--api-key=abc", "--hub-token", "xyz", "--wandb"]
    assert command_line(argv) == "train.py --lr 0.1 --api-key=*** --hub-token *** --wandb"
    assert command_line(["t", "--auth-token", "--lr", "1"]) == "t --auth-token --lr 1"
    assert command_line([]) == ""
    assert len(command_line(["t", "x" * 10_000])) == 1000


def test_variables_are_those_that_change_speed():
    found = variables(
        {"OMP_NUM_THREADS": "4", "HOME": "/x", "TORCH_AUTH": "s", "NCCL_ALGO": "Ring"}
    )
    assert found == {"env NCCL_ALGO": "Ring", "env OMP_NUM_THREADS": "4"}


def test_facts_of_this_process_are_in_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(sys, "argv", ["/a/b/train.py", "--steps", "5"])
    with fastprof.Profiler() as profiler:
        profiler.step()
    meta = profiler.report().meta
    assert meta["command"] == "train.py --steps 5"
    assert meta["env OMP_NUM_THREADS"] == "3"
    assert "torch" not in sys.modules or meta["torch"]


@pytest.mark.parametrize("argv", [None, [None], ["a", 5], [b"x"]])
def test_p8_a_strange_argv_breaks_nothing(monkeypatch: pytest.MonkeyPatch, argv: object):
    monkeypatch.setattr(sys, "argv", argv)
    assert isinstance(surroundings(), dict)
