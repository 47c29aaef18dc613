"""The engine behind the rules: order, sharing of time, abstaining, minimum samples."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from fastprof.findings import examine as findings
from fastprof.findings.draft import Abstain, Draft, Rule
from fastprof.findings.examine import RULES, Examination, examine
from fastprof.render import formats
from fastprof.render.html import write
from fastprof.render.plain import plain
from fastprof.results.report import build_report
from fastprof.results.saved import load
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.snapshot.run_phases import PhaseTime
from fastprof.tables.findings import all_findings
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.findings_runs import c_function, calls, run, tensor
from unit.gpu_runs import gpu_training_run
from unit.hostile import NAMES, snapshot_with
from unit.snapshots import replaced
from unit.test_gpu_report import made_run, random_runs
from unit.test_report import training_run

SPAN_MS = 100.0


def draft(share: float, **fields):
    """Return a draft that saves ``share`` of a step of 100 ms; a warning above 5 ms."""
    made = {
        "value": 100 * share, "unit": "%", "title": "t", "severity": "warning",
        "threshold": "above 5 %", "source": "s", "evidence": ("e",), "fix": ("f",),
        "ms": share * SPAN_MS, "grade": lambda ms: "warning" if ms > 5 else None,
    }  # fmt: skip
    return Draft(**{**made, **fields})


def examined(monkeypatch: pytest.MonkeyPatch, **drafts: Draft | Exception | None) -> Examination:
    """Return the examination of a run with steps of 100 ms by rules that return ``drafts``."""

    def rule(name: str, answer: Draft | Exception | None) -> Rule:
        def check(facts: object) -> Draft | None:
            if isinstance(answer, Exception):
                raise answer
            return answer

        known = {rule.id: rule for rule in RULES}
        return replace(known.get(name, Rule(name, name, check)), check=check)

    monkeypatch.setattr(findings, "RULES", tuple(rule(n, d) for n, d in drafts.items()))
    return examine(build_report(gpu_training_run()))


def test_findings_are_ordered_by_what_they_save(monkeypatch):
    found = examined(monkeypatch, small=draft(0.1), none=draft(0.2, ms=None), big=draft(0.4))
    assert [f.rule for f in found.findings] == ["big", "small", "none"]
    assert [f.saving_ms for f in found.findings] == [40.0, 10.0, None]
    assert [f.saving_share for f in found.findings] == [0.4, 0.1, None]


def test_time_of_a_specific_rule_is_taken_off_a_general_one(monkeypatch):
    found = examined(
        monkeypatch,
        specific=draft(0.25, places={"data": 25.0}),
        general=draft(0.40, sections=frozenset({"data"})),
        elsewhere=draft(0.30, sections=frozenset({"forward"})),
    )
    saved = {f.rule: f.saving_ms for f in found.findings}
    assert saved == pytest.approx({"specific": 25.0, "general": 15.0, "elsewhere": 30.0})
    assert [f.rule for f in found.findings] == ["elsewhere", "specific", "general"]
    assert "specific" in next(f for f in found.findings if f.rule == "general").evidence[-1]


def test_a_rule_whose_time_others_explain_is_no_finding(monkeypatch):
    found = examined(
        monkeypatch,
        specific=draft(0.38, group="item", shared={"data": 38.0}),
        general=draft(0.40, group="data"),
        everything=draft(0.41, everywhere=True),
    )
    assert [f.rule for f in found.findings] == ["specific"]
    assert found.explained == (("general", ("specific",)), ("everything", ("specific",)))


def test_what_an_outer_group_holds_of_an_earlier_one_counts_once(monkeypatch):
    found = examined(
        monkeypatch,
        save=draft(0.3, group="checkpoint"),
        log=draft(0.35, group="logging", shared={"checkpoint": 30.0}),
    )
    assert [f.rule for f in found.findings] == ["save"]


def test_a_cause_explains_all_of_what_yields_to_it(monkeypatch):
    found = examined(
        monkeypatch, cause=draft(0.1), effect=draft(0.5, yields_to=frozenset({"cause"}))
    )
    assert [f.rule for f in found.findings] == ["cause"]
    assert found.explained == (("effect", ("cause",)),)


def test_a_note_is_no_finding_and_explains_nothing(monkeypatch):
    found = examined(
        monkeypatch,
        note=draft(0.3, severity="note", places={"data": 30.0}),
        general=draft(0.4, sections=frozenset({"data"})),
    )
    assert [f.rule for f in found.findings] == ["general"]
    assert found.findings[0].saving_ms == 40.0
    assert [f.rule for f in found.notes] == ["note"]


def test_a_rule_without_its_signal_abstains_and_says_why(monkeypatch):
    found = examined(monkeypatch, lacking=Abstain("no signal"), sound=None)
    assert found == Examination(abstained=(("lacking", "no signal"),), checked=("sound",))


def test_rules_that_want_a_gpu_are_one_line_where_there_is_none():
    cpu_run = replaced(
        run({"forward": 5.0}),
        gpu=GpuSnapshot(status="off", reason="no NVIDIA device in this machine"),
    )
    report = build_report(cpu_run)
    lines = "\n".join(plain(all_findings(report), 10_000)).split("Not checked:\n")[1].splitlines()
    (about,) = (line for line in lines if "GPU" in line or "device" in line)
    assert about.endswith(": no GPU was found")
    assert "few warps per multiprocessor" in about
    assert "unused GPU memory" in about
    assert any(line.startswith("- Waiting for the slowest rank: one rank only") for line in lines)
    page = io.StringIO()
    write(report, page)
    assert page.getvalue().count("no GPU was found") == 1
    assert "GPU was not recorded" not in page.getvalue()


def test_p9_a_rule_that_fails_costs_its_own_answer_only(monkeypatch):
    found = examined(monkeypatch, broken=ZeroDivisionError("x"), sound=draft(0.4))
    assert [f.rule for f in found.findings] == ["sound"]
    assert found.abstained == (("broken", "the rule failed: ZeroDivisionError: x"),)


def test_p9_so_does_one_that_fails_when_what_is_left_is_graded(monkeypatch):
    def fails(ms: float) -> str:
        raise ZeroDivisionError(f"at {ms}")

    found = examined(
        monkeypatch,
        inner=draft(0.1, group="item"),
        outer=draft(0.4, shared={"item": 10.0}, grade=fails),
        sound=draft(0.2),
    )
    assert [f.rule for f in found.findings] == ["sound", "inner"]
    assert [rule for rule, _ in found.abstained] == ["outer"]
    assert "the rule failed: ZeroDivisionError" in found.abstained[0][1]


def test_a_program_that_trains_nothing_has_no_finding():
    work = {
        "": [
            calls(c_function("<built-in method builtins.print>", "print"), 40),
            calls(c_function("<method 'acquire' of '_thread.lock' objects>", "acquire"), 30),
            calls(c_function("<built-in method gc.collect>", "gc.collect"), 10),
        ]
    }
    report = build_report(replaced(run({}, inside=work), steps=Steps()))
    assert report.findings == report.examination.notes == ()


def test_every_rule_has_its_own_id_and_its_own_words():
    assert len({rule.id for rule in RULES}) == len({rule.subject for rule in RULES}) == len(RULES)


def test_a_text_names_rules_in_words():
    """Ids are for programs; a reader meets them only where the text says "rule:"."""
    report = build_report(gpu_training_run())
    assert report.examination.explained
    assert report.examination.abstained
    said = "\n".join(plain(all_findings(report), 10_000)) + formats.render(report, "html")
    for rule in (rule.id for rule in RULES if "-" in rule.id):
        for before in ("- ", ", ", ": ", "of ", ">"):
            left = said.replace(f"rule: {rule};", "")
            assert before + rule not in left, rule


def test_an_empty_recording_has_no_finding_and_no_rule_fails_on_it():
    found = build_report(Snapshot(meta={}, duration_ns=0)).examination
    assert found.findings == found.notes == ()
    assert not [reason for _, reason in found.abstained if "failed" in reason]


def test_findings_are_in_the_json_and_in_the_text():
    report = build_report(gpu_training_run())
    assert (
        json.loads(report.to_json())["examination"]["findings"][0]["rule"]
        == report.findings[0].rule
    )
    assert "\n1. WARNING: " in report.to_text(full=True)


@pytest.mark.parametrize("name", NAMES, ids=list(NAMES))
def test_p4_f43_names_in_findings_are_harmless(name):
    report = build_report(snapshot_with(NAMES[name]))
    no_rule_failed(report)
    for text in (report.to_text(full=True), "\n".join(plain(all_findings(report)))):
        assert all(line.isprintable() for line in text.splitlines())
    json.loads(report.to_json())


def test_p2_a_name_made_to_keep_patterns_busy_costs_nothing():
    # A pattern that tries each "Sampler" would take hours.
    report = build_report(snapshot_with("Sampler." * 100_000))
    no_rule_failed(report)


def no_rule_failed(report):
    assert not [reason for _, reason in report.examination.abstained if "failed" in reason]


@given(random_runs(), st.integers(0, 60), st.integers(0, 60), st.integers(0, 10**12))
@settings(max_examples=examples(100), deadline=None)
def test_no_run_makes_a_rule_fail_or_save_more_than_there_is(shape, count, skipped, sum_ns):
    made = made_run(*shape)
    steps = Steps(count, min(count, skipped), sum_ns, sum_ns**2 / 1e18, 0, sum_ns)
    report = build_report(replaced(made, steps=steps, duration_ns=sum_ns))
    no_rule_failed(report)
    for finding in (*report.findings, *report.examination.notes):
        assert math.isfinite(finding.value)
        assert finding.saving_ms is None or finding.saving_ms >= 0
        assert finding.saving_share is None or 0 <= finding.saving_share <= 1
    json.loads(report.to_json())


@pytest.mark.parametrize(
    ("snapshot", "title"), [(gpu_training_run, "leak"), (training_run, "Data")]
)
def test_a_saved_run_has_the_findings_of_the_run(snapshot, title, tmp_path):
    report = build_report(snapshot())
    report.save(tmp_path / "run.fprof")
    assert load(tmp_path / "run.fprof").findings == report.findings
    assert any(title in finding.title for finding in report.findings)


def test_findings_are_of_measured_steps_whatever_phase_is_shown():
    functions = {"": [calls(tensor("item"), 20, 100)]}
    made = run(step_ms=120, inside=functions)
    thread = made.threads[0]
    nodes = replace(thread.nodes, phase=(0,) * len(thread.nodes))
    phases = tuple(PhaseTime(name, made.duration_ns, 1) for name in ("steps", "validation"))
    made = replaced(made, threads=(replace(thread, nodes=nodes),), phases=phases)
    report = build_report(made)
    assert "sync-item" in {f.rule for f in report.findings}
    for phase in ("validation", "all"):
        assert report.in_phase(phase).findings == report.findings


def test_a_fix_that_changes_the_training_comes_after_those_that_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    larger = {"small-batch": draft(0.5), "optimizer-unfused": draft(0.1)}
    first = [f.rule for f in examined(monkeypatch, **larger).findings]
    assert first == ["optimizer-unfused", "small-batch"]
    unknown = {"small-batch": draft(0.2), "backward-share": draft(0.1, promises=False)}
    first = [f.rule for f in examined(monkeypatch, **unknown).findings]
    assert first == ["small-batch", "backward-share"]
