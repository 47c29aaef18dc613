"""Trials without processes: the verdict and its rate of errors, losses, the course, the diff."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
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
LOADER_CALL = Call("DataLoader", "/x/train.py", 3, {"batch_size": 8})


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


#: The time of the nth run of a program with which nothing is changed, in ms.
SHAPES: Mapping[str, Callable[[random.Random, int], float]] = {
    "normal": lambda drawn, n: drawn.gauss(30.0, 1.0),
    "skewed": lambda drawn, n: 30.0 * drawn.lognormvariate(0.0, 0.2),
    "heavy": lambda drawn, n: 30.0 + (drawn.gauss(0.0, 6.0) if drawn.random() < 0.2 else 0.0)
    + drawn.gauss(0.0, 0.3),
    # Caches fill: each run is shorter than the one before.
    "drifting": lambda drawn, n: 30.0 * 0.99**n + drawn.gauss(0.0, 0.3),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fix_without_effect_is_called_real_at_most_once_in_a_hundred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: str
) -> None:
    seed = random.randrange(2**32)  # others each time: the rate is a fact, not one of a seed
    drawn, count = random.Random(seed), examples(2400) // 3
    nothing = [Candidate(name, {name: {}}, name) for name in ("freeze", "threads", "bf16")]

    class Drawn(FakeRuns):
        def ms(self, name: str) -> float:
            return SHAPES[shape](drawn, self.count)

    statuses: Counter[str] = Counter()
    for _ in range(count):
        found, _ = run_trial(monkeypatch, tmp_path, {}, nothing, Drawn)
        statuses.update(one.status for one in found.tried)
    # The rate is 0.4 %: so many more have a chance of 1e-6 with the fewest examples.
    assert statuses[verdict.REAL] <= 0.01 * 3 * count + 8, (seed, statuses)
    assert statuses[verdict.WORSE] <= 0.01 * 3 * count + 8, (seed, statuses)


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
    assert said == "losses differ by up to 10 %; the baseline's differ by 15 %"
    # Near 0 the last digits are those of larger terms.
    same, said = judged([(4.0, 1e-7)] * 2, [(4.0, -2e-7)])
    assert same
    assert said == "losses differ by rounding (7e-08)"
    assert not judged([(4e-7, 1e-7)] * 2, [(4e-7, -2e-7)])[0]
    assert judged([(0.0, 0.0)], [(0.0, 0.0)]) == (True, "")
    assert judged(base, [(float("nan"), 0.5, 0.25)])[0] is False
    assert judged([(None,)], [(None,)]) == (True, None)
    assert not judged(base, [(1.0, float("nan"), 0.25)])[0]


class FakeRuns(Runs):
    """Runs without processes: ms per step by the begin of a run's name."""

    def __init__(self, folder: Path, ms: Mapping[str, Any]) -> None:
        super().__init__(folder, ["train.py"], None)
        self.names: list[str] = []
        self.plans: list[Plan] = []
        self._ms = ms

    def ms(self, name: str) -> Any:
        return self._ms[name.rpartition("-")[0] or name]

    def run(self, name: str, plan: Plan, *, is_baseline: bool = False) -> Answer | Failure:
        self.names.append(name)
        self.plans.append(plan)
        self.count += 1
        found = self.ms(name)
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, Failure):
            return found
        if isinstance(found, Answer):
            return found
        if isinstance(found, list):
            found = found[int(name.rpartition("-")[2]) - 1]
        ms, losses = found if isinstance(found, tuple) else (found, (1.0, 0.5))
        ms += 0.01 * (self.count % 3)
        ends = tuple(int(i * ms * 1e6) for i in range(1, min(plan.steps, 120) + 1))
        return Answer(ends, losses, (LOADER_CALL,), {}, dict.fromkeys(plan.apply, 1))


def run_trial(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    ms: Mapping[str, Any],
    candidates: Sequence[Candidate] = (WORKERS, FUSED),
    kind: type[FakeRuns] = FakeRuns,
) -> tuple[TrialData, FakeRuns]:
    monkeypatch.setattr(course, "candidates", lambda *args, **kwargs: list(candidates))
    monkeypatch.setattr(course, "notes", lambda report: ["The CPUs are busy: wait."])
    runs = kind(folder, {"train_profile": 45.0, **ms})
    made = course.Trial(runs, course.Choice(), lambda path: None, lambda text: None)  # type: ignore[arg-type,return-value]
    return made.run("train.py"), runs


def test_runs_take_turns_and_all_that_helped_run_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, runs = run_trial(
        monkeypatch, tmp_path, {"baseline": 38.0, "workers": 28.0, "fused": 35.0, "together": 25.0}
    )
    # There and back; what runs together has its own runs of the baseline, and the last one.
    assert runs.names == [
        "train_profile", "baseline-1", "workers-1", "fused-1", "fused-2", "workers-2", "baseline-2",
        "together-1", "together-2", "baseline-3",
    ]  # fmt: skip
    assert [one.status for one in found.tried] == ["real", "real"]
    assert found.together is not None
    assert found.together.status == "real"
    assert runs.plans[-2].apply == {"workers": {"num_workers": 2}, "fused": {"fused": True}}
    assert found.tried[0].predicted_ms == pytest.approx(28.0, abs=0.1)
    assert found.places == ("train.py:3 DataLoader(...)", "optimizer fused=True")
    assert all(plan.steps == runs.plans[1].steps for plan in runs.plans[1:])
    text = TrialResult.of(found).to_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "baseline                          38.0 ms per step" in text
    assert "-26 % (26 to 26)  real" in text
    assert "All runs have the same losses." in text
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
    assert "All other runs have the losses of the baseline; not: persistent." in text


def test_all_together_is_compared_with_the_runs_of_the_baseline_next_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The machine becomes twice as slow: by earlier runs of the baseline they would be slower.
    ms = {
        "baseline": [38.0, 38.1, 76.0], "workers": 28.0, "fused": 35.0, "together": [50.0, 50.1],
    }  # fmt: skip
    found, _ = run_trial(monkeypatch, tmp_path, ms)
    assert found.together is not None
    assert found.together.status == "no difference"
    assert found.together.share is not None
    assert found.together.share > 0


@pytest.mark.parametrize(
    ("ms", "runs"),
    [
        # Nothing has an effect, all that have one are clear, or one crashes: 1 + 2 * 4 at most.
        ({"workers": 38.0, "fused": 38.0, "persistent": 38.0}, 9),
        ({"workers": 28.0, "fused": 38.0, "persistent": 50.0}, 9),
        ({"workers": Failure("crashed", "x"), "fused": 28.0, "persistent": 38.0}, 8),
        # With all that helped: the baseline's last run is its first one of these.
        ({"workers": 28.0, "fused": 30.0, "persistent": 34.0, "together": 20.0}, 12),
    ],
)
def test_three_candidates_take_at_most_ten_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ms: Mapping[str, Any], runs: int
) -> None:
    third = Candidate("persistent", {"persistent": {"persistent_workers": True}}, "persistent")
    found, made = run_trial(
        monkeypatch, tmp_path, {"baseline": 38.0, **ms}, (WORKERS, FUSED, third)
    )
    assert found.processes == runs
    assert runs - sum("together" in name for name in made.names) <= 10


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


def test_runs_that_vary_too_much_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ms = {"baseline": [10.0, 30.0], "workers": [12.0, 33.0]}
    text = TrialResult.of(run_trial(monkeypatch, tmp_path, ms, (WORKERS,))[0]).to_text()
    assert "no difference beyond chance" in text
    assert "These runs vary too much to show a difference" in text
    assert "Possible" not in text
    # The whole interval is of slower times, but chance at the level of the first look.
    ms = {"baseline": [10.0, 10.2], "workers": [12.0, 12.5]}
    text = TrialResult.of(run_trial(monkeypatch, tmp_path, ms, (WORKERS,))[0]).to_text()
    assert "no saving" in text


def test_a_program_that_fails_by_itself_is_no_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = Failure("crashed", "ValueError: no data")
    with pytest.raises(course.TrialError, match="without any fix: ValueError: no data"):
        run_trial(monkeypatch, tmp_path, {"train_profile": failed})

    def no_file(path: str) -> Any:
        raise FileNotFoundError(path)

    runs = FakeRuns(tmp_path, {"train_profile": 45.0})
    made = course.Trial(runs, course.Choice(), no_file, lambda text: None)
    with pytest.raises(course.TrialError, match="ended by force"):
        made.run("train.py")


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


def test_a_baseline_that_ends_early_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = Answer(tuple(range(0, 30_000_000, 1_000_000)))
    with pytest.raises(course.TrialError, match=r"only 30 of \d+ steps in another run: --steps 30"):
        run_trial(monkeypatch, tmp_path, {"baseline": short, "workers": 5.0}, (WORKERS,))
    found, _ = run_trial(monkeypatch, tmp_path, {"baseline": 10.0, "workers": short}, (WORKERS,))
    assert found.tried[0].status == "ended early"
    assert "ended early" in TrialResult.of(found).to_text()


def test_all_figures_of_a_fix_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The second fix needs more rounds, in which the machine becomes slower.
    ms = {
        "baseline": [30.0, 30.1, 29.9, 60.0, 61.0, 62.0], "workers": [20.0, 20.1, 19.9],
        "fused": [29.0, 31.0, 30.0, 60.0, 62.0, 61.0],
    }  # fmt: skip
    found, _ = run_trial(monkeypatch, tmp_path, ms)
    workers = found.tried[0]
    assert workers.status == "real"
    assert found.baseline_ms is not None
    # By the runs of the same rounds, as the verdict: not by the slower ones after it.
    assert workers.share == pytest.approx(1 / 3, abs=0.01)
    assert workers.share_low is not None
    assert workers.share_low > 0.3
    for one in found.tried:
        assert one.share is not None
        assert one.step_ms == pytest.approx(found.baseline_ms * (1 - one.share))
        assert one.saving_ms == pytest.approx(found.baseline_ms * one.share)
        assert one.low_ms is not None
        assert one.high_ms is not None
        assert one.low_ms <= one.saving_ms <= one.high_ms


def test_without_losses_nothing_is_said_of_their_equality(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ms = {"baseline": (10.0, ()), "workers": (5.0, ())}
    text = TrialResult.of(run_trial(monkeypatch, tmp_path, ms, (WORKERS,))[0]).to_text()
    assert "No losses were seen" in text
    assert "same losses" not in text.lower()


def test_a_program_whose_losses_differ_by_themselves_is_no_reason_against_a_fix() -> None:
    drawn = random.Random(5)

    def losses() -> tuple[float, ...]:
        return tuple(2.0 + drawn.gauss(0.0, 0.1) for _ in range(10))

    refused = sum(not judged([losses(), losses()], [losses(), losses()])[0] for _ in range(1000))
    assert refused <= 10
    same, said = judged([(1.0, 0.5), (1.0, 0.51)], [(1.0, float("nan"))])
    assert not same
    assert said == "loss 2 of the first 10 is not a number"


def test_what_cannot_be_applied_together_is_not_recommended_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "train.py"
    source.write_text("loader = DataLoader(data, num_workers=2, prefetch_factor=2)\n")
    call = Call("DataLoader", str(source), 1, {"num_workers": 2, "prefetch_factor": 2})
    monkeypatch.setitem(globals(), "LOADER_CALL", call)
    without = Candidate(
        "no-workers", {"no-workers": {"num_workers": 0}}, "DataLoader(num_workers=0)"
    )
    ahead = Candidate(
        "prefetch", {"prefetch": {"prefetch_factor": 4}}, "DataLoader(prefetch_factor=4)"
    )
    ms = {"baseline": 10.0, "no-workers": 5.0, "prefetch": 8.0}
    found, _ = run_trial(monkeypatch, tmp_path, ms, (without, ahead))
    assert [one.status for one in found.tried] == ["real", "real"]
    assert "+loader = DataLoader(data, num_workers=0, prefetch_factor=None)\n" in found.patch


@pytest.mark.parametrize(
    ("source", "kind", "name", "arguments", "values", "expected"),
    [
        # What the intervention takes away would be refused with the new argument.
        ("Adam(p, foreach=True)", "Adam", "fused", {"foreach": True}, {"fused": True},
         "Adam(p, foreach=False, fused=True)"),
        # More workers than the fix asks for stay.
        ("DataLoader(d, num_workers=8)", "DataLoader", "workers", {"num_workers": 8},
         {"num_workers": 2}, "DataLoader(d, num_workers=8)"),
        ("DataLoader((d))", "DataLoader", "workers", {}, {"num_workers": 2}, None),
        ("Adam(q for q in p)", "Adam", "fused", {}, {"fused": True}, None),
        ("DataLoader(d, 8, True, None, None, 0)", "DataLoader", "workers", {"num_workers": 0},
         {"num_workers": 2}, None),
        ("super().__init__(d, batch_size=8)", "DataLoader", "workers", {}, {"num_workers": 2},
         "super().__init__(d, batch_size=8, num_workers=2)"),
        ("x = 'é\\f'; DataLoader(d)", "DataLoader", "workers", {}, {"num_workers": 2},
         "x = 'é\\f'; DataLoader(d, num_workers=2)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_git_applies_the_diff(
    tmp_path: Path, source: str, kind: str, name: str, arguments: dict[str, Any],
    values: dict[str, Any], expected: str | None, end: str,
) -> None:  # fmt: skip
    path = tmp_path / "train.py"
    before, after = ("# page\f1" + (end or "\n") + text + end for text in (source, expected or ""))
    path.write_bytes(before.encode())
    tried = Tried(Candidate(name, {name: values}, name), "real")
    text, left = diff([tried], [Call(kind, str(path), 2, arguments)])
    if expected is None or expected == source:
        assert text == ""
        assert bool(left) == (expected is None)
        return
    # A path from the root: below the folder where git stands.
    text = text.replace(str(path).lstrip("/"), "train.py").replace(str(path), "train.py")
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    done = subprocess.run(
        ["git", "apply", "--verbose", "-"], input=text.encode(), cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, (done.stderr, text)
    assert path.read_bytes() == after.encode()
