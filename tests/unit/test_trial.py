"""Trials without processes: the verdict and its rate of errors, losses, the course, the diff."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.report.findings import Examination, Finding
from fastprof.results.report import build_report
from fastprof.trial import trial as course
from fastprof.trial import verdict
from fastprof.trial.choose import spoken_for
from fastprof.trial.interventions import BY_ID, INTERVENTIONS, chosen
from fastprof.trial.keep import keep, measured
from fastprof.trial.losses import judged
from fastprof.trial.model import Answer, Call, Candidate, Plan, TrialData, Tried
from fastprof.trial.patch import diff, edited_call
from fastprof.trial.result import TrialResult
from fastprof.trial.runs import Failure, Runs
from helpers import examples
from unit.findings_runs import run

WORKERS = Candidate(
    "workers", {"workers": {"num_workers": 2}}, "DataLoader(num_workers=2)", "data-loading", 10.0
)
FUSED = Candidate("fused", {"fused": {"fused": True}}, "optimizer fused=True")
LOADER_CALL = Call("DataLoader", "/work/train.py", 3, {"batch_size": 8})


def looks(draw: Callable[[], float], saving: float = 0.0) -> str:
    """Return the last status of a trial whose runs are drawn."""
    baseline: list[float] = []
    runs: list[float] = []
    status = verdict.OPEN
    for _ in range(verdict.MOST):
        baseline.append(draw())
        runs.append(draw() - saving)
        status = verdict.judge(baseline, runs).status
        if status != verdict.OPEN:
            break
    return status


@pytest.mark.parametrize("shape", ["normal", "skewed", "heavy"])
def test_a_fix_without_effect_is_called_real_at_most_once_in_a_hundred(shape: str) -> None:
    drawn = random.Random(7)
    draws: Mapping[str, Callable[[], float]] = {
        "normal": lambda: drawn.gauss(30.0, 1.0),
        "skewed": lambda: 30.0 * drawn.lognormvariate(0.0, 0.2),
        "heavy": lambda: 30.0 + (drawn.gauss(0.0, 6.0) if drawn.random() < 0.2 else 0.0)
        + drawn.gauss(0.0, 0.3),
    }  # fmt: skip
    count = examples(4000)
    wrong = sum(looks(draws[shape]) in (verdict.REAL, verdict.WORSE) for _ in range(count))
    # Real alone, half of these, would be allowed as often.
    assert wrong <= 0.01 * count


def test_a_large_saving_is_found_at_the_first_look() -> None:
    drawn = random.Random(3)
    found = [looks(lambda: drawn.gauss(30.0, 0.3), saving=8.0) for _ in range(50)]
    assert found == [verdict.REAL] * 50
    assert verdict.judge([30.0, 30.2, 29.9], [38.0, 38.1, 38.4]).status == verdict.WORSE


def test_five_times_as_slow_is_slower_although_its_runs_vary() -> None:
    # In ms the slower runs vary six times as much, and three of them show nothing.
    found = verdict.judge([8.3, 7.1, 8.4], [36.0, 43.0, 50.0])
    assert found.status == verdict.WORSE
    assert found.share is not None
    assert -4.5 < found.share < -4.2


def test_the_looks_spend_the_whole_error_and_no_more() -> None:
    assert verdict.spent(verdict.MOST, verdict.MOST) == pytest.approx(verdict.ALPHA)
    assert verdict.spent(3, 6) < verdict.spent(4, 6) < verdict.ALPHA
    assert verdict.judge([30.0], [10.0]).status == verdict.OPEN


def test_the_mean_contains_what_happens_between_steps() -> None:
    # Steps of 1 ms, and 8 ms of starting workers before the sixth.
    ends = [1, 2, 3, 4, 5, 14, 15, 16]
    assert verdict.mean_ms([ms * 1_000_000 for ms in ends], 3) == pytest.approx(12 / 4)


def test_losses_are_equal_differ_by_rounding_or_differ() -> None:
    base = [(1.0, 0.5, 0.25)] * 2
    assert judged(base, [(1.0, 0.5, 0.25)]) == (True, "")
    same, said = judged(base, [(1.0, 0.5 + 1e-7, 0.25)])
    assert same
    assert "rounding" in said
    same, said = judged(base, [(1.0, 0.6, 0.25)])
    assert not same
    assert "loss 2 of the first" in said
    # A program without a seed: its runs differ as much from each other.
    same, said = judged([(1.0, 0.5), (1.0, 0.65)], [(1.0, 0.6)])
    assert same
    assert "as those of the baseline" in said
    assert judged(base, [(float("nan"), 0.5, 0.25)])[0] is False
    assert judged([(None,)], [(None,)]) == (True, "no loss was seen")


class FakeRuns(Runs):
    """Runs without processes: ms per step by the begin of a run's name."""

    def __init__(self, folder: Path, ms: Mapping[str, Any]) -> None:
        super().__init__(folder, ["train.py"], None)
        self.names: list[str] = []
        self.plans: list[Plan] = []
        self._ms = ms

    def run(self, name: str, plan: Plan, *, is_baseline: bool = False) -> Answer | Failure:
        self.names.append(name)
        self.plans.append(plan)
        self.count += 1
        found = self._ms[name.rpartition("-")[0] or name]
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, Failure):
            return found
        ms, losses = found if isinstance(found, tuple) else (found, (1.0, 0.5))
        ms += 0.01 * (self.count % 3)
        ends = tuple(int(i * ms * 1e6) for i in range(1, min(plan.steps, 120) + 1))
        return Answer(ends, losses, (LOADER_CALL,), {}, dict.fromkeys(plan.apply, 1))


def run_trial(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    ms: Mapping[str, Any],
    candidates: Sequence[Candidate] = (WORKERS, FUSED),
) -> tuple[TrialData, FakeRuns]:
    monkeypatch.setattr(course, "candidates", lambda *args, **kwargs: list(candidates))
    monkeypatch.setattr(course, "notes", lambda report: ["The CPUs are busy: wait."])
    runs = FakeRuns(folder, {"train_profile": 45.0, **ms})
    made = course.Trial(runs, course.Choice(), lambda path: None, lambda text: None)  # type: ignore[arg-type,return-value]
    return made.run("train.py"), runs


def test_runs_take_turns_and_all_that_helped_run_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, runs = run_trial(
        monkeypatch, tmp_path, {"baseline": 38.0, "workers": 28.0, "fused": 35.0, "together": 25.0}
    )
    assert runs.names[:7] == [
        "train_profile", "baseline-1", "workers-1", "fused-1", "baseline-2", "workers-2", "fused-2",
    ]  # fmt: skip
    assert [one.status for one in found.tried] == ["real", "real"]
    assert found.together is not None
    assert found.together.status == "real"
    assert runs.plans[-1].apply == {"workers": {"num_workers": 2}, "fused": {"fused": True}}
    assert found.tried[0].predicted_ms == pytest.approx(28.0, abs=0.1)
    assert found.places == ("train.py:3 DataLoader(...)", "optimizer fused=True")
    assert len(runs.names) == 1 + 3 * 3 + 3
    # 10 times one run, for runs that are shorter than the program.
    assert all(plan.steps == runs.plans[1].steps for plan in runs.plans[1:])
    text = TrialResult.of(found).to_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "baseline                          38.0 ms per step" in text
    assert "-26 % (26 to 26)  real" in text
    assert "Same losses in all runs but: none." in text
    assert "Predicted by the finding: 28.0 ms." in text
    assert "The CPUs are busy: wait." in text


def test_a_crash_a_hang_and_other_losses_are_reported_and_never_recommended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    third = Candidate("persistent", {"persistent": {"persistent_workers": True}}, "persistent")
    found, runs = run_trial(
        monkeypatch, tmp_path,
        {
            "baseline": 38.0,
            "workers": Failure("crashed", "AttributeError: Can't pickle local object"),
            "fused": Failure("hung", "no end after 30 s"),
            "persistent": (20.0, (1.0, 0.7)),
        },
        (WORKERS, FUSED, third),
    )  # fmt: skip
    assert [one.status for one in found.tried] == ["crashed", "hung", "other losses"]
    assert found.together is None
    assert found.places == ()
    assert runs.names.count("workers-1") == 1
    assert "workers-2" not in runs.names
    text = TrialResult.of(found).to_text()
    assert "crashed" in text
    assert "Can't pickle local object" in text
    assert "Same losses in all runs but: persistent." in text


def test_what_makes_it_worse_is_called_slower(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = run_trial(monkeypatch, tmp_path, {"baseline": 10.0, "workers": 25.0}, (WORKERS,))
    assert found.tried[0].status == "worse"
    assert "+150 %" in TrialResult.of(found).to_text()
    assert "slower" in TrialResult.of(found).to_text()
    assert found.places == ()
    assert found.patch == ""


def test_ctrl_c_reports_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = run_trial(
        monkeypatch, tmp_path, {"baseline": 38.0, "workers": 28.0, "fused": KeyboardInterrupt()}
    )
    assert found.stopped == "Ctrl-C"
    assert found.tried[0].runs == 1
    assert found.tried[0].status == "open"
    assert "Ended by Ctrl-C" in TrialResult.of(found).to_text()


def test_a_program_that_fails_by_itself_is_no_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = Failure("crashed", "ValueError: no data")
    with pytest.raises(course.TrialError, match="without any fix: ValueError: no data"):
        run_trial(monkeypatch, tmp_path, {"train_profile": failed})


def test_results_are_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = run_trial(monkeypatch, tmp_path, {"baseline": 10.0, "workers": 5.0}, (WORKERS,))
    data = json.loads(TrialResult.of(found).to_json())
    assert data["tried"][0]["status"] == "real"
    assert data["tried"][0]["candidate"]["parts"] == {"workers": {"num_workers": 2}}
    answer = Answer((1, 2), (0.5, None), (LOADER_CALL,), {"threads": 2}, {"fused": 1})
    assert Answer.from_json(answer.to_json()) == answer


SOURCE = """\
from torch.utils.data import DataLoader
# é
loader = DataLoader(
    data, batch_size=8, num_workers=0,
)
opt = AdamW(model.parameters(), lr=1e-3)
other = DataLoader(data, **options)
"""


@pytest.mark.parametrize(
    ("call", "values", "expected"),
    [
        (
            Call("DataLoader", "train.py", 3),
            {"num_workers": 2, "persistent_workers": True},
            "    data, batch_size=8, num_workers=2, persistent_workers=True,\n",
        ),
        (Call("AdamW", "train.py", 6), {"fused": True}, "model.parameters(), lr=1e-3, fused=True)"),
        (Call("DataLoader", "train.py", 7), {"num_workers": 2}, None),
        (Call("AdamW", "train.py", 4), {"fused": True}, None),
    ],
)
def test_the_diff_edits_the_call_alone(
    call: Call, values: Mapping[str, Any], expected: str | None
) -> None:
    edited = edited_call(SOURCE, call, values)
    if expected is None:
        assert edited is None
        return
    assert edited is not None
    assert expected in edited
    compile(edited, "train.py", "exec")
    before, after = SOURCE.splitlines(), edited.splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_diff_names_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    calls = [Call("DataLoader", str(path), 3), Call("DataLoader", str(path), 7)]
    tried = Tried(WORKERS, "real")
    text, left = diff([tried], calls)
    assert "-    data, batch_size=8, num_workers=0,\n" in text
    assert "+    data, batch_size=8, num_workers=2,\n" in text
    assert left == ["train.py:7 DataLoader(num_workers=2)"]
    assert path.read_text(encoding="utf-8") == SOURCE


def test_the_first_recording_shows_the_measured_saving_with_the_estimate(tmp_path: Path) -> None:
    snapshot = run({"data": 40, "forward": 30, "backward": 25, "optimizer": 5})
    report = build_report(snapshot)
    assert "measured: " not in report.to_text(full=True)
    path = tmp_path / "first.fprof"
    one = Tried(WORKERS, "real", 3, 28.0, 10.2, 9.1, 11.4)
    keep(report, TrialData("train.py", "", 60, 38.2, 3, (one,)), path)
    kept = fastprof.load(path)
    finding = next(f for f in kept.findings if f.rule == "data-loading")
    assert finding.measured == "10.2 ms (9.10 to 11.4)"
    assert "measured: 10.2 ms (9.10 to 11.4)]" in " ".join(kept.to_text(full=True).split())
    # A fix that did not help says nothing of the finding.
    assert measured(replace(one, status="other losses")) == ""


def test_a_fix_is_tried_if_its_rule_fired_or_lacked_a_proof() -> None:
    finding = Finding("data-loading", "warning", "t", 40.0, "%", "10 %", "s", (), ("Do it.",), 5.0)
    noted = replace(finding, rule="gc-pressure", severity="note")
    found = Examination(
        (finding,), (noted,), abstained=(("optimizer-share", "few steps"),), checked=("sync-item",)
    )
    assert spoken_for(found, ("optimizer-unfused", "data-loading")) == (finding, True)
    assert spoken_for(found, ("gc-pressure",)) == (noted, True)
    assert spoken_for(found, ("optimizer-unfused", "optimizer-share")) == (None, True)
    assert spoken_for(found, ("sync-item",)) == (None, False)


def test_every_intervention_answers_rules_that_exist() -> None:
    from fastprof.findings.examine import RULES

    known = {rule.id for rule in RULES}
    for intervention in INTERVENTIONS:
        assert set(intervention.rules) <= known, intervention.id
    assert len(BY_ID) == len(INTERVENTIONS)
    with pytest.raises(ValueError, match="no intervention 'worker'"):
        chosen(["worker"])
