"""Verdicts on saved answers: one function per question, which returns a summary.

A function raises AssertionError with a sentence if the answer is wrong.  It uses only the saved
answer, so you can run it again later and elsewhere:

    python judge.py FOLDER
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import oracles
from questions import QUESTIONS, Question

PASS, FAIL, NOT_ASKED = "PASS", "FAIL", "NOT ASKED"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The verdict on an answer, and its reason."""

    name: str
    verdict: str
    text: str

    def line(self) -> str:
        return f"{self.verdict:9}  {self.name:22}  {self.text}"


def required() -> bool:
    """Return whether a question that cannot be asked is a failure."""
    return os.environ.get("FASTPROF_GPU_REQUIRED", "") not in ("", "0")


def judge(question: Question, saved: Answer | None) -> Verdict:
    """Return the verdict on the file of an answer; None: there is no answer."""
    name = question.name
    if saved is None:
        return Verdict(name, FAIL, "no answer: there was no time left; ask again")
    if saved.get("status") == "not asked":
        excused = question.optional or not required() or saved.get("device") == "simulated"
        return Verdict(name, NOT_ASKED if excused else FAIL, f"not asked: {saved.get('reason')}")
    if saved.get("status") != "answered":
        return Verdict(name, FAIL, f"{saved.get('status')}: {saved.get('reason')}")
    try:
        return Verdict(
            name, PASS, JUDGES[name](saved["answer"], saved.get("device") == "simulated")
        )
    except AssertionError as error:
        text = " ".join(str(error).split()) or "an assertion without a text"
        return Verdict(name, FAIL, text[:600])
    except Exception as error:  # the answer lacks a required value
        return Verdict(name, FAIL, f"the answer cannot be read: {type(error).__name__}: {error}")


def _must(condition: object, text: str) -> None:
    if not condition:
        raise AssertionError(text)


# ---- the machine ----


def machine(a: Answer, simulated: bool) -> str:
    _must(a.get("device"), f"no device: {a}")
    if simulated:
        return f"{a['device']}, {a['system']}"
    _must(a.get("torch") and a.get("cuda"), f"torch {a.get('torch')} is not built for CUDA")
    return f"{a['device']}; torch {a['torch']}, CUDA {a['cuda']}, {a['cupti']}"


def doctor(a: Answer, simulated: bool) -> str:
    _must(a["status"] == 0, f"exit status {a['status']}: {a['stderr']}")
    lines = [line for line in a["stdout"].splitlines() if line.startswith("gpu times")]
    said = lines[0].removeprefix("gpu times").strip() if lines else a["stdout"][-300:]
    _must(said.startswith("can be recorded"), f"GPU times {said}")
    return f"GPU times {said}"


# ---- CUPTI alone ----


def probe_flush(a: Answer, simulated: bool) -> str:
    short, row = a["short_kernels"], a["row"]
    _must(
        row["forced"] == row["launched"],
        f"{row['launched']} kernels were launched, {row['forced']} records came",
    )
    _must(a["when_idle"] == short + 1, f"{a['when_idle']} records when idle, not {short + 1}")
    held = "withholds" if a["behind_long"] < short else "delivers"
    at, seen = max(row["series"], key=lambda pair: pair[0])
    return (
        f"a flush {held} what is finished in a buffer with a running kernel "
        f"({a['behind_long']} of {short} came); of {row['launched']} kernels of 1 ms in a row, "
        f"{seen} came within {at:.2f} s; a flush on the idle device brings "
        f"{row['idle']} of {row['launched']}"
    )


def probe_clock(a: Answer, simulated: bool) -> str:
    if not simulated:
        _must(abs(a["offset_ns"]) < 10**9, f"CUPTI's clock is {a['offset_ns']} ns off REALTIME")
    if not a["available"]:
        return "this CUPTI has no timestamp callback"
    follows = "follows" if a["follows"] else "does not follow"
    _must(a["foreign_code"] == 0, f"a callback was refused: {a['foreign_code']}")
    _must(
        a["replaced_code"] == 0 and a["replaced"],
        f"a foreign clock cannot be replaced (result {a['replaced_code']}): after another "
        "profiler times are in its clock",
    )
    wrong = a["wrong"]
    _must(a["records"] > 0, "no kernel's record came")
    _must(
        len(wrong) < a["records"] // 2,
        f"{len(wrong)} of {a['records']} records have wrong times after the replacement",
    )
    return (
        f"cuptiGetTimestamp {follows} a registered callback; NULL returns {a['null_code']}; "
        f"a second one replaces it; {len(wrong)} of {a['records']} records are wrong then"
        + (f", the numbers {wrong[:10]}" if wrong else "")
    )


def probe_nested(a: Answer, simulated: bool) -> str:
    driver, launched = a["driver_launches"], a["launched"]
    _must(not driver.get("different"), f"nested calls have other ids: {driver}")
    seen = sum(driver.values())
    _must(seen >= launched, f"{launched} launches, {seen} calls of the driver seen: {driver}")
    _must(driver.get("equal"), f"no driver call was inside one of the runtime: {driver}")
    return f"ids are equal when nested ({driver['equal']} of {seen} driver calls were nested)"


def probe_ids(a: Answer, simulated: bool) -> str:
    first, second = a["subscriptions"]
    _must(first["calls"] and second["calls"], f"a subscription saw no launch: {a}")
    again = "begin anew" if second["first"] <= first["last"] else "go on"
    return f"ids {again} after unsubscribing (up to {first['last']}, then {second['first']})"


def probe_external(a: Answer, simulated: bool) -> str:
    if not a["available"]:
        return "this CUPTI cannot enable single calls"
    ways, launched = a["ways"], a["launched"]
    _must(all(way["popped"] for way in ways.values()), f"an id did not come back: {ways}")
    selected = ways["selected"]
    _must(
        selected["joined"] == launched,
        f"with the other calls left out {selected['joined']} of {launched} kernels have an id",
    )
    _must(
        ways["after"]["calls"] == ways["all"]["calls"],
        f"after the kinds were off {ways['after']['calls']} calls have records, not "
        f"{ways['all']['calls']}",
    )
    return (
        f"of {launched} kernels {selected['joined']} have an id with {selected['calls']} calls "
        f"recorded, {ways['all']['joined']} with all {ways['all']['calls']}, "
        f"{ways['alone']['joined']} if a call is enabled without its kind"
    )


def probe_cost(a: Answer, simulated: bool) -> str:
    for name in ("driver_ns", "runtime_ns", "both_ns", "push_pop_ns"):
        _must(a[name] <= 2000, f"{name.removesuffix('_ns')}: {a[name]:.0f} ns, more than 2000")
    _must(a["launch_ns"] > 0 and a["push_pop_ns"] > 0, f"nothing was measured: {a}")
    return (
        f"a launch takes {a['launch_ns']:.0f} ns; callbacks that do nothing add, driver "
        f"{a['driver_ns']:.0f}, runtime {a['runtime_ns']:.0f}, both {a['both_ns']:.0f}; "
        f"records {a['kind_ns']:.0f}; push and pop {a['push_pop_ns']:.0f}"
    )


# ---- known truth ----


def _kernels(a: Answer) -> dict[str, int]:
    return {name: row["kernels"] for name, row in a["sections"].items()}


def exact(a: Answer, simulated: bool) -> str:
    """Check that each section has the kernels that it launched."""
    oracles.nothing_is_missing(a["gpu"])
    found = _kernels(a)
    _must(found == a["truth"], f"kernels by section are {found}, not {a['truth']}")
    return f"{sum(found.values())} kernels in {len(found)} sections, as launched"


def backward(a: Answer, simulated: bool) -> str:
    """Check all kernels but the root gradient, which the calling thread launches itself."""
    text = exact(a, simulated)
    inherited = sum(
        row[6] for row in a["gpu"]["activity"] if row[4] == oracles.INHERITED and row[5] >= 0
    )
    wanted = a["truth"]["backward"]
    _must(
        max(1, wanted - 1) <= inherited <= wanted,
        f"{inherited} of {wanted} kernels of backward are inherited, not all or all but one",
    )
    return f"{text}; {inherited} of {wanted} of backward were launched by autograd's threads"


def _times(a: Answer, limit: float = 0.01) -> str:
    """Compare each section's GPU time to two events; return the worst difference."""
    worst, where = 0.0, ""
    for name, ms in a["truth"].items():
        got = a["sections"].get(name, {"ns": 0})["ns"] / 1e6
        _must(ms > 0, f"the events tell {ms} ms for {name}")
        off = got / ms - 1
        if abs(off) >= abs(worst):
            worst, where = off, f"{name}: {got:.3f} ms, {ms:.3f} ms between events"
        _must(
            abs(off) <= limit,
            f"{name} has {got:.3f} ms, {ms:.3f} ms between events: {off:+.2%}, "
            f"more than {limit:.0%}",
        )
    return f"{worst:+.2%} at most ({where})"


def _none(a: Answer, *names: str) -> None:
    counters = a["gpu"]["counters"]
    found = {name: counters[name] for name in names if counters[name]}
    _must(not found, f"counters that must be 0: {found}")


def spins(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _none(a, "stale", "incomplete", "zero_time", "invalid")
    return f"times differ from events by {_times(a)}"


def copies(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    found = oracles.copies(a["gpu"])
    _must(found == a["truth"], f"copies are {found}, not {a['truth']}")
    return "number and bytes of copies by direction are those of the program"


def delay(a: Answer, simulated: bool) -> str:
    exact(a, simulated)
    counters = a["gpu"]["counters"]
    delays = sum(row[6] for row in a["gpu"]["host"])
    total_us = sum(row[7] for row in a["gpu"]["host"]) / 1e3
    _must(delays >= a["truth"]["one by one"], f"the delay of {delays} launches is known")
    negative = counters["negative_delay"]
    _must(
        negative <= 0.01 * delays,
        f"{negative} of {delays} kernels begin before their launch",
    )
    most_us = 20_000 if simulated else 200  # a busy machine simulates slowly
    mean_us = total_us / delays
    _must(0 <= mean_us <= most_us, f"the mean delay is {mean_us:.1f} us, not 0 to {most_us}")
    return f"the mean delay on an idle device is {mean_us:.1f} us; {negative} negative"


def health(a: Answer, simulated: bool) -> str:
    """Check that the ranges of both overlap, within 3 C and 5 %: the values change meanwhile."""
    ours = a["gpu"]["devices"][0]["health"]
    _must(ours is not None, f"no health: {a['gpu']['health_reason']}")
    for figure, theirs in zip(
        ("temperature_c", "sm_clock_mhz"), zip(*a["truth"], strict=True), strict=True
    ):
        count, _, least, most, _ = ours[figure]
        slack = 3 if figure == "temperature_c" else 0.05 * max(theirs)
        spans = f"{figure}: {least} to {most}, the driver's {min(theirs)} to {max(theirs)}"
        _must(count >= 3, f"{figure}: {count} samples, fewer than 3")
        _must(least - slack <= max(theirs) and most + slack >= min(theirs), spans)
    _must(ours["power_mw"][2] > 1000, f"power {ours['power_mw']}")
    return "temperature and clock are those of nvidia-smi"


# ---- graphs ----


def _graph(a: Answer, replays: str) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _none(a, "expired_launches", "incomplete")
    # torch adds its own kernels to a replay: count the graph's kernels by name.
    most = max(oracles.kernel_counts(a["gpu"]).values())
    truth = a["truth"]["kernels"]
    # ... and launches one to warm up.
    _must(truth <= most <= truth + 1, f"{most} kernels of the graph, not {truth}")
    seen = sum(n for name, n in _kernels(a).items() if name in replays.split())
    _must(seen >= truth, f"{seen} kernels in sections that replay, not {truth}")
    _must(a["seconds"]["stop"] <= 1.0, f"stop took {a['seconds']['stop']:.2f} s, more than 1")
    return f"{most} kernels of the graph, {truth} replayed; stop took {a['seconds']['stop']:.2f} s"


def graph(a: Answer, simulated: bool) -> str:
    text = _graph(a, "replay")
    launched = a["gpu"]["counters"]["graph_launches"]
    _must(launched == 20, f"{launched} replays counted, not 20")
    return text


def graph_before(a: Answer, simulated: bool) -> str:
    return _graph(a, "replay")


#: The first CUPTI whose graphs have right ids in every recording: 13.1 update 1.
GRAPHS_HAVE_THEIR_IDS = 130101


def graph_again(a: Answer, simulated: bool) -> str:
    if a["gpu"]["cupti_version"] < GRAPHS_HAVE_THEIR_IDS:
        truth, placeless = a["truth"]["kernels"], a["gpu"]["counters"]["graph_ids"]
        unknown = oracles.by_how(a["gpu"])[oracles.UNKNOWN]
        _must(
            unknown == placeless == truth,
            f"{truth} kernels of graphs, {unknown} without a place, {placeless} counted as such",
        )
        return f"this CUPTI gives graphs wrong ids; the {truth} kernels are counted without a place"
    text = _graph(a, "old replay")
    old, new = (_kernels(a).get(name, 0) for name in ("old", "replay"))
    _must(
        min(old, new) >= a["truth"]["kernels"] // 2,
        f"the first recording's graph has {old} kernels, the second's {new}",
    )
    return text


def graph_long(a: Answer, simulated: bool) -> str:
    counters, truth = a["gpu"]["counters"], a["truth"]
    untimed, whole = counters["zero_time"], counters["whole_graphs"]
    grown = truth["grown_bytes"] / 2**20
    _must(grown <= 64, f"the device's memory in use grew by {grown:.0f} MiB, more than 64")
    _must(whole > 0 or not untimed, f"{untimed} records without times, and no graph as a whole")
    seen = counters["kernels"] / truth["nodes"] + whole
    _must(seen >= 0.99 * truth["replays"], f"{seen:.0f} of {truth['replays']} replays were seen")
    return (
        f"{truth['replays']} replays of {truth['nodes']} kernels; memory grew by {grown:.0f} MiB; "
        f"{untimed} records without times, then {whole} graphs as a whole"
    )


def compiled(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _none(a, "expired_launches", "incomplete", "stale")
    launched, replays = a["gpu"]["counters"]["graph_launches"], a["truth"]["replays"]
    _must(launched >= replays, f"{launched} graphs launched, not {replays}")
    seen = _kernels(a).get("compiled", 0)
    _must(seen >= replays, f"{seen} kernels in the section of {replays} replays")
    _must(a["seconds"]["stop"] <= 1.0, f"stop took {a['seconds']['stop']:.2f} s, more than 1")
    return f"{launched} graphs, {seen} kernels; stop took {a['seconds']['stop']:.2f} s"


# ---- both ways of correlation, replays ----


def everything(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _must(a["gpu"]["tier"] == "callbacks", f"recorded by {a['gpu']['tier']}, not callbacks")
    return f"recorded by callbacks, {a['gpu']['counters']['kernels']} kernels"


def both_ways(a: Answer, simulated: bool) -> str:
    """Judge the answers of both questions."""
    callbacks, external = a["callbacks"], a["external"]
    tier = external["gpu"]["tier"]
    _must(tier == "external", f"with the slot held it was recorded by {tier}, not external")
    _must(
        oracles.by_how(external["gpu"])[oracles.UNKNOWN] == 0,
        "with external correlation some launches are unknown",
    )
    one, two = oracles.shape(callbacks), oracles.shape(external)
    for name in one:
        _must(one[name] == two[name], f"{name}: by callbacks {one[name]}, external {two[name]}")
    return "both ways give the same kernels, copies and sections"


def everything_held(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    tier = a["gpu"]["tier"]
    _must(tier == "external", f"with the slot held it was recorded by {tier}, not external")
    return f"recorded by external correlation, {a['gpu']['counters']['kernels']} kernels"


def replay(a: Answer, simulated: bool) -> str:
    _must(a["buffers"] > 0, "no buffer was recorded")
    delivered, ours = (
        {oracles.plain_name(name): row for name, row in a[side]["kernels"].items()}
        for side in ("delivered", "recorded")
    )
    _must(delivered == ours, f"kernels delivered {delivered}, recorded {ours}")
    copied = [a[side]["copies"] for side in ("delivered", "recorded")]
    _must(copied[0] == copied[1], f"copies delivered {copied[0]}, recorded {copied[1]}")
    return f"{a['file']} adds up: {sum(row[0] for row in ours.values())} kernels"


# ---- other profilers ----


def profilers(a: Answer, simulated: bool) -> str:
    """Check that times of every recording are right, nothing is stale, and pauses are plausible."""
    told = []
    if a.get("cuda"):
        _must(a["their_events"] > 0, "torch.profiler has no events")
    for number, stage in enumerate(a["stages"], 1):
        counters, gpu = stage["gpu"]["counters"], stage["gpu"]
        _must(counters["stale"] == 0, f"recording {number}: {counters['stale']} stale records")
        paused, wall = gpu["paused_ns"], stage["wall_ns"]
        _must(0 <= paused <= wall, f"recording {number}: paused {paused} ns of {wall}")
        _must(bool(paused) == bool(a.get("inside")), f"recording {number}: paused {paused} ns")
        oracles.nothing_is_missing(gpu)
        try:
            told.append(_times(stage))
        except AssertionError as error:
            raise AssertionError(f"recording {number}: {error}") from error
    return f"times differ from events by {'; then '.join(told)}"


def same_kernels(a: Answer, simulated: bool) -> str:
    ours, theirs = a["fastprof"], a["kineto"]
    counts = [{name: row[0] for name, row in found.items()} for found in (ours, theirs)]
    both = counts[0].keys() | counts[1].keys()
    off = {n: (counts[0].get(n), counts[1].get(n)) for n in sorted(both)
           if counts[0].get(n) != counts[1].get(n)}  # fmt: skip
    _must(counts[0], "no kernels")
    _must(not off, f"kernels by fastprof and torch.profiler: {off}")
    totals = [sum(row[1] for row in found.values()) for found in (ours, theirs)]
    ratio = totals[0] / totals[1]
    _must(0.75 <= ratio <= 1.25, f"times are {ratio:.2f} of torch.profiler's")
    return f"{sum(counts[0].values()):.0f} kernels by both; times {ratio:.3f} of torch.profiler's"


# ---- programs ----


def default_run(a: Answer, simulated: bool) -> str:
    how = {int(number): count for number, count in a["how"].items()}
    every, unknown = sum(how.values()), how.get(oracles.UNKNOWN, 0)
    _must(every > 0, "no activity was recorded")
    _must(
        a["tier"] == "callbacks",
        f"after the window of torch.profiler it was recorded by {a['tier']}: {a['reason']}",
    )
    _must(
        unknown <= 0.01 * every,
        f"of {every} activities {unknown} have no launch (recorded by {a['tier']})",
    )
    none = [name for name in ("forward", "backward", "optimizer") if not a["kernels"].get(name)]
    _must(not none, f"no kernel in {none}: {a['kernels']}")
    _must(a["syncs"] > 0, "no wait for the GPU was recorded")
    return f"{every} activities by {a['tier']}, {unknown} without a launch; {a['syncs']} waits"


def default_cost(a: Answer, simulated: bool) -> str:
    ms = {name: min(found) for name, found in a["ms"].items()}
    of = {name: ms["default"] / ms[name] - 1 for name in ("without windows", "alone")}
    said = " and ".join(f"{of[name]:+.1%} of one {name}" for name in of)
    text = f"a step of {ms['default']:.2f} ms, {said}"
    _must(max(of.values()) <= 0.05, f"{text}, more than 5 %")
    return text


def seed(a: Answer, simulated: bool) -> str:
    plain = a["without"]
    _must(plain["numbers"], "no numbers")
    wrong = [name for name, found in a.items() if found["numbers"] != plain["numbers"]]
    _must(not wrong, f"other random numbers than without fastprof: {', '.join(wrong)}")
    called = a["another call"]["called"]
    _must(len(called) == 1, f"a call that torch had queued was made {len(called)} times, not once")
    return f"the same random numbers in {len(a)} ways to run, seed {plain['seed']}"


def loader(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _must(
        a["sum"] == a["truth"]["sum"], f"the program's sum is {a['sum']}, not {a['truth']['sum']}"
    )
    row = oracles.copies(a["gpu"]).get("-1", [0, 0])
    _must(row[0] >= a["truth"]["batches"], f"{row[0]} copies to the device")
    return f"{row[0]} batches of forked workers, all recorded"


def endings(a: Answer, simulated: bool) -> str:
    for name, row in a.items():
        _must(
            row["status"] == row["expected"],
            f"{name}: status {row['status']}, not {row['expected']}: {row['stderr'][-300:]}",
        )
        _must("Traceback" not in row["stderr"] or name == "exception", f"{name}: {row['stderr']}")
    slowest = max(a, key=lambda name: a[name]["seconds"])
    return f"{', '.join(a)}: all end; the slowest is {slowest}, {a[slowest]['seconds']:.1f} s"


def under_ncu(a: Answer, simulated: bool) -> str:
    _must(a["status"] == "off", f"with ncu the GPU layer is {a['status']}")
    _must("Nsight Compute" in (a["reason"] or ""), f"the reason does not name ncu: {a['reason']}")
    _must(a["calls"].get("work") == 1, f"sections are {a['calls']}")
    return f"sections are recorded; {a['reason']}"


# ---- load and costs ----


def million(a: Answer, simulated: bool) -> str:
    text = exact(a, simulated)
    _none(a, "expired_launches", "stale")
    rate = a["truth"]["many"] / a["seconds"]["work"]
    return f"{text}; {rate / 1e3:.0f} thousand launches per second"


def _busy_share(a: Answer) -> float:
    whole = a["gpu"]["devices"][0]["whole"]
    return float(whole["busy_ns"] / whole["wall_ns"])


def busy(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _none(a, "late", "expired_launches", "stale", "incomplete")
    launched, seen = a["truth"]["busy"], _kernels(a).get("busy", 0)
    _must(seen == launched, f"{seen} of {launched} kernels after a stop without a wait")
    share = _busy_share(a)
    _must(share >= 0.97, f"the device is shown busy for {share:.1%}, less than 97 %")
    stop_s = a["seconds"]["stop"]
    _must(stop_s <= 3, f"stop took {stop_s:.2f} s, more than 3")
    return f"busy for {share:.1%} of the time, {seen} kernels; stop took {stop_s:.2f} s"


def long_kernel(a: Answer, simulated: bool) -> str:
    oracles.nothing_is_missing(a["gpu"])
    _none(a, "expired_launches", "stale", "incomplete", "late")
    share = _busy_share(a)
    _must(share >= 0.97, f"the device is shown busy for {share:.1%}, less than 97 %")
    return f"its time differs from events by {_times(a)}; busy for {share:.1%}"


LIMITS_S = {"attach": 5.0, "pause": 2.0, "resume": 5.0, "stop": 2.5}


def costs(a: Answer, simulated: bool) -> str:
    for name, limit in LIMITS_S.items():
        took = a["seconds"][name]
        _must(took <= limit, f"{name} took {took:.2f} s, more than {limit}")
    told = ", ".join(f"{name} {took * 1e3:.0f} ms" for name, took in a["seconds"].items())
    memory = a["memory"]
    if memory["before"] is None:
        return f"{told}; memory: the simulation has none"
    taken = {name: (memory["before"] - free) / 2**20 for name, free in memory.items()}
    most = max(taken.values())
    _must(most <= 512, f"{most:.0f} MiB of the device's memory are taken, more than 512")
    return f"{told}; of the device's memory at most {most:.0f} MiB are taken"


def _overhead(a: Answer, limit: float) -> str:
    _must(len(a["on"]) == len(a["off"]) >= 6, f"{len(a['on'])} rounds, fewer than 6")
    ratios = sorted(on / off - 1 for on, off in zip(a["on"], a["off"], strict=True))
    middle = statistics.median(ratios)
    quarter = len(ratios) // 4
    spread = f"{ratios[quarter]:+.2%} to {ratios[-1 - quarter]:+.2%}"
    ms = statistics.median(a["off"])
    text = f"{middle:+.2%} of a step of {ms:.2f} ms (half of the rounds: {spread})"
    _must(middle <= limit, f"{text}, more than {limit:.0%}")
    return text


# CUPTI's records of kernels alone take 0.7 to 1.1 us per launch on an H100 (probe_cost): 1.3 % of
# the transformer's step, some 15 % of a step that only launches.


def overhead_transformer(a: Answer, simulated: bool) -> str:
    return _overhead(a, 0.02)


def overhead_launches(a: Answer, simulated: bool) -> str:
    text = _overhead(a, 0.20)
    more = a["with functions"]
    ratio = statistics.median(more["on"]) / statistics.median(more["off"]) - 1
    return f"{text}; with functions {ratio:+.2%}"


JUDGES: dict[str, Callable[[Answer, bool], str]] = {
    **dict.fromkeys(("counts", "threads", "streams", "driver_only"), exact),
    **dict.fromkeys(("replay_callbacks", "replay_external"), replay),
    **dict.fromkeys(
        (
            *("profiler_cpu_between", "profiler_cuda_between", "profiler_cpu_first"),
            *("profiler_cuda_first", "profiler_inside"),
        ),
        profilers,
    ),
    **dict.fromkeys(("same_kernels", "same_kernels_after"), same_kernels),
    **{
        f.__name__: f
        for f in (
            *(machine, doctor, probe_flush, probe_clock, probe_nested, probe_ids),
            *(probe_external, probe_cost, backward, spins, copies, delay, health),
            *(graph, graph_before, graph_again, graph_long, compiled, everything, everything_held),
            *(
                both_ways,
                default_run,
                default_cost,
                seed,
                loader,
                endings,
                under_ncu,
                million,
                busy,
                long_kernel,
            ),
            *(costs, overhead_transformer, overhead_launches),
        )
    },
}


# ---- folders of answers ----


def read(folder: Path, question: Question) -> Answer | None:
    """Return the saved answer; for a question about two answers, both."""
    if question.compares:
        parts = [_read(folder, name) for name in question.compares]
        for part in parts:
            if part is None or part["status"] != "answered":
                return part
        callbacks, external = (part["answer"] for part in parts if part is not None)
        answer = {"callbacks": callbacks, "external": external}
        device = parts[0]["device"] if parts[0] else ""
        return {"status": "answered", "device": device, "answer": answer}
    return _read(folder, question.name)


def _read(folder: Path, name: str) -> Answer | None:
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {"status": "failed", "reason": "no answer"}


if __name__ == "__main__":
    for one in QUESTIONS:
        print(judge(one, read(Path(sys.argv[1]), one)).line())
