"""Conditions of ``compare --fail-if``."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.comparison.build import compare_runs, open_sides
from fastprof.comparison.conditions import outcome
from fastprof.comparison.expressions import Name, parse
from fastprof.comparison.runs import Run
from fastprof.errors import ConditionError
from fastprof.export.pstats_ import stats_dict
from fastprof.report.from_stats import report_from_stats
from fastprof.snapshot import LoaderStats
from fastprof.snapshot.loaders import WorkerStats
from hypothesis import given
from hypothesis import strategies as st
from unit.comparisons import SKIPPED, function, normal, run, training
from unit.snapshots import MS, gpu, kernel

N = 200


def decide(text, before, after, **options):
    sides = open_sides([before, after])
    options = {"level": 0.95, "noise": 0.02, **options}
    pair = compare_runs(sides, **options).pairs[0]
    return outcome(parse(text), *sides, pair, **options)


@pytest.fixture(scope="module")
def report():
    """Return a report with steps of 10 ms: 2 ms data, 7 ms forward."""
    return run(
        [10.0] * 99 + [20.0],
        {"data": [2.0] * 100, "forward": [7.0] * 100},
        functions=[function("work", 100), function("twin", 1, 3, "a.py"),
                   function("twin", 2, 9, "b.py")],
        gpu=gpu(kernels=(kernel("gemm", 50 * MS, 200),)),
    )  # fmt: skip


# ---- the language ----


def test_conditions_are_read():
    found = parse("p99(step) < 1.5ms")
    assert (found.value, found.operator) == (Name("p99", "step"), "<")
    assert (found.limit, found.kind, found.is_change) == (1.5, "time", False)
    assert parse("data<10%").limit == 0.1
    assert parse('"a b"<1s').value == Name("", "a b")
    assert parse("self('<lambda>')<1us").value == Name("self", "<lambda>")
    assert parse("train.py:Net.forward<1ms").value == Name("", "train.py:Net.forward")


def test_a_sign_makes_a_change():
    change = parse("step>+3%")
    assert (change.is_change, change.limit, change.kind) == (True, 0.03, "relative")
    assert parse("gpu_util<-5points").limit == -0.05
    assert parse("step > - 3ms").limit == -3.0
    assert not parse("step>3ms").is_change


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "cannot be read; expected a value, one of < <= > >= == and a number"),
        ("step", "cannot be read"),
        ("step>", "cannot be read"),
        ("step>3%%", "cannot be read"),
        ("step>3parsec", "no such unit as 'parsec' (%, ns, us, ms"),
        ("step=>3", "cannot be read"),
        ("step>3; import os", "cannot be read"),
        ("__import__('os')>1", "no such figure as '__import__' (mean, median"),
        ("eval(step)>1", "no such figure"),
        ("p99(step>1", "cannot be read"),
        ("p99(5)>1", "cannot be read"),
        ("data+forward>1ms", "cannot be read"),
        ("step>1e999", "the number is out of range"),
        ("'a>1", "cannot be read"),
        ("step>5points", "points are for changes only"),
        ("step==+3%", "compared with < or >, not with =="),
        ("\x1b[31m>1", r"condition '\x1b[31m>1' cannot be read"),
        ("1+" * 5000 + "1>2", "at most 500"),
    ],
)
def test_a_condition_that_is_not_valid_is_a_clear_error(text, what):
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert what in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.text(max_size=60) | st.text("step()+-<>=%.0123456789msp'\" ", max_size=60))
def test_any_text_is_a_condition_or_a_clear_error(text):
    try:
        said = parse(text).operator
    except ConditionError as error:
        said = str(error)
    assert said.isprintable()


# ---- the figures of one run ----


@pytest.mark.parametrize(
    "text",
    [
        "step<11ms", "step>10ms", "step==10.1ms", "p50(step)==10ms", "max(step)==20ms",
        "count(step)==100", "steps==100", "total(step)==1.01s", "data==2ms", "share(data)<20%",
        "share(data)>0.19", "data_loading==2ms", "count(forward)>0.95", "count(forward)<=1",
        "mean(forward)==7ms", "p95(forward)<8ms", "max(forward)==7ms", "section(data)<2.1ms",
        "total(data)==200ms", "self(data)<2ms", "work<1ms", "self(work)<1ms",
        "count(work)<1", "total(work)==100ms", "mean(work)==10ms", "share(work)<10%",
        "a.py:twin<1ms", "gemm>0.4ms", "count(gemm)>1.9", "mean(gemm)==250us",
        "total(gemm)==50ms", "kernel(gemm)<1ms", "wall>1s", "throughput>98",
        "'(unaccounted)'>1ms", "gpu(data)<1ms",
    ],
)  # fmt: skip
def test_a_condition_without_a_sign_is_about_the_run_after(report, text):
    assert decide(text, run([1.0] * 100), report).met is True


def test_a_figure_next_to_its_limit_has_more_digits(report):
    assert decide("step<10.099ms", report, report).text == "after: step is 10.1 ms"
    assert decide("step<10.09ms", report, report).text.startswith("after: step is 10.1")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nothing<3", "nothing is called 'nothing'"),
        ("gpu_util<3", "'gpu_util' was not recorded"),
        ("memory<3GiB", "'memory' was not recorded"),
        ("p99(gpu_util)<3", "gpu_util has no p99()"),
        ("p99(work)<3ms", "the function 'work' has no p99()"),
        ("twin<3ms", "2 functions are called 'twin'; name one of them: 'a.py:twin', 'b.py:twin'"),
        ("step<3", "compares a time (write its unit, e.g. 5ms) with a plain number"),
    ],
)
def test_conditions_that_mean_nothing(text, what):
    report = run([10.0] * 100, {"data": [1.0] * 100},
                 functions=[function("work", 1), function("twin", 1, 3, "a.py"),
                            function("twin", 2, 9, "b.py")])  # fmt: skip
    with pytest.raises(ConditionError) as caught:
        decide(text, report, report)
    assert what in str(caught.value)


# ---- fail-if ----


@pytest.fixture(scope="module")
def sides():
    """Return two runs; the second's step takes 5 % longer, all of it in forward."""
    base = normal(10.0, 400, 1)
    slow = normal(10.5, 400, 2)
    return (
        run(base, {"data": [1.0] * 400, "forward": [v - 2 for v in base]},
            functions=[function("work", 100)]),
        run(slow, {"data": [1.0] * 400, "forward": [v - 2 for v in slow]},
            functions=[function("work", 150)]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("step>+3%", True),
        ("step>+4%", True),
        ("step>+6%", False),
        ("step<-3%", False),
        ("step<+6%", True),
        ("step>+0.3ms", True),
        ("step>+700us", False),
        ("forward>+3%", True),
        ("data>+1%", False),
        ("p50(step)>+3%", True),
        ("median(forward)>+3%", True),
        ("throughput<-3%", True),
        ("work>+40%", True),
        ("self(work)>+60%", False),
        ("count(forward)>+0", False),
        ("step>5ms", True),
        ("share(data)<10%", True),
        ("count(forward)>0.9", True),
    ],
)
def test_a_condition_is_met_if_the_change_is_beyond_the_limit_and_real(sides, text, met):
    assert decide(text, *sides).met is met


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("step>3%", "write step>+3% for a change"),
        ("forward>=3%", "share(forward)>=3% for its part of a step"),
        ("throughput<5%", "write throughput<-5% for a change"),
        ("data>5%", "write data>+5% for a change, or share(data)>5% for its part of a step"),
        ("self(work)<=5%", "write self(work)<=-5% for a change"),
        ("'data'>5%", "write 'data'>+5% for a change, or share('data')>5% for its part of a step"),
    ],
)  # fmt: skip
def test_a_percentage_without_a_sign_is_not_read_as_a_share(sides, text, remedy):
    """``step>3%`` was met by every run: a step takes 100 % of a step."""
    with pytest.raises(ConditionError) as caught:
        decide(text, *sides)
    assert str(caught.value).endswith(remedy)


def test_what_recording_costs_is_no_change_of_a_median_either(monkeypatch):
    before, after = run(normal(15.0, N, 1)), run(normal(10.5, N, 2))
    costs = {id(before.snapshot): 5.0, id(after.snapshot): 0.5}
    told = property(lambda of: {"step": costs.get(id(of.report.snapshot), 0.5)})
    monkeypatch.setattr(Run, "recording_ms", told, raising=False)
    assert decide("p50(step)<-3%", before, after).met is False
    many = [run(normal(10.5, N, seed)) for seed in (3, 4, 5)]
    sides = [run(normal(15.0, N, seed)) for seed in (6, 7, 8)]
    costs |= {id(report.snapshot): 5.0 for report in sides}
    assert decide("p50(step)<-3%", sides, many).met is False
    assert decide("step<-3%", sides, many).met is False


def test_a_change_beyond_the_limit_that_may_be_chance_does_not_fail():
    rough = [run(normal(10.0, 100, seed, spread=0.5)) for seed in (1, 2)]
    sign, limit = (">", "+0.1%") if rough[1].steps.mean_ms > rough[0].steps.mean_ms else (
        "<", "-0.1%")  # fmt: skip
    found = decide(f"step{sign}{limit}", *rough)
    assert found.met is False
    assert "no significant change" in found.text


def test_what_the_steps_cannot_decide_is_undecided():
    found = decide("step>+3%", run([10.0] * 9), run([20.0] * 9))
    assert found.met is None
    assert "too few steps" in found.text
    assert decide("step>+300%", run([10.0] * 9), run([20.0] * 9)).met is False


BUSY = {"switches": tuple([2] * N)}


def on_busy_machine(wall_ms, cpu_ms, seed):
    cpu = tuple(round(ms * MS) for ms in normal(cpu_ms, N, seed + 10))
    return run(normal(wall_ms, N, seed), series={**BUSY, "cpu_ns": cpu})


def test_cpu_time_decides_on_a_busy_machine():
    """+106 % of a step, whose wall time says nothing because other programs ran."""
    before, after = on_busy_machine(10.0, 7.0, 1), on_busy_machine(20.6, 17.0, 2)
    found = decide("step>+3%", before, after)
    assert found.met is True
    assert "not tested: the machine was busy" in found.text
    assert "; but its CPU time alone changed by +" in found.text
    assert decide("step>+3ms", before, after).met is True
    assert decide("step<-3%", after, before).met is True
    # What CPU time cannot decide: a limit beyond its change, and waits.
    assert decide("step>+103%", before, after).met is None
    assert decide("step>+3%", before, on_busy_machine(20.6, 7.0, 2)).met is None
    # Other programs may slow a program down while it has the CPU.
    assert decide("step>+3%", before, on_busy_machine(10.6, 7.6, 2)).met is None


def test_a_change_that_is_hardly_chance_is_undecided():
    """An estimate beyond the limit whose interval has 0 in it."""
    before, after = run(normal(10.0, 64, 1, 0.5)), run(normal(11.7, 64, 5, 0.5))
    step = compare_runs(open_sides([before, after]), level=0.95, noise=0.02).pairs[0].step
    assert step.low_ms < 0 < step.change - 0.03
    assert 0.05 < step.p < 0.2
    found = decide("step>+3%", before, after)
    assert found.met is None
    assert "no significant change" in found.text
    assert decide("step>+50%", before, after).met is False


def test_conditions_use_the_rule_for_few_steps():
    sides = run(normal(20.0, 40, 1, 0.3)), run(normal(2.0, 40, 2, 0.3))
    assert decide("step>+3%", *sides[::-1]).met is True
    assert decide("throughput<-5%", *sides[::-1]).met is True
    assert decide("step>+3%", *sides).met is False


def test_an_undecided_quantile_says_why():
    series = {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([2] * N)}
    found = decide("p50(step)>+3%", run(normal(10, N, 1)), run(normal(20, N, 2), series=series))
    assert found.met is None
    assert "; not tested: the machine was busy: other programs took about" in found.text


def test_figures_without_statistics_decide_themselves_and_say_so(sides):
    found = decide("work>+40%", *sides)
    assert "not tested, the figures themselves decide" in found.text


def test_the_noise_of_single_runs_is_allowed_for(sides):
    assert decide("step>+3%", *sides, noise=0.2).met is False
    assert decide("step>+3%", *sides, noise=0.0).met is True


def test_several_runs_decide_every_figure():
    def side(ms, seeds):
        return [
            run(normal(ms, 80, seed), functions=[function("work", 10 * ms + seed % 2)])
            for seed in seeds
        ]

    before, after = side(10.0, range(4)), side(12.0, range(4, 8))
    for text in ("step>+3%", "work>+3%", "p50(step)>+3%", "throughput<-3%"):
        found = decide(text, before, after)
        assert found.met is True, found
    same = decide("work>+0.1%", before, side(10.001, range(8, 12)))
    assert same.met is False


def test_ranks_of_a_job_are_one_run():
    """Their steps are equally long: over them, any change would be significant."""

    def side(ms, job):
        return [
            run(normal(ms, N, seed), functions=[function("work", 10 * ms)],
                meta={"world_size": 3, "job": job, "rank": seed, "pid": seed,
                      "started_unix_ns": 1})
            for seed in range(1, 4)
        ]  # fmt: skip

    sides = side(10.0, "a"), side(10.6, "b")
    for text in ("step>+3%", "p99(step)>+3%", "median(step)>+3%", "throughput<-3%"):
        found = decide(text, *sides)
        assert found.met is None, found
        assert "not tested: several files are ranks of one job, which is one run" in found.text
    # As of one run, nothing but the figure is known of the time of a function.
    found = decide("work>+3%", *sides)
    assert found.met is True
    assert found.text.endswith("not tested, the figures themselves decide")


def test_a_quantile_of_a_section_is_that_of_its_single_entries():
    """Four forwards per step of 2.5 ms, then of 2.75 ms: their sums per step are 10 and 11 ms."""

    def of(ms, seed):
        sums = normal(ms, N, seed)
        made = run([value + 1.0 for value in sums], {"forward": sums})
        (row,) = made.sections
        row = replace(row, count=4 * row.count, p99_ms=ms / 4 * 1.06)
        return replace(made, sections=(row,))

    found = decide("p99(forward)>+3%", of(10.0, 1), of(11.0, 2))
    assert found.met is True
    assert found.text == (
        "p99(forward) 2.65 ms -> 2.92 ms (+10%); not tested, the figures themselves decide"
    )
    once = run(normal(11.0, N, 1), {"forward": normal(10.0, N, 1)})
    assert "95 % interval" in decide("p50(forward)>+3%", once, once).text


def test_changes_in_points_and_in_other_units():
    before, after = training(100.0, 8, 0.65, 30.0), training(100.0, 8, 0.55, 36.0)
    assert decide("gpu_util<-5points", before, after).met is True
    assert decide("gpu_util<-11points", before, after).met is False
    assert decide("gpu_util<-15%", before, after).met is True
    assert decide("memory>+5GiB", before, after).met is True
    assert decide("memory_share>+10points", before, after).met is False
    assert decide("gpu_util<60%", before, after).met is True
    with pytest.raises(ConditionError, match="in % or points"):
        decide("gpu_util<-5ms", before, after)
    with pytest.raises(ConditionError, match="in % or ms"):
        decide("step>+5GiB", before, after)


def test_a_throughput_is_that_of_the_table():
    """Half the batch in the same time is half the throughput."""
    before, after = training(10.0, 64, 0.5, 1.0), training(10.0, 32, 0.5, 1.0)
    found = decide("throughput<-5%", before, after)
    assert found.met
    assert "6400 -> 3200 (-50%)" in found.text
    assert "the samples of a step change by the factor 0.5" in found.text
    assert not decide("throughput<-5%", before, training(10.0, 64, 0.5, 1.0)).met
    unknown = decide("throughput<-5%", before, run(normal(10.0, N, 9)))
    assert not unknown.met
    assert "100 -> " in unknown.text  # steps/s on both sides


def of_batches(ms, batch_size, *seeds):
    workers = WorkerStats(4, batch_size=batch_size)
    batches = N + SKIPPED
    return [
        run(normal(ms, N, seed, 0.01),
            loaders=(LoaderStats("main", "train", batches, {}, workers=workers),))
        for seed in seeds
    ]  # fmt: skip


def test_a_throughput_with_another_batch_size_is_tested_as_one_with_the_same():
    """1.4 % are within the noise of 2 %, of one step of 64 samples as of one of 32."""
    (before,) = of_batches(10.0, 32, 1)
    for ms, met in ((10.15, False), (10.4, True)):
        for times in (1, 2):
            (after,) = of_batches(times * ms, times * 32, 2)
            assert decide("throughput<-1%", before, after).met is met
    text = decide("throughput<-1%", before, after).text
    assert "by the factor 2; time for as many: slower (p " in text
    before, after = of_batches(10.0, 32, 1, 2, 3), of_batches(20.6, 64, 4, 5, 6)
    assert decide("throughput<-1%", before, after).met is True
    assert decide("throughput<-1%", before, of_batches(20.02, 64, 4, 5, 6)).met is False


def test_functions_of_a_stats_file_are_compared_as_in_the_table():
    before = run([10.0] * 100, functions=[function("work", 100)])
    stats = report_from_stats(stats_dict(before.snapshot, correct_times=True))
    assert not decide("self(work)>+5%", before, stats).met
    assert not decide("self(work)<-5%", before, stats).met
