"""Run metadata: versions, command, environment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import fastprof
import pytest
from fastprof.session.environment.command_line import command_line
from fastprof.session.environment.run_metadata import (
    cpu_limit,
    machine,
    surroundings,
    variables,
)
from hypothesis import given
from hypothesis import strategies as st


def test_p7_the_command_line_has_no_directory_and_no_secret():
    argv = ["/home/me/train.py", "--lr", "0.1", "--api-key=abc", "--hub-token", "xyz", "--wandb"]
    assert command_line(argv) == "train.py --lr 0.1 --api-key=*** --hub-token *** --wandb"
    assert command_line(["t", "--auth-token", "--lr", "1"]) == "t --auth-token --lr 1"
    assert command_line([]) == ""
    assert len(command_line(["t", "x" * 10_000])) == 1000


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("--env=HF_TOKEN=abc", "--env=***"),
        ("Authorization: Bearer abc", "***"),
        ('{"lr": 1, "api_key": "abc"}', "***"),
        ("wandb.api_key=abc", "wandb.api_key=***"),
        ("wandb.key=abc", "wandb.key=***"),
        ("--aws-access-key-id=abc", "--aws-access-key-id=***"),
        ("--wandb_key=12", "--wandb_key=***"),
        ("--pin=1234", "--pin=***"),
        ("--db=postgres://me:abc@host:5432/runs", "--db=***"),
        ("--data=https://me:pa/s@host/x?sig=abc", "--data=https://***@host/x***"),
        ("--data=u:pa/s@host", "--data=***@host"),
        ("--data=AccountName=a,AccountKey=abc", "--data=AccountName=a,AccountKey=***"),
        ("https://host/x?sig=abc", "***"),
        ("-psecret", "-p***"),
        ("-j4", "-j4"),
        ("c2VjcmV0MQ==", "***"),
        ("hf_abcDEF123", "***"),
        ("--tokenizer=gpt2", "--tokenizer=gpt2"),
        ("--max-tokens=512", "--max-tokens=512"),
        ("--pin-memory=true", "--pin-memory=true"),
        ("--betas=0.9,0.999", "--betas=0.9,0.999"),
        ("--data=s3://bucket/tokens/a=1", "--data=s3://bucket/tokens/a=1"),
        ("trainer.max_epochs=3", "trainer.max_epochs=3"),
        ("configs/base.yaml", "configs/base.yaml"),
        ("--monkey=3", "--monkey=3"),
        ("SIGTERM", "SIGTERM"),
        ("SIGUSR1_own", "SIGUSR1_own"),
        ("SIGNATURE", "***"),
        ("ABCDEFGH", "***"),
        ("--key=SIGTERM", "--key=***"),
    ],
)
def test_p7_a_secret_inside_a_word_is_not_kept(word: str, kept: str):
    assert command_line(["t", word]) == f"t {kept}"


NAMES = (
    "key", "hf_key", "aws-key", "openai_key", "signing-key", "encryption_key", "pass", "pw", "pwd",
    "wandb.key", "api_key", "token", "password", "client-secret", "anything", "x", "my-option",
)  # fmt: skip
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=382), min_size=8, max_size=40).map(
    lambda text: f"Q{text}z"  # neither a number nor a word of letters
)


@given(st.sampled_from(NAMES), SECRETS, st.sampled_from([*range(9)]))
def test_p7_no_form_of_a_value_that_may_be_a_secret_is_kept(name: str, secret: str, form: int):
    words = [
        [f"--{name}", secret],
        [f"--{name}={secret}"],
        [f"-{name}", secret],
        [f"{name}={secret}"],
        ["--data", f"https://me:{secret}@host/x"],
        ["--data", f"https://host/x?{name}={secret}"],
        ["--config", f"{{wandb: {{{name}: {secret}}}}}"],
        ["--data", f"mysql -u root -p{secret}"],
        [f"--{name}", "1", secret],
    ][form]
    assert secret not in command_line(["train.py", "--lr", "0.1", *words])


@given(st.lists(st.text(max_size=30), max_size=8))
def test_p7_any_arguments_make_one_short_line(words: list[str]):
    assert len(command_line(["train.py", *words])) <= 1000


def test_p7_all_values_of_a_secret_option_are_left_out():
    argv = ["t", "--keys", "abc", "def", "12", "--lr", "0.1", "-v"]
    assert command_line(argv) == "t --keys *** *** *** --lr 0.1 -v"


def test_a_secret_that_begins_with_a_dash_is_not_kept():
    assert command_line(["t", "--password", "-abc", "-v"]) == "t --password *** -v"


def test_tokenizers_are_no_secret():
    assert command_line(["t", "--tokenizer", "gpt2"]) == "t --tokenizer gpt2"
    found = variables({"TOKENIZERS_PARALLELISM": "false", "TORCH_TOKEN": "x"})
    assert found == {"env TOKENIZERS_PARALLELISM": "false"}


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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_ranks_that_share_the_cpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = os.cpu_count() or 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)))
    assert "ranks_on_cpus" not in surroundings()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert surroundings()["ranks_on_cpus"] == 4
    # Two ranks are bound to a half of the machine.
    monkeypatch.setattr(os, "cpu_count", lambda: 2 * cpus)
    assert surroundings()["ranks_on_cpus"] == 2
    # Each rank has CPUs that no other rank has.
    monkeypatch.setattr(os, "cpu_count", lambda: 4 * cpus)
    assert "ranks_on_cpus" not in surroundings()


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "1\n"}, None),
        ({"cpu.max": "5 0\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n"}, None),
        ({}, None),
    ],
)
def test_the_limit_of_a_container_is_read(tmp_path: Path, files: dict[str, str], limit: object):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_limit(str(tmp_path)) == limit


def test_p7_the_machine_is_known_by_a_hash_that_tells_nothing_about_it(tmp_path: Path):
    boot = "f90c96e1-3efc-405b-9ca1-8d5b215b3706\n"
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text(boot)
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t: fpu\n")
    found = machine(str(tmp_path))
    assert found["cpu"] == "AMD EPYC"
    assert len(found["host_id"]) == 8
    assert found["host_id"] not in boot
    (tmp_path / "sys/kernel/random/boot_id").write_text(boot.replace("f", "e"))
    assert machine(str(tmp_path))["host_id"] != found["host_id"]
    # Elsewhere than on Linux, the name of the host is hashed.
    unknown = machine(str(tmp_path / "missing"))
    assert list(unknown) == ["host_id"]
    assert len(unknown["host_id"]) == 8


@pytest.mark.parametrize("argv", [None, [None], ["a", 5], [b"x"]])
def test_p9_a_strange_argv_breaks_nothing(monkeypatch: pytest.MonkeyPatch, argv: object):
    monkeypatch.setattr(sys, "argv", argv)
    assert isinstance(surroundings(), dict)


def test_when_the_run_was_recorded_is_known():
    before = time.time_ns()
    assert before <= surroundings()["recorded_until_ns"] <= time.time_ns()
