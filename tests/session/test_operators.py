"""Options of operator windows: checked before a run, and converted from other configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.schedule import Schedule


def test_s0_11_the_defaults() -> None:
    options = OperatorProfile()
    flags = (
        "enable_cpu_profiling",
        "enable_cuda_profiling",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_flops",
        "with_modules",
    )
    assert not any(getattr(options, name) for name in flags)
    assert options.row_limit == 50
    assert Path(str(options.save_dir)).name == "fastprof_out"


def test_s0_14_the_six_schedule_keys() -> None:
    assert OperatorProfile().schedule is None
    enabled = OperatorProfile.from_config({"schedule.enable_schedule": "true"})
    assert enabled.schedule == Schedule(skip_first=1, wait=0, warmup=1, active=3, repeat=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", 1),
        ("schedule", {"wait": 1}),
        ("enable_cpu_profiling", "yes"),
        ("enable_cuda_profiling", "yes"),
        ("record_shapes", None),
        ("row_limit", 0),
        ("row_limit", -2),
        ("row_limit", "all"),
        ("align_ranks", 1),
        ("on_trace_ready", 1),
        ("save_dir", 1),
        ("save_dir", ""),
        ("save_dir", "a\0b"),
    ],
)
def test_s0_14_f50_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        OperatorProfile(**{name: value})
    assert name in str(caught.value) or "path" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("skip_first", -1),
        ("wait", -1),
        ("warmup", -1),
        ("active", 0),
        ("active", -1),
        ("repeat", -1),
        ("wait", 1.5),
        ("warmup", True),
        ("enable_schedule", 1),
    ],
)
def test_s0_14_keys_of_a_schedule_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        OperatorProfile.from_config({"schedule": {name: value}})


def test_a_save_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file"):
        OperatorProfile(save_dir=tmp_path / "file")


def test_f41_save_dir_means_what_it_means_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = OperatorProfile(save_dir="out")
    monkeypatch.chdir("/")
    assert options.save_dir == str(tmp_path / "out")


def test_the_profiler_wants_an_operator_profile() -> None:
    with pytest.raises(TypeError, match="operators is dict"):
        fastprof.Profiler(operators={"with_stack": True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [
        {"with_stack": True, "row_limit": 10, "schedule": {"enable_schedule": True, "active": 5}},
        {
            "with_stack": "true",
            "row_limit": "10",
            "schedule.enable_schedule": "True",
            "schedule.active": "5",
        },
    ],
)
def test_s0_11_options_of_a_configuration_or_a_command_line(config: dict[str, Any]) -> None:
    made = OperatorProfile.from_config(config)
    assert made == OperatorProfile(with_stack=True, row_limit=10, schedule=Schedule(active=5))


@pytest.mark.parametrize(
    "config", [{"with_stacks": True}, {"schedule.with_stack": True}, {"schedule": {"actve": 1}}]
)
def test_an_unknown_option_is_refused_with_those_there_are(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no option .*schedule\.active"):
        OperatorProfile.from_config(config)


def test_s2_01_fields_of_profile_kwargs() -> None:
    made = OperatorProfile.from_profile_kwargs(
        {
            "activities": ["cpu", "cuda"],
            "schedule_option": {"wait": 1, "warmup": 1, "active": 3, "repeat": 2},
            "with_stack": True,
            "with_flops": True,
            "with_modules": True,
            "output_trace_dir": "/profile_traces",
        }
    )
    assert made == OperatorProfile(
        enable_cpu_profiling=True,
        enable_cuda_profiling=True,
        with_stack=True,
        with_flops=True,
        with_modules=True,
        schedule=Schedule(skip_first=0, wait=1, warmup=1, active=3, repeat=2),
        save_dir="/profile_traces",
    )


def test_s2_02_e5_the_defaults_of_profile_kwargs() -> None:
    accelerate = pytest.importorskip("accelerate")
    handler = accelerate.utils.ProfileKwargs()
    assert OperatorProfile.from_profile_kwargs(handler) == OperatorProfile(
        enable_cpu_profiling=True, enable_cuda_profiling="auto", save_dir=None
    )


@pytest.mark.parametrize(
    "handler", [{"activities": ["tpu"]}, {"schedule_option": {"skip_first_wait": 1}}]
)
def test_fields_of_profile_kwargs_without_a_meaning_are_refused(handler: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tpu|skip_first_wait"):
        OperatorProfile.from_profile_kwargs(handler)
