"""Verdicts of the first day: a good answer to each question passes, and bad ones fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "suite"))

import answering
import judge
import oracles
from judge import FAIL, NOT_ASKED, PASS
from questions import QUESTIONS

SUITE = Path(__file__).resolve().parent / "suite"
BY_NAME = {one.name: one for one in QUESTIONS}
COUNTERS = (
    *oracles.LOSSES,
    *("late", "stale", "expired_launches", "incomplete", "zero_time", "invalid"),
    *("negative_delay", "graph_launches", "kernels"),
)

Answer = dict[str, Any]
Change = Callable[[Answer], object]


def recording(truth: Any, **sections: tuple[int, int]) -> Answer:
    """Return a recording; ``sections``: number of kernels launched, and their ns."""
    kernels = sum(count for count, _ in sections.values())
    ns = sum(ns for _, ns in sections.values())
    rows = [[0, i, -1, -1, oracles.OWN, 0, n, t, 0] for i, (n, t) in enumerate(sections.values())]
    health = {
        "temperature_c": [5, 300, 58, 62, 60], "sm_clock_mhz": [5, 9900, 1960, 1980, 1980],
        "power_mw": [5, 0, 300_000, 400_000, 0],
    }  # fmt: skip
    return {
        "gpu": {
            "tier": "callbacks",
            "counters": dict.fromkeys(COUNTERS, 0) | {"kernels": kernels},
            "activity": rows,
            "host": [[0, 0, -1, -1, 0, kernels, kernels, kernels * 5000, 9000, 0, 0]],
            "kernels": [["kernel", *[0] * 11, kernels, ns]],
            "devices": [{"whole": {"wall_ns": 1000, "busy_ns": 990}, "health": health}],
            "sum_ns": ns,
            "paused_ns": 0,
            "health_reason": "",
        },
        "sections": {name: {"kernels": n, "ns": t} for name, (n, t) in sections.items()},
        "seconds": {"start": 0.1, "work": 10.0, "stop": 0.1},
        "truth": truth,
    }


def _counted(**sections: int) -> Answer:
    return recording(dict(sections), **{name: (n, n * 1000) for name, n in sections.items()})


def _backward() -> Answer:
    a = _counted(forward=3, backward=5)
    a["gpu"]["activity"] = [
        [0, 1, -1, -1, oracles.OWN, 0, 4, 4000, 0],
        [1, 0, 0, 2, oracles.INHERITED, 0, 4, 4000, 0],
    ]
    return a


def _copies() -> Answer:
    a = recording({"-1": [3, 70], "-2": [1, 7]})
    a["gpu"]["activity"] = [[0, 1, -1, -1, 0, -1, 3, 0, 70], [0, 1, -1, -1, 0, -2, 1, 0, 7]]
    return a


def _graph(name: str = "replay", **more: tuple[int, int]) -> Answer:
    a = recording({"kernels": 160}, **{name: (160, 1600)}, **more)
    a["gpu"]["counters"]["graph_launches"] = 20
    return a


def _again() -> Answer:
    a = recording({"kernels": 320}, old=(160, 1600), replay=(160, 1600))
    a["gpu"]["cupti_version"] = 130101
    a["gpu"]["counters"]["graph_ids"] = 0
    return a


def _long() -> Answer:
    a = recording({"replays": 100, "nodes": 500, "grown_bytes": 61 << 20}, replay=(40_000, 400_000))
    a["gpu"]["counters"] |= {"kernels": 40_000, "zero_time": 9000, "whole_graphs": 20}
    return a


def _held() -> Answer:
    a = _counted(forward=20)
    a["gpu"]["tier"] = "external"
    return a


def _stage() -> Answer:
    return recording({"spun": 50.0}, spun=(10, 50_000_000)) | {"wall_ns": 10**9}


def _profilers(**more: Any) -> Answer:
    return {"stages": [_stage(), _stage()], "their_events": 100, **more}


def _inside() -> Answer:
    a = _profilers(inside=True)
    a["stages"] = a["stages"][:1]
    a["stages"][0]["gpu"]["paused_ns"] = 10**8
    return a


def _loader() -> Answer:
    a = recording({"batches": 32, "sum": 5.0}) | {"sum": 5.0}
    a["gpu"]["activity"] = [[0, 1, -1, -1, 0, -1, 32, 0, 70]]
    return a


def _ended(status: int) -> Answer:
    return {"status": status, "expected": status, "seconds": 1.0, "stderr": ""}


ROUNDS: Answer = {"off": [10.0] * 12, "on": [10.05] * 12}
KERNELS = {"gemm": [10, 1000], "add": [20, 500]}
NUMBERS = {"numbers": [0.1, 0.2], "seed": 1234, "called": []}
REPLAY = {
    "file": "x.json.gz", "buffers": 2,
    "delivered": {"kernels": {"a": [1, 5]}, "copies": {"-1": [1, 5, 9]}},
    "recorded": {"kernels": {"a": [1, 5]}, "copies": {"-1": [1, 5, 9]}},
}  # fmt: skip

GOOD: dict[str, Answer] = {
    "machine": {
        "device": "H200", "torch": "2.11", "cuda": "13.0", "cupti": "/x/libcupti.so.13",
        "system": "Linux",
    },
    "doctor": {"status": 0, "stdout": "gpu times  can be recorded, by launch callbacks\n",
               "stderr": ""},
    "probe_flush": {
        "short_kernels": 10, "behind_long": 0, "when_idle": 11, "buffers": 3,
        "row": {"launched": 600, "launched_s": 0.1, "series": [[0.3, 0], [0.5, 303]],
                "idle": 600, "forced": 600},
    },
    "probe_clock": {
        "available": True, "offset_ns": 100, "foreign_code": 0, "follows": True, "null_code": 1,
        "replaced_code": 0, "replaced": True, "records": 50, "wrong": [0],
    },
    "probe_nested": {"launched": 10, "runtime_launches": 10, "driver_launches": {"equal": 10}},
    "probe_ids": {"subscriptions": [{"calls": 400, "first": 1, "last": 100},
                                    {"calls": 400, "first": 1, "last": 100}]},
    "probe_external": {
        "available": True, "launched": 5,
        "ways": {name: {"popped": True, "kernels": 5, "external": 5, "joined": joined,
                        "calls": calls}
                 for name, joined, calls in (("alone", 0, 0), ("all", 5, 29), ("selected", 5, 5),
                                             ("after", 5, 29))},
    },
    "probe_cost": {"launch_ns": 4000.0, "driver_ns": 80.0, "runtime_ns": 90.0, "both_ns": 170.0,
                   "kind_ns": 300.0, "push_pop_ns": 200.0},
    "counts": _counted(a=1000, b=500),
    "threads": _counted(**{"thread 0": 50}),
    "streams": _counted(**{"stream 0": 25}),
    "driver_only": _counted(**{"driver only": 100}),
    "copies": _copies(),
    "backward": _backward(),
    "spins": recording({"short": 5.0, "long": 20.0}, short=(1, 5_010_000), long=(1, 19_990_000)),
    "delay": _counted(**{"one by one": 200}),
    "health": recording([[60, 1975], [61, 1980]]),
    "graph": _graph(),
    "graph_before": _graph(),
    "graph_again": _again(),
    "graph_long": _long(),
    "default_cost": {
        "ms": {"alone": [13.3, 13.0], "without windows": [13.1, 13.2], "default": [13.4, 13.5]},
    },
    "everything": _counted(forward=20),
    "everything_held": _held(),
    "both_ways": {"callbacks": _counted(forward=20), "external": _held()},
    "replay_callbacks": REPLAY,
    "replay_external": REPLAY,
    "default_run": {"tier": "callbacks", "reason": "", "how": {"0": 990, "4": 3}, "syncs": 128,
                    "kernels": {"forward": 10, "backward": 20, "optimizer": 5}},
    "seed": {"without": NUMBERS, "gpu auto": NUMBERS, "another call": NUMBERS | {"called": [1]}},
    "profiler_cpu_between": _profilers(),
    "profiler_cuda_between": _profilers(cuda=True),
    "profiler_cpu_first": _profilers(),
    "profiler_cuda_first": _profilers(cuda=True),
    "profiler_inside": _inside(),
    "same_kernels": {"fastprof": KERNELS, "kineto": KERNELS},
    "same_kernels_after": {"fastprof": KERNELS, "kineto": KERNELS},
    "compiled": recording({"replays": 20}, compiled=(60, 600)) | {},
    "loader": _loader(),
    "endings": {"exit": _ended(0), "killed": _ended(-9)},
    "busy": _counted(busy=10_000),
    "long_kernel": recording({"long": 5000.0}, long=(1, 5_000_000_000)),
    "million": _counted(many=1_000_000),
    "costs": {"seconds": {"attach": 0.5, "pause": 0.1, "resume": 0.2, "stop": 0.1},
              "memory": {"before": 2**37, "attached": 2**37 - 2**26, "stopped": 2**37 - 2**26}},
    "overhead_transformer": ROUNDS,
    "overhead_launches": {**ROUNDS, "with functions": ROUNDS},
    "under_ncu": {"status": "off", "reason": "records belong to Nsight Compute (X is set)",
                  "calls": {"work": 1}},
}  # fmt: skip
GOOD["compiled"]["gpu"]["counters"]["graph_launches"] = 20


def put(path: str, value: Any) -> Change:
    """Return a change of one value; its path has names and numbers with points between."""

    def change(answer: Answer) -> None:
        *names, last = [int(n) if n.isdigit() else n for n in path.split(".")]
        for name in names:
            answer = answer[name]  # type: ignore[index]
        answer[last] = value  # type: ignore[index]

    return change


def counter(name: str, value: int = 1) -> Change:
    return put(f"gpu.counters.{name}", value)


BAD: list[tuple[str, Change]] = [
    ("machine", put("device", "")),
    ("machine", put("cuda", None)),
    ("doctor", put("status", 1)),
    ("doctor", put("stdout", "gpu times  cannot be recorded: no libcupti")),
    ("doctor", put("stdout", "gpu  n/a, because there is no driver")),
    ("probe_flush", put("row.forced", 599)),
    ("probe_flush", put("when_idle", 4)),
    ("probe_clock", put("offset_ns", 10**12)),
    ("probe_clock", put("replaced", False)),
    ("probe_clock", put("replaced_code", 1)),
    ("probe_clock", put("wrong", list(range(50)))),
    ("probe_clock", put("records", 0)),
    ("probe_nested", put("driver_launches", {"equal": 9, "different": 1})),
    ("probe_nested", put("driver_launches", {})),
    ("probe_ids", put("subscriptions.1.calls", 0)),
    ("probe_external", put("ways.selected.joined", 3)),
    ("probe_external", put("ways.after.calls", 5)),
    ("probe_external", put("ways.all.popped", False)),
    ("probe_cost", put("both_ns", 5000.0)),
    ("probe_cost", put("push_pop_ns", 0.0)),
    ("counts", put("sections.a.kernels", 999)),
    ("counts", counter("dropped")),
    ("counts", put("gpu.sum_ns", 1)),
    ("counts", put("gpu.activity.0.4", oracles.UNKNOWN)),
    ("threads", put("truth", {"thread 0": 51})),
    ("streams", put("truth", {"stream 0": 25, "stream 1": 25})),
    ("driver_only", put("sections", {})),
    ("copies", put("gpu.activity.0.8", 71)),
    ("copies", put("truth.-3", [1, 1])),
    ("backward", put("gpu.activity.1.4", oracles.OTHER)),
    ("backward", put("truth.backward", 6)),
    ("spins", put("sections.long.ns", 20_300_000)),
    ("spins", counter("stale")),
    ("spins", put("truth.row", 50.0)),
    ("delay", counter("negative_delay", 50)),
    ("delay", put("gpu.host.0.7", 200 * 10**6)),
    ("delay", put("gpu.host.0.7", -200 * 10**4)),
    ("delay", put("gpu.host.0.6", 10)),
    ("health", put("gpu.devices.0.health", None)),
    ("health", put("gpu.devices.0.health.temperature_c", [5, 0, 20, 25, 0])),
    ("health", put("gpu.devices.0.health.sm_clock_mhz.0", 1)),
    ("health", put("gpu.devices.0.health.power_mw.2", 0)),
    ("graph", counter("expired_launches", 8)),
    ("graph", counter("graph_launches", 19)),
    ("graph", put("gpu.kernels.0.12", 150)),
    ("graph", put("seconds.stop", 1.5)),
    ("graph_before", put("sections.replay.kernels", 0)),
    ("graph_before", put("gpu.activity.0.4", oracles.UNKNOWN)),
    ("graph_again", put("gpu.cupti_version", 130001)),
    ("graph_again", put("sections.old.kernels", 0)),
    ("graph_again", put("sections", {"old": {"kernels": 320}, "replay": {"kernels": 0}})),
    ("graph_long", put("truth.grown_bytes", 65 << 20)),
    ("graph_long", counter("whole_graphs", 0)),
    ("graph_long", counter("kernels", 39_000)),
    ("default_cost", put("ms.default", [14.0, 13.9])),
    ("default_cost", put("ms.without windows", [12.0, 13.0])),
    ("everything", put("gpu.tier", "external")),
    ("everything_held", put("gpu.tier", "callbacks")),
    ("both_ways", put("external.sections.forward.kernels", 19)),
    ("both_ways", put("external.gpu.activity.0.4", oracles.UNKNOWN)),
    ("replay_callbacks", put("recorded.kernels.a", [1, 4])),
    ("replay_external", put("delivered.copies", {})),
    ("replay_external", put("buffers", 0)),
    ("default_run", put("how.4", 100)),
    ("default_run", put("how", {})),
    ("default_run", put("kernels.backward", 0)),
    ("default_run", put("syncs", 0)),
    ("default_run", put("tier", "external")),
    ("seed", put("gpu auto.numbers", [0.3, 0.4])),
    ("seed", put("another call.called", [])),
    ("seed", put("another call.called", [1, 1])),
    ("seed", put("without", {"numbers": [], "seed": 0})),
    ("profiler_cpu_between", put("stages.1.gpu.counters.stale", 10)),
    ("profiler_cpu_between", put("stages.0.truth.spun", 51.0)),
    ("profiler_cuda_between", put("their_events", 0)),
    ("profiler_cuda_between", put("stages.1.gpu.counters.dropped", 1)),
    ("profiler_cpu_first", put("stages.1.sections.spun.ns", 17_000_000)),
    ("profiler_cuda_first", put("stages.0.gpu.paused_ns", 5)),
    ("profiler_inside", put("stages.0.gpu.paused_ns", -(10**18))),
    ("profiler_inside", put("stages.0.gpu.paused_ns", 10**10)),
    ("profiler_inside", put("stages.0.gpu.paused_ns", 0)),
    ("same_kernels", put("kineto.add", [21, 500])),
    ("same_kernels", put("fastprof.more", [1, 1])),
    ("same_kernels", put("kineto.gemm", [10, 100_000])),
    ("same_kernels_after", put("kineto", {})),
    ("compiled", counter("graph_launches", 0)),
    ("compiled", counter("incomplete")),
    ("compiled", put("seconds.stop", 2.2)),
    ("compiled", put("sections", {})),
    ("loader", put("sum", 4.0)),
    ("loader", put("gpu.activity.0.6", 3)),
    ("endings", put("killed.status", "hangs")),
    ("endings", put("exit.status", 134)),
    ("endings", put("exit.stderr", "Traceback (most recent call last)")),
    ("busy", put("gpu.devices.0.whole.busy_ns", 900)),
    ("busy", counter("late", 5)),
    ("busy", counter("expired_launches", 5)),
    ("busy", put("sections.busy.kernels", 9990)),
    ("busy", put("seconds.stop", 4.0)),
    ("long_kernel", put("gpu.devices.0.whole.busy_ns", 10)),
    ("long_kernel", put("sections.long.ns", 0)),
    ("million", put("sections.many.kernels", 999_999)),
    ("million", counter("lost_launches")),
    ("million", counter("discarded", 3)),
    ("costs", put("seconds.stop", 3.0)),
    ("costs", put("memory.attached", 2**36)),
    ("overhead_transformer", put("on", [10.4] * 12)),
    ("overhead_transformer", put("on", [10.0])),
    ("overhead_launches", put("on", [12.5] * 12)),
    ("under_ncu", put("status", "on")),
    ("under_ncu", put("reason", "no driver")),
    ("under_ncu", put("calls", {})),
]


def saved(name: str, answer: Answer, **more: Any) -> Answer:
    return {"question": name, "device": "torch", "status": "answered", "answer": answer} | more


def test_every_question_has_good_and_bad_answers() -> None:
    names = [one.name for one in QUESTIONS]
    assert len(set(names)) == len(names)
    assert (
        sorted(GOOD) == sorted({name for name, _ in BAD}) == sorted(judge.JUDGES) == sorted(names)
    )


@pytest.mark.parametrize("name", GOOD)
def test_a_good_answer_passes(name: str) -> None:
    found = judge.judge(BY_NAME[name], saved(name, GOOD[name]))
    assert found.verdict == PASS, found.text
    assert found.text
    assert "\n" not in found.text


@pytest.mark.parametrize(("name", "change"), BAD, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BAD)])
def test_a_bad_answer_fails(name: str, change: Change) -> None:
    answer = json.loads(json.dumps(GOOD[name]))
    change(answer)
    found = judge.judge(BY_NAME[name], saved(name, answer))
    assert found.verdict == FAIL, found.text
    # It fails for the intended reason, not by an error of the judge.
    assert "cannot be read" not in found.text


@pytest.mark.parametrize("name", GOOD)
def test_what_is_no_answer_fails(name: str) -> None:
    for wrong in (None, saved(name, {}), {"status": "timed out", "reason": "x"}, {}):
        assert judge.judge(BY_NAME[name], wrong).verdict == FAIL


def test_what_cannot_be_asked_fails_where_a_gpu_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def verdict(name: str, device: str = "torch") -> str:
        answer = {"status": "not asked", "reason": "no torch", "device": device}
        return judge.judge(BY_NAME[name], answer).verdict

    monkeypatch.delenv("FASTPROF_GPU_REQUIRED", raising=False)
    assert verdict("counts") == NOT_ASKED
    monkeypatch.setenv("FASTPROF_GPU_REQUIRED", "0")
    assert verdict("counts") == NOT_ASKED
    monkeypatch.setenv("FASTPROF_GPU_REQUIRED", "1")
    assert verdict("counts") == FAIL
    assert verdict("seed", "simulated") == NOT_ASKED
    assert verdict("under_ncu") == NOT_ASKED  # a machine may lack that tool


def test_a_folder_of_answers_can_be_judged_elsewhere(tmp_path: Path) -> None:
    for name, answer in GOOD.items():
        if not BY_NAME[name].compares:
            answering.save(tmp_path / f"{name}.json", saved(name, answer))
    command = [sys.executable, "-S", str(SUITE / "judge.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    verdicts = [line.split()[0] for line in done.stdout.splitlines()]
    assert verdicts == [PASS] * len(QUESTIONS), done.stdout
    (tmp_path / "everything_held.json").write_text(json.dumps({"status": "failed", "reason": "x"}))
    found = judge.judge(BY_NAME["both_ways"], judge.read(tmp_path, BY_NAME["both_ways"]))
    assert (found.verdict, found.text) == (FAIL, "failed: x")


# ---- the oracles can fail ----


def test_names_are_compared_demangled_and_without_spaces() -> None:
    rows = [["_Z3addIfEvPT_", *[0] * 11, 2, 9], ["void add<float>(float *)", *[0] * 11, 1, 9]]
    assert oracles.kernel_counts({"kernels": rows}) == Counter({"voidadd<float>(float*)": 3})
    assert oracles.plain_name("_Znonsense") == "_Znonsense"


def test_copies_are_told_by_direction() -> None:
    rows = [[0, 1, -1, -1, 0, what, 2, 5, 70] for what in (-1, -1, -2, -7, 0)]
    assert oracles.copies({"activity": rows}) == {"-1": [4, 140], "-2": [2, 70]}
