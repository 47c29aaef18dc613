"""Measures how much longer a step of a small transformer takes on the CPU."""

from __future__ import annotations

import contextlib
import cProfile
import importlib.util
import time
from collections.abc import Iterable, Iterator
from typing import Any

import fastprof_adapter
import harness
from harness import CaseResult, Options, Samples, Table

NONE = "none"
SECTIONS = "fastprof, sections"
FUNCTIONS = "fastprof, sections + functions"
CPROFILE = "cProfile"

_VOCABULARY = 256
_LENGTH = 48
_SKIP = 2  # steps at the start of a round that are not counted


def _build(torch: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(96, 4, 192, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(_VOCABULARY, 96),
        torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
        torch.nn.Linear(96, _VOCABULARY),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return model, torch.nn.CrossEntropyLoss(), optimizer


def _loader(torch: Any, steps: int, workers: int) -> Any:
    class Tokens(torch.utils.data.Dataset):  # type: ignore[misc, name-defined, unused-ignore]
        def __len__(self) -> int:
            return steps * 8

        def __getitem__(self, index: int) -> Any:
            values = [(index * 31 + i * i) % _VOCABULARY for i in range(_LENGTH + 1)]
            row = torch.tensor(values)
            return row[:-1], row[1:]

    return torch.utils.data.DataLoader(Tokens(), batch_size=8, num_workers=workers)


def _epoch(parts: tuple[Any, Any, Any], batches: Iterable[Any], profiler: Any) -> list[float]:
    """Train once over the batches; return the wall time of each step with its data loading."""
    model, criterion, optimizer = parts
    if fastprof_adapter.missing():
        section: Any = lambda name: contextlib.nullcontext()  # noqa: E731
    else:
        section = fastprof_adapter.profile_section()
    seconds = []
    begin = time.perf_counter()
    for inputs, targets in batches:
        with section("forward"):
            logits = model(inputs)
            loss = criterion(logits.flatten(0, 1), targets.flatten())
        with section("backward"):
            loss.backward()
        with section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if profiler is not None:
            profiler.step()
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
    return seconds


@contextlib.contextmanager
def _observed(name: str) -> Iterator[Any]:
    if name == CPROFILE:
        profile = cProfile.Profile()
        profile.enable()
        try:
            yield None
        finally:
            profile.disable()
    elif name == NONE:
        yield None
    else:
        with fastprof_adapter.training_profiler(functions=name == FUNCTIONS) as profiler:
            yield profiler


def _round(torch: Any, parts: tuple[Any, Any, Any], name: str, steps: int, workers: int) -> float:
    """Return the mean seconds of a step under one candidate."""
    with _observed(name) as profiler:
        batches = _loader(torch, steps + _SKIP, workers)
        if profiler is not None:
            batches = fastprof_adapter.loader(profiler, batches)
        seconds = _epoch(parts, batches, profiler)
    return sum(seconds[_SKIP:]) / len(seconds[_SKIP:])


def _instrumentation_us(options: Options) -> float:
    """Return the us that loader, three sections and ``step()`` add to an empty step.

    The difference between two steps of tens of milliseconds cannot show so little.
    """
    count = options.pick(20_000, 1_000)
    best = {False: float("inf"), True: float("inf")}
    section = fastprof_adapter.profile_section()
    for _ in range(options.round_count(7, 2)):
        begin = time.perf_counter()
        for _item in range(count):
            pass
        best[False] = min(best[False], time.perf_counter() - begin)
        with fastprof_adapter.training_profiler(functions=False) as profiler:
            begin = time.perf_counter()
            for _item in fastprof_adapter.loader(profiler, range(count)):
                with section("forward"):
                    pass
                with section("backward"):
                    pass
                with section("optimizer"):
                    pass
                profiler.step()
            best[True] = min(best[True], time.perf_counter() - begin)
    return (best[True] - best[False]) * 1e6 / count


def run(options: Options) -> CaseResult:
    """Train under each candidate in turn, in rounds, in one process."""
    if importlib.util.find_spec("torch") is None:
        table = Table("e2e", ("what", "ms"), (("torch", None),), ("torch: not installed",))
        return CaseResult("e2e", (table,), {"missing": "torch: not installed"})
    import torch

    torch.set_num_threads(1)
    names = [NONE, CPROFILE]
    if not fastprof_adapter.missing():
        names[1:1] = [SECTIONS, FUNCTIONS]
    rounds = options.round_count(7, 1)
    steps = options.pick(12, 2)
    parts = _build(torch)
    rows = []
    data: dict[str, Any] = {"rounds": rounds, "steps": steps}
    for workers in (0, 2):
        samples = {name: Samples() for name in names}
        harness.settle()
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].seconds.append(_round(torch, parts, name, steps, workers))
        base = samples[NONE]
        data[f"workers_{workers}"] = {
            name: {
                "step_ms": s.best * 1e3,
                "median_ms": s.median * 1e3,
                "ratio": s.best / base.best,
                "ratio_of_medians": s.median / base.median,
            }
            for name, s in samples.items()
        }
        rows += [
            (f"{workers} workers: {n}", s.best * 1e3, s.best / base.best, s.median / base.median)
            for n, s in samples.items()
        ]
    remarks = []
    if not fastprof_adapter.missing():
        cost = _instrumentation_us(options)
        data["instrumentation_us_per_step"] = cost
        remarks.append(
            f"Loader, three sections and step() alone: {cost:.2f} us per step, "
            f"{cost / 500:.4f} % of a 50 ms step (target <= 0.1 %)."
        )
    table = Table(
        "e2e: step of a small transformer on one CPU thread",
        ("candidate", "ms per step", "ratio", "of medians"),
        tuple(rows),
        tuple(remarks),
    )
    return CaseResult("e2e", (table,), data)
