"""Differences in the settings of two runs, and their effect on the comparison."""

from collections.abc import Iterable, Mapping, Sequence

from fastprof.comparison.model import Setting
from fastprof.comparison.runs import Run
from fastprof.report.findings import TRIED
from fastprof.report.model import Report
from fastprof.tables.cells import NAME_WIDTH

_OTHER_TIMES = "the times come from different machines or interpreters"
_OTHER_CLOCK = "the times were measured in different ways"
_OTHER_WORK = "a step does different work on the two sides"
_ELSEWHERE = "functions that run in workers are in no figure"

#: Fields of ``meta`` -> (their name, the effect of a difference).  Those that always differ
#: (process, start) are left out; other fields appear under their own name.
_META: Mapping[str, tuple[str, str]] = {
    "python": ("Python", _OTHER_TIMES),
    "implementation": ("Python implementation", _OTHER_TIMES),
    "platform": ("platform", _OTHER_TIMES),
    "machine": ("machine", _OTHER_TIMES),
    "host_id": ("boot of the machine", "another machine, or this one restarted"),
    "cpu": ("CPU", _OTHER_TIMES),
    "cpus": ("CPUs", "work in several threads takes a different time"),
    "cpu_limit": ("CPU limit of the container", ""),
    "torch_threads": ("PyTorch's threads", ""),
    "torch_anomaly_mode": ("PyTorch's anomaly detection", "it makes forward and backward longer"),
    "torch_gpus": ("GPUs of another maker", _OTHER_TIMES),
    "torch_untrained": ("gradients that no optimizer uses", ""),
    "backend": ("hook", "the hook's cost differs; steps are not corrected for it"),
    "clock": ("clock", ""),
    "timer": ("timer", _OTHER_CLOCK),
    "sync": ("synchronized with the GPU", "synchronizing changes what overlaps: " + _OTHER_CLOCK),
    "functions": ("functions recorded", "recording functions makes steps longer"),
    "hostname": ("host", _OTHER_TIMES),
    "world_size": ("processes", _OTHER_WORK),
    "torch": ("PyTorch", ""),
    "framework": ("framework", ""),
    "command": ("command line", ""),
    "steps_ended_by": ("steps ended by", "steps may begin and end in other places"),
    "ended_by": ("ended by", ""),
    "recorded_until": ("recorded until", ""),
}
_NEVER = frozenset(
    {
        "pid",
        "job",
        "rank",
        "fell_back",
        "imports_folded",
        "new_threads_lost",
        "ended_threads",
        "torch_untrained_size",
        "torch_untrained_all",
        "torch_untrained_share",
        "torch_untrained_of",
        "torch_stepped_elsewhere",
        "torch_refuses_fused",
    }
)

#: Fields of ``meta`` that distinguish machines.
_OF_MACHINE = ("host_id", "hostname", "machine", "cpu")

#: What the other side has instead of a missing value.
_MISSING = {"file": ".fprof"}


def settings(before: Sequence[Run], after: Sequence[Run]) -> tuple[Setting, ...]:
    """Return the differences, those with most effect first."""
    a, b = _of_side(before), _of_side(after)
    trees = all(run.report.has_tree for run in (*before, *after))
    rows = []
    for name in dict.fromkeys((*a, *b)):
        left, right = (side.get(name, {}) for side in (a, b))
        # A .stats file has no such fields.
        missing = not (left and right) and name != "file"
        if left.keys() == right.keys() or (missing and not trees):
            continue
        matters = next(iter((left or right).values()))
        rows.append(Setting(name, _listed(name, left, right), _listed(name, right, left), matters))
    return tuple(sorted(rows, key=lambda row: not row.matters))


def other_machine(before: Sequence[Run], after: Sequence[Run]) -> bool:
    """Return whether the sides ran on different machines, as far as the runs tell."""
    known = [
        {name: {run.report.meta.get(name) for run in side} - {None} for name in _OF_MACHINE}
        for side in (before, after)
    ]
    apart = {
        name
        for name in _OF_MACHINE
        if known[0][name] and known[1][name] and known[0][name].isdisjoint(known[1][name])
    }
    # A container has a name of its own on the same machine; a machine has a new boot after a start.
    same_boot = bool(known[0]["host_id"] & known[1]["host_id"])
    return bool(apart - {"host_id"}) and not same_boot


def _of_side(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """Return name -> value of any run -> effect."""
    facts: dict[str, dict[str, str]] = {}
    for run in runs:
        for name, (value, effect) in _facts(run.report).items():
            facts.setdefault(name, {})[value] = effect
    return facts


def _listed(name: str, values: Iterable[str], other: Iterable[str]) -> str:
    """Return the values; instead of a long list one that the other side does not have."""
    known = sorted(values)
    text = ", ".join(known)
    if len(known) > 1 and len(text) > NAME_WIDTH:
        only = next((value for value in known if value not in other), known[0])
        text = f"{only} and {len(known) - 1} more"
    return text or _MISSING.get(name, "-")


def _facts(report: Report) -> dict[str, tuple[str, str]]:
    """Return name -> (value, the effect of a difference)."""
    facts: dict[str, tuple[str, str]] = {}
    for key, value in report.meta.items():
        if key in _NEVER or value is None or key.endswith("_ns") or key.startswith(TRIED):
            continue
        name, matters = _META.get(key, (key, ""))
        facts[name] = (_say(value), matters)
    if not report.has_tree:
        facts["file"] = (".stats", "times of .stats contain the profiler's cost")
        return facts
    facts["hook's cost subtracted"] = (
        _say(report.overhead.corrected),
        "times of sections and functions are not of the same kind",
    )
    if report.steps.count:
        facts["steps skipped as warm-up"] = (
            str(report.steps.skipped),
            "one side may have its warm-up in the figures",
        )
    for loader in report.loaders:
        _loader_facts(facts, f"loader {loader.name} ({loader.split})", loader.workers)
    if report.gpu is not None:
        facts["GPU layer"] = (report.gpu.status, "")
        for device in report.gpu.devices:
            facts[f"GPU {device.index}"] = (device.name, _OTHER_TIMES)
        for name, version in (("driver", report.gpu.driver_version),
                              ("CUPTI", report.gpu.cupti_version)):  # fmt: skip
            if version is not None:
                facts[name] = (str(version), "")
    if report.operators is not None:
        facts["operator windows"] = ("yes", "torch.profiler makes the steps of its windows longer")
    return facts


def _loader_facts(facts: dict[str, tuple[str, str]], name: str, workers: object) -> None:
    if workers is None:
        return
    for field, label, matters in (
        ("workers", "workers", _ELSEWHERE),
        ("batch_size", "batch size", _OTHER_WORK),
        ("prefetch", "prefetch factor", ""),
        ("persistent", "persistent workers", ""),
        ("start_method", "start method", ""),
    ):
        value = getattr(workers, field)
        if value is not None:
            facts[f"{name}: {label}"] = (_say(value), matters)


def _say(value: object) -> str:
    if value is True:
        return "yes"
    return "no" if value is False else str(value)
