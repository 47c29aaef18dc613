"""``start_training_profiling``: text reports for a loop with sections only."""

from __future__ import annotations

import io
import re

import fastprof
import pytest
from fastprof import profile_section

HEADER = re.compile(r"^=== (.*) ===$", re.MULTILINE)


def train(steps: int, **options) -> str:
    stream = io.StringIO()
    with fastprof.start_training_profiling(stream=stream, **options):
        for step in range(1, steps + 1):
            with profile_section(fastprof.DATA_LOADING):
                pass
            with profile_section(fastprof.FORWARD_PASS):
                pass
            if step % 10 == 0:
                with profile_section(fastprof.SAMPLING):
                    pass
            fastprof.step()
    return stream.getvalue()


def test_s3_01_canonical_names_are_constants_and_any_name_is_allowed() -> None:
    assert fastprof.CANONICAL_SECTIONS == (
        "data_loading", "forward_pass", "backward_pass", "metrics_computation", "optimizer_step",
        "ema_update", "sampling", "checkpointing", "synchronization",
    )  # fmt: skip
    for name in fastprof.CANONICAL_SECTIONS:
        assert getattr(fastprof, name.upper()) == name
        assert name.upper() in fastprof.__all__
    with fastprof.Profiler(functions=False) as prof:
        with profile_section("my custom operation / ünïcode"):
            pass
    assert prof.report().section("my custom operation / ünïcode").count == 1


def test_s3_04_e8_a_report_every_n_steps_and_50_by_default() -> None:
    assert HEADER.findall(train(150)) == [
        "Profiling Report (Step 50)",
        "Profiling Report (Step 100)",
        "Profiling Report (Step 150)",
        "Final Profiling Summary (150 steps)",
    ]
    assert HEADER.findall(train(50, log_every=20))[:2] == [
        "Profiling Report (Step 20)",
        "Profiling Report (Step 40)",
    ]


def test_s3_13_counts_are_cumulative_since_the_start() -> None:
    text = train(100, log_every=25)
    assert re.findall(r"^forward_pass: count=(\d+),", text, re.MULTILINE) == [
        "25", "50", "75", "100", "100"
    ]  # fmt: skip


def test_s3_16_a_section_may_be_skipped_on_some_steps() -> None:
    text = train(50)
    assert re.findall(r"^sampling: count=(\d+),", text, re.MULTILINE) == ["5", "5"]


def test_s3_09_rows_are_in_the_order_of_first_use() -> None:
    names = re.findall(r"^(\w+): count=", train(50).split("=== Final")[0], re.MULTILINE)
    assert names == ["data_loading", "forward_pass", "sampling"]


def test_s3_09_first_use_is_that_of_the_run_not_that_of_the_name() -> None:
    for name in ("z_first", "a_second"):
        profile_section(name)
    stream = io.StringIO()
    with fastprof.start_training_profiling(1, stream=stream):
        for name in ("a_second", "z_first"):
            with profile_section(name):
                pass
        fastprof.step()
    assert re.findall(r"^(\w+): count=", stream.getvalue(), re.MULTILINE)[:2] == [
        "a_second",
        "z_first",
    ]


def test_s3_10_the_final_report_comes_with_stop_once() -> None:
    stream = io.StringIO()
    handle = fastprof.start_training_profiling(50, stream=stream)
    with profile_section("forward"):
        pass
    assert handle.step() == 1
    handle.stop()
    handle.stop()
    assert stream.getvalue().count("=== Final Profiling Summary (1 step) ===") == 1
    assert "Performance Insights:\n- Slowest component: forward (" in stream.getvalue()
    assert handle.profiler.report().section("forward").count == 1


def test_s3_18_works_for_short_runs_and_the_default_stream_is_stdout(capsys) -> None:
    with fastprof.start_training_profiling(2):
        for _ in range(3):
            with profile_section("forward"):
                pass
            fastprof.step()
    out, err = capsys.readouterr()
    assert HEADER.findall(out) == ["Profiling Report (Step 2)", "Final Profiling Summary (3 steps)"]
    assert err == ""


def test_s3_only_the_primary_rank_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert train(5, log_every=1) == ""


def test_s3_04_bad_frequency_is_refused() -> None:
    for junk, error in ((0, ValueError), (-5, ValueError), (1.5, TypeError), ("50", TypeError)):
        with pytest.raises(error, match="log_every"):
            fastprof.start_training_profiling(junk)


def test_starting_twice_names_the_first() -> None:
    with fastprof.start_training_profiling(stream=io.StringIO()):
        with pytest.raises(fastprof.errors.StateError, match=r"test_training\.py"):
            fastprof.start_training_profiling()
