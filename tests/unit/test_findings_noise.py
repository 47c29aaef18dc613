"""Rules on machines where other programs run, and evidence that names the program's lines."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fastprof.render.screen import LINES, closed_lines
from fastprof.report import figures
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.steps import SplitPlace
from fastprof.tables.findings import closing_lines
from unit.findings_runs import (
    HEALTHY,
    MS,
    STEPS,
    Key,
    c_function,
    calls,
    found,
    loader,
    noted,
    operators,
    reason,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import py
from wording import same_text


def of_steps(
    made: Snapshot, *, switches: int = 0, other_ms: float = 0, lock_ms: float = 0
) -> Snapshot:
    """Return the run with more involuntary switches and, per step, unexplained ms off the CPU and
    ms at locks."""
    steps = made.steps
    other, lock = (round(ms * MS) * STEPS for ms in (other_ms, lock_ms))
    split = (("compute", steps.sum_ns - other - lock), ("other", other), ("lock", lock))
    series = replace(steps.series, switches=(switches,) * STEPS)
    return replace(made, steps=replace(steps, series=series, split=split))


def test_steps_in_a_window_of_operators_are_no_variation() -> None:
    lengths = [100.0] * STEPS
    lengths[5:8] = [900.0] * 3
    without = run({"data": 10, "forward": 60, "backward": 70}, durations=lengths, cpu_ms=lengths)
    assert "step-time-variation" in found(without) | noted(without)
    made = run(durations=lengths, cpu_ms=lengths, operators=operators({"aten::mm": 1}))
    assert "step-time-variation" not in found(made) | noted(made)


def test_a_variation_of_plain_steps_counts_the_plain_steps() -> None:
    """Of 477 plain steps it said: of 137 steps, those with functions."""
    sections = {"data": 10, "forward": 60, "backward": 70}
    lengths = [100.0, 300.0] * STEPS
    plain = run(sections, durations=lengths, cpu_ms=lengths, steps=2 * STEPS).steps
    made = run(sections)
    steps = replace(made.steps, count=3 * STEPS, apart=2 * STEPS)
    made = replace(made, steps=steps, plain_steps=plain, meta={"overhead_budget": 0.01})
    said = found(made) | noted(made)
    assert f"Of {2 * STEPS} steps p50" in " ".join(said["step-time-variation"].evidence)


def test_the_percentiles_of_a_variation_are_of_the_steps_that_it_names() -> None:
    """Beside "p50 54.1" of all steps, "of 125 steps p50 is 53.9 ms" was another figure."""
    lengths = [100.0] * STEPS
    lengths[20:23] = [900.0] * 3
    sections = {"data": 10, "forward": 60, "backward": 70}
    recorded = operators({"aten::mm": 1})
    made = run(sections, durations=lengths, cpu_ms=lengths, operators=recorded)
    rule = {**found(made), **noted(made)}["step-time-variation"]
    same_text(rule)
    said = " ".join(rule.evidence)
    assert f"Of {STEPS - 3} steps without operator recording p50 is" in said


def test_a_line_that_once_waited_for_the_disk_is_no_habit() -> None:
    write = calls(c_function("<method 'write' of '_io.TextIOWrapper' objects>", "write"), 6)
    once = run(step_ms=106, steps=8, durations=[100.0] * 7 + [148.0], inside={"": [write]})
    assert "logging-share" not in found(once) | noted(once)
    always = run(step_ms=106, steps=8, durations=[106.0] * 8, inside={"": [write]})
    assert "logging-share" in found(always)
    # Frequent work is judged by its mean, independent of the slowest step.
    often = run(step_ms=106, steps=20, durations=[100.0] * 19 + [220.0], inside={"": [write]})
    assert "logging-share" in found(often)


@pytest.mark.parametrize(("often", "there"), [(1, False), (10, True)])
def test_one_long_collection_is_an_event(often: int, there: bool) -> None:
    """One of 295 ms among 410 steps was "0.720 ms per step"."""
    made = run()
    gc_ns = (round(400 / often * MS),) * often + (0,) * (STEPS - often)
    split = (("compute", made.steps.sum_ns - sum(gc_ns)), ("gc", sum(gc_ns)))
    series = replace(made.steps.series, gc_ns=gc_ns)
    made = replace(made, steps=replace(made.steps, series=series, split=split))
    assert ("gc-pressure" in found(made)) == there


@pytest.mark.parametrize(("switches", "rules"), [(0, {"tensor-copies"}), (3, set())])
def test_operators_of_few_steps_say_nothing_on_a_disturbed_machine(
    switches: int, rules: set[str]
) -> None:
    made = run(operators=operators({"aten::copy_": 15, "aten::mm": 60}), functions=False)
    assert set(found(of_steps(made, switches=switches))) == rules


def without_a_cpu(ms: float, *, used: float | None, cpus: object = 8, **fields: object) -> Snapshot:
    """Return a run that waits ``ms`` per step for a CPU; the program used ``used`` CPUs."""
    made = run(**fields)
    ns = round(ms * MS) * STEPS
    split = (("compute", made.steps.sum_ns - ns), ("cpu_wait", ns))
    meta = {**made.meta, "cpus": cpus}
    if used is not None:
        meta["process_cpu_ns"] = round(used * made.duration_ns)
    return replace(made, meta=meta, steps=replace(made.steps, split=split))


def test_on_a_busy_machine_the_longest_operator_of_three_steps_is_chance() -> None:
    """mask_rows.py: "aten::bmm takes 30.0 % of the operators' time (69.2 % without waits)"."""
    attention = operators({"aten::bmm": 30, "aten::_softmax": 10, "aten::mm": 40})
    assert "attention-unfused" in found(run(operators=attention))
    assert "attention-unfused" not in found(without_a_cpu(40, used=1, operators=attention))


def test_a_wait_for_a_cpu_is_found_where_the_program_itself_uses_all_cpus() -> None:
    rule = found(without_a_cpu(20, used=7))["cpu-contention"]
    same_text(rule)
    assert (rule.severity, rule.saving_ms) == ("critical", 20)
    assert not noted(without_a_cpu(20, used=7)).keys() & {"cpu-contention"}
    assert "cpu-contention" not in found(without_a_cpu(4, used=7))


def test_threads_are_too_many_if_other_programs_have_cpus() -> None:
    """683 to 821 ms per step with two threads, 61 to 64 with one: "Stop the other programs"."""
    busy = without_a_cpu(30, used=0.8, cpus=2)
    for threads, others, fix in ((2, 1.1, 1), (4, 0.2, 1), (1, 1.1, None)):
        meta = {**busy.meta, "torch_threads": threads}
        meta["others_cpu_ns"] = round(others * busy.duration_ns)
        made = replace(busy, meta=meta)
        rules = found(made) if fix else noted(made)
        told = f"torch.set_num_threads({fix}), or OMP_NUM_THREADS={fix}: other programs"
        assert rules["cpu-contention"].fix[0].startswith(told if fix else "Stop the other")


@pytest.mark.parametrize(
    ("threads", "fix"),
    [
        (2, "torch.set_num_threads(1) in the thread that trains, or OMP_NUM_THREADS=1: other"),
        (1, "If torch.set_num_threads is called in the main thread, call it in the thread that"),
    ],
)
def test_a_loop_in_a_thread_sets_its_own_number_of_threads(threads: int, fix: str) -> None:
    """OpenMP has a number for each thread: the main thread's is not that of the loop."""
    busy = without_a_cpu(70, used=0.8, cpus=2)
    meta = {**busy.meta, "torch_threads": threads, "others_cpu_ns": round(1.1 * busy.duration_ns)}
    tree = replace(busy.threads[0], name="Thread-1")
    made = replace(busy, meta=meta, threads=(tree, *busy.threads[1:]))
    assert found(made)["cpu-contention"].fix[0].startswith(fix)


def test_threads_that_all_find_a_cpu_are_not_too_many() -> None:
    busy = without_a_cpu(30, used=0.8, cpus=64)
    others = {"torch_threads": 32, "others_cpu_ns": 10 * busy.duration_ns}
    rule = noted(replace(busy, meta={**busy.meta, **others}))["cpu-contention"]
    assert rule.fix[0].startswith("Stop the other")


@pytest.mark.parametrize("used", [2, 6.3, None])
def test_if_other_programs_have_the_cpus_it_is_a_note(used: float | None) -> None:
    made = without_a_cpu(20, used=used)
    assert "cpu-contention" not in found(made)
    said = " ".join(noted(made)["cpu-contention"].evidence)
    # If the program's own use is unknown, the finding does not blame others.
    assert ("Other programs have" in said) == (used is not None)


def test_the_limit_of_a_container_is_what_a_program_may_use() -> None:
    made = without_a_cpu(20, used=3.5)
    assert "cpu-contention" not in found(made)
    limited = replace(made, meta={**made.meta, "cpu_limit": 4.0})
    same_text(found(limited)["cpu-contention"])


def test_what_a_full_machine_costs_is_not_promised_twice() -> None:
    phases = {**HEALTHY, "logging": 30}
    alone = found(run(phases=phases, step_ms=130))["logging-share"]
    both = found(without_a_cpu(26, used=7, phases=phases, step_ms=130))
    assert both["cpu-contention"].saving_ms == 26
    assert both["logging-share"].saving_ms == pytest.approx(0.8 * alone.saving_ms)


def test_a_fix_saves_its_part_of_the_step_whatever_other_programs_do() -> None:
    """TensorBoard took 87 % of a step that waited for 88 %: 10.6 % promised, 97 % measured."""
    phases = {**HEALTHY, "logging": 30}
    alone = found(run(phases=phases, step_ms=130))["logging-share"]
    both = found(without_a_cpu(100, used=0.3, phases=phases, step_ms=130))
    assert both["cpu-contention"].saving_ms is None
    assert both["logging-share"].saving_ms == pytest.approx(alone.saving_ms, rel=0.1)


def test_the_programs_own_cause_comes_before_other_programs() -> None:
    """Beside two busy loops the only finding on the screen was "Stop the other programs"."""
    phases = {**HEALTHY, "logging": 30}
    made = without_a_cpu(100, used=0.3, phases=phases, step_ms=130)
    first, *others = build_report(made).findings
    assert (first.rule, "cpu-contention") == ("logging-share", others[-1].rule)
    lines = closed_lines(build_report(made), 80)
    screen = " ".join(" ".join(lines).split())
    assert len(lines) <= LINES
    assert "1. CRITICAL: Logging takes" in screen
    assert "The training thread waits for a CPU for 76.9 % of the step Fix: Stop" in screen
    assert " ".join(closing_lines(build_report(made), 80)).startswith("CRITICAL: Logging takes")
    # Fewer threads are a fix in the program, and may save most of the step.
    threads = {"torch_threads": 4, "others_cpu_ns": round(0.2 * made.duration_ns), "cpus": 2}
    many = replace(made, meta={**made.meta, **threads})
    assert build_report(many).findings[0].rule == "cpu-contention"


#: Shares of a step of 100 ms that cause different findings.
LARGE = {
    "optimizer-share": {"phases": {**HEALTHY, "forward": 20, "optimizer": 30}},
    "unaccounted": {"phases": {"forward": 30, "backward": 25, "optimizer": 5},
                    "inside": {"": [calls(py("averages", 4, "/x/ema.py"), 35)]}},
    "backward-share": {"phases": {**HEALTHY, "forward": 12, "backward": 60}},
    "data-loading": {"phases": {**HEALTHY, "data": 30, "forward": 20, "backward": 35}},
    "logging-share": {"phases": {**HEALTHY, "forward": 20, "logging": 16}},
    "gc-pressure": {"phases": HEALTHY,
                    "inside": {"": [calls(c_function("<built-in method gc.collect>", "c"), 6)]}},
}  # fmt: skip


def in_waits(made: Snapshot, waits: int) -> Snapshot:
    """Return the run with this many waits for a CPU, one in each of its first steps."""
    series = replace(made.steps.series, switches=(1,) * waits + (0,) * (STEPS - waits))
    return replace(made, steps=replace(made.steps, series=series))


@pytest.mark.parametrize("rule", LARGE)
def test_a_share_is_judged_without_the_wait_for_a_cpu(rule: str) -> None:
    """Four programs on two CPUs, and hundreds of waits: each part of a step gets its share."""
    fields = LARGE[rule]
    alone = found(run(**fields))[rule]
    busy = found(without_a_cpu(50, used=0.5, cpus=2, **fields))[rule]
    same_text(busy)
    assert busy.value == alone.value
    # It says the same of a step on both machines; the note on the wait promises nothing.
    if alone.saving_share is not None and rule != "data-loading":
        assert busy.saving_share == pytest.approx(alone.saving_share)


@pytest.mark.parametrize("rule", LARGE)
def test_a_share_that_may_be_the_wait_for_a_cpu_is_no_finding(rule: str) -> None:
    """One wait of 2 s: chance decides what it hits."""
    fields = LARGE[rule]
    busy = in_waits(without_a_cpu(50, used=0.5, cpus=2, **fields), 1)
    assert not found(busy)
    assert rule not in noted(busy)
    assert "Without the wait for a CPU, 50.0 % of the step, this is " in reason(busy, rule)
    # If the thread has its CPU for most of the time, shares are real.
    assert rule in found(in_waits(without_a_cpu(4, used=0.5, cpus=2, **fields), 1))


def test_the_wait_of_a_section_is_left_out_of_it() -> None:
    """Loading takes 30 % of two runs: in one of them, it waits for a CPU for most of that."""
    made = without_a_cpu(40, used=0.5, cpus=2, **LARGE["data-loading"])
    nodes, keys = made.threads[0].nodes, made.keys
    row = {keys[key].name: i for i, key in enumerate(nodes.key) if keys[key].kind == "section"}
    for name, there in (("backward", True), ("data", False)):
        place = SplitPlace("cpu_wait", 0, row[name], round(28 * MS) * STEPS)
        steps = replace(made.steps, split_places=(place,))
        assert ("data-loading" in found(replace(made, steps=steps))) == there


def test_a_title_says_how_much_of_its_share_is_the_wait_for_a_cpu() -> None:
    """ "47.0 % of the step ... [estimated saving: 8.52 %]" contradicted itself."""
    made = without_a_cpu(40, used=0.5, cpus=2, phases={**HEALTHY, "forward": 20, "logging": 35})
    assert "without waits" not in found(made)["logging-share"].title
    nodes, keys = made.threads[0].nodes, made.keys
    row = {keys[key].name: i for i, key in enumerate(nodes.key) if keys[key].kind == "section"}
    places = tuple(
        SplitPlace("cpu_wait", 0, row[name], ms * MS * STEPS)
        for name, ms in (("logging", 25), ("backward", 15))
    )
    rule = found(replace(made, steps=replace(made.steps, split_places=places)))["logging-share"]
    assert rule.saving_share is not None
    stated = figures.with_percent(rule.saving_share)
    assert rule.title.endswith(f" ({stated} without waits for a CPU)")


def test_the_cost_of_calls_does_not_contain_the_wait_for_a_cpu() -> None:
    """An operation that waits for a CPU takes longer than 8 us, and still is small."""
    for times in (1, 5):  # of the CPU time of a step, or of an operation
        linear = c_function("<built-in method torch._C._nn.linear>", "linear")
        module = torch_py("torch/nn/modules/module.py", "Module._call_impl")
        phases = {"forward": 4.0 * times, "backward": 4.0 * times, "optimizer": 1.0 * times}
        fields = {"phases": phases, "step_ms": 10 * times,
                  "inside": {"forward": [calls(module, 0, 400, calls(linear, 2 * times, 400))]},
                  "loaders": (loader(0.5, batch_size=64),)}  # fmt: skip
        wait_ms = 10.0 * (times - 1)
        rules = found(without_a_cpu(wait_ms, used=0.5, cpus=2, **fields))
        same_text(rules["small-batch"])


def test_of_a_share_that_may_be_the_wait_for_a_cpu_the_report_tells() -> None:
    """Not "no data for them": the rule saw time, but does not know its cause."""
    made = without_a_cpu(50, used=0.5, cpus=2, **LARGE["logging-share"])
    report = build_report(in_waits(made, 1))
    examination = report.examination
    assert not examination.findings
    assert "logging-share" in examination.uncertain
    lacking = len(examination.abstained) - len(examination.uncertain)
    said = f"{lacking} skipped: no data for them. Not judged, because the time may be a wait for a "
    for text in (report.to_text(), report.to_text(full=True)):
        assert said in " ".join(text.split())
    calm = build_report(without_a_cpu(4, used=0.5, cpus=2, phases=HEALTHY))
    assert calm.examination.uncertain == ()
    assert "may be a wait" not in calm.to_text()


def test_a_share_that_is_more_than_the_wait_for_a_cpu_stays_a_finding() -> None:
    lost = {"phases": {"forward": 10, "backward": 10},
            "inside": {"": [calls(py("averages", 4, "/x/ema.py"), 75)]}}  # fmt: skip
    assert "unaccounted" in found(without_a_cpu(40, used=0.5, cpus=2, **lost))


def test_the_wait_for_a_cpu_has_one_figure() -> None:
    """After a sleep of 20 ms, 10 ms without a CPU: "50.0 %" in the note, "60.0 %" in a finding."""
    phases = {"forward": 10, "backward": 10, "logging": 60}
    made = without_a_cpu(50, used=0.5, cpus=2, phases=phases)
    steps = made.steps
    split = (("compute", steps.sum_ns - 80 * MS * STEPS), ("cpu_wait", 50 * MS * STEPS),
             ("io", 30 * MS * STEPS))  # fmt: skip
    series = replace(steps.series, switches=(3,) * STEPS, cpu_wait_ns=(60 * MS,) * STEPS)
    report = build_report(replace(made, steps=replace(steps, split=split, series=series)))
    shares = {row.name: row.share for row in report.steps.split}
    assert (shares["cpu_wait"], shares["io"]) == pytest.approx((0.6, 0.2))
    assert sum(row.total_ns for row in report.steps.split) == steps.sum_ns
    assert {row.name for row in report.steps.split if row.without_waits} == {"io"}
    rules = {rule.rule: rule for rule in (*report.findings, *report.examination.notes)}
    same_text(rules["cpu-contention"])
    same_text(rules["logging-share"])


def test_loading_without_its_waits_says_so() -> None:
    """A split with "loading data 67.2 %" below a section data of 79.6 % contradicts it."""
    made = without_a_cpu(20, used=0.5, phases={**HEALTHY, "data": 40, "forward": 10})
    steps = made.steps
    split = (("compute", steps.sum_ns - 60 * MS * STEPS), ("cpu_wait", 20 * MS * STEPS),
             ("data", 40 * MS * STEPS))  # fmt: skip
    for waited, label in ((30, "loading data (its waits for a CPU not counted) 30.0 %"),
                          (20.5, "loading data 40.0 %")):  # fmt: skip
        series = replace(steps.series, cpu_wait_ns=(round(waited * MS),) * STEPS)
        report = build_report(replace(made, steps=replace(steps, split=split, series=series)))
        assert label in " ".join(report.to_text().split())


@pytest.mark.parametrize(
    ("others", "cpus", "why"),
    [(1.0, 8, ""), (1.8, 2, "other programs have the CPUs"), (6.9, 8, "have the CPUs"),
     (None, 8, "have the CPUs")],
)  # fmt: skip
def test_a_worker_is_promised_on_a_busy_machine_if_it_has_a_cpu(
    others: float | None, cpus: int, why: str
) -> None:
    made = without_a_cpu(30, used=0.7, cpus=cpus, loaders=(loader(40),),
                         phases={"data": 40, "forward": 20, "backward": 30})  # fmt: skip
    if others is not None:
        meta = {**made.meta, "others_cpu_ns": round(others * made.duration_ns)}
        made = replace(made, meta=meta)
    rule = found(made)["data-loading"]
    said = " ".join(rule.evidence)
    assert why in said
    assert (rule.saving_share is None) == bool(why)
    if rule.saving_share is not None:
        interval = re.search(r"Workers save ([\d.]+) to ([\d.]+) % of a step without its", said)
        assert interval is not None
        low, high = map(float, interval.groups())
        assert low < 100 * rule.saving_share < high < 42
        assert "DataLoader(num_workers=1" in rule.fix[0]


def test_a_promise_is_of_a_step_without_waits_wherever_they_are() -> None:
    """Replay.sample of dqn_replay.py: 22.6 % promised, 51 % saved; forward had the waits."""
    phases = {"forward": 70, "backward": 10, "logging": 20}
    made = without_a_cpu(60, used=0.5, cpus=2, phases=phases)
    nodes, keys = made.threads[0].nodes, made.keys
    forward = next(i for i, key in enumerate(nodes.key) if keys[key].name == "forward")
    places = (SplitPlace("cpu_wait", 0, forward, 60 * MS * STEPS),)
    report = build_report(replace(made, steps=replace(made.steps, split_places=places)))
    rule = found(report)["logging-share"]
    same_text(rule)
    assert rule.saving_share == pytest.approx(0.5)
    said = "Savings are of a step without waits for a CPU, other shares as measured."
    assert said in " ".join(report.to_text().split())
    assert said not in build_report(run(**LARGE["logging-share"])).to_text()


def test_without_the_figure_the_rule_abstains() -> None:
    assert "not recorded" in reason(run(), "cpu-contention")


UNLOCK = c_function("<method '__exit__' of '_thread.lock' objects>", "_thread.lock.__exit__")


def with_lock(own_ms: float, count: int = 1) -> Snapshot:
    add = calls(py("Statistics.add", 24, "/x/m.py"), own_ms, count, calls(UNLOCK, 0.001, count))
    return run(step_ms=120, inside={"": [add]})


def test_a_wait_at_a_with_statement_is_found_by_the_function_around_it() -> None:
    rule = found(of_steps(with_lock(18), other_ms=19))["lock-contention"]
    assert rule.saving_ms == pytest.approx(18, rel=0.01)
    assert "Statistics.add (m.py:24)" in rule.evidence[1]


def test_a_function_with_a_lock_that_computes_waits_for_nothing() -> None:
    assert "lock-contention" not in found(of_steps(with_lock(18), other_ms=1))
    # Many short calls are no wait, either.
    assert "lock-contention" not in found(of_steps(with_lock(18, 100), other_ms=19))
    # Without a split the cause is unknown.
    assert "lock-contention" not in found(with_lock(18))


def test_a_lock_within_logging_is_no_second_promise() -> None:
    """TensorBoard hands its events to another thread: 79.5 % of logging, and 53.7 % of a lock."""
    put = calls(py("Queue.put", 122, "/lib/queue.py"), 18, 1, calls(UNLOCK, 0.001, 1))
    add = calls(py("SummaryWriter.add_histogram", 440, "/x/tensorboard/writer.py"), 1, 1, put)
    rules = found(of_steps(run(step_ms=120, inside={"": [add]}), other_ms=19))
    assert "logging-share" in rules
    assert "lock-contention" not in rules
    # Nor is it one if the steps tell how long they waited at locks.
    acquire = c_function("<method 'acquire' of '_thread.lock' objects>", "_thread.lock.acquire")
    put = calls(py("Queue.put", 122, "/lib/queue.py"), 1, 1, calls(acquire, 18, 1))
    add = calls(py("SummaryWriter.add_histogram", 440, "/x/tensorboard/writer.py"), 1, 1, put)
    rules = found(of_steps(run(step_ms=120, inside={"": [add]}), lock_ms=18))
    assert "logging-share" in rules
    assert "lock-contention" not in rules


def test_callers_are_the_programs_functions_and_not_the_wrappers_around_them() -> None:
    wrapper = Key("python", "/y/fastprof/session/wrapping.py", 32, "call_through", "call_through")
    write = torch_py("torch/serialization.py", "save", 900)
    save = calls(py("save", 21, "/x/m.py"), 0, 1, calls(wrapper, 0, 1, calls(write, 20)))
    evidence = " ".join(found(run(step_ms=120, inside={"": [save]}))["checkpoint-often"].evidence)
    assert "save (m.py:21)" in evidence
    assert "wrapping" not in evidence


def test_an_unfused_optimizer_is_named_and_not_who_else_calls_tensors() -> None:
    loop = torch_py("torch/optim/adam.py", "_single_tensor_adam", 347)
    linear = calls(torch_py("torch/nn/linear.py", "Linear.forward", 130), 30, 1,
                   calls(tensor("matmul"), 5, 900))  # fmt: skip
    made = run(
        {**HEALTHY, "optimizer": 30}, step_ms=121,
        inside={"optimizer": [calls(loop, 5, 1, calls(tensor("mul_"), 20, 200))],
                "forward": [linear]},
    )  # fmt: skip
    evidence = " ".join(found(made)["optimizer-unfused"].evidence)
    assert "_single_tensor_adam (adam.py:347)" in evidence
    assert "Linear" not in evidence


def test_launching_backward_for_a_moment_longer_is_no_finding() -> None:
    made = run({"forward": 0.1, "backward": 0.4, "sync": 99}, step_ms=100)
    assert "backward-share" not in found(made)
    assert "backward-share" in found(run({"forward": 15, "backward": 60}, step_ms=100))


@pytest.mark.parametrize(
    ("threads", "workers", "fix"),
    [
        (2, 1, "torch.set_num_threads(1), or OMP_NUM_THREADS=1: the loader's worker needs a CPU"),
        (4, 0, "torch.set_num_threads(2), or OMP_NUM_THREADS=2."),
        (1, 4, "DataLoader(num_workers=1): the training thread needs one CPU."),
        (1, 1, "Stop the other programs on this machine"),
        (2, 0, "torch.set_num_threads(1), or OMP_NUM_THREADS=1: other programs have CPUs, and an"),
    ],
)  # fmt: skip
def test_threads_that_have_a_cpu_are_counted(threads: int, workers: int, fix: str) -> None:
    made = without_a_cpu(20, used=2, cpus=2, loaders=(loader(6, workers=workers, cpus=2),))
    made = replace(made, meta={**made.meta, "torch_threads": threads})
    said = found(made)["cpu-contention"]
    assert said.fix[0].startswith(fix)
    # A reader who sees that the program uses all CPUs must learn why others are to be stopped.
    because = "PyTorch and the loader's workers have no more threads than there are CPUs: other "
    others = any(text.startswith(because) for text in said.evidence)
    assert others == ("other programs" in fix)
    job = replace(made, meta={**made.meta, "world_size": 2})
    assert found(job)["cpu-contention"].fix[0].startswith("Fewer threads")
