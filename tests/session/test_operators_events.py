"""Sums of raw events equal torch's own sums."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from fastprof.session.operators.events import WindowEvents

torch = pytest.importorskip("torch")

FIGURES = (
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "device_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "flops",
)


def compare(made: Any, wanted: Any) -> None:
    assert [(e.key, str(e.input_shapes)) for e in made] == [
        (e.key, str(e.input_shapes)) for e in wanted
    ]
    for row, other in zip(made, wanted, strict=True):
        assert row.device_type == other.device_type
        assert row.is_user_annotation == other.is_user_annotation
        for name in FIGURES:
            # torch adds up microseconds as floats.
            assert getattr(row, name) == pytest.approx(getattr(other, name), abs=1e-3), (
                row.key,
                name,
            )
    lengths = [len(table.table(row_limit=-1).splitlines()) for table in (made, wanted)]
    assert lengths[0] == lengths[1]


def work() -> list[Any]:
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters())
    with torch.profiler.record_function("outer"), torch.profiler.record_function("outer"):
        model(torch.randn(2, 4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    thread = threading.Thread(target=lambda: torch.mm(torch.ones(8, 8), torch.ones(8, 8)))
    thread.start()
    thread.join()
    return [torch.ones(100, 100)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"record_shapes": True},
        {"profile_memory": True},
        {"with_flops": True},
        {"with_stack": True},
        {"with_modules": True},
        {"record_shapes": True, "profile_memory": True, "with_flops": True, "with_stack": True},
    ],
)
def test_sums_of_a_real_profile_are_those_of_torch(options: dict[str, bool]) -> None:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)
    with profile:
        kept = work()
        del kept[:]
    events = WindowEvents(profile)
    assert events.count == len(profile.profiler.kineto_results.events())
    for by_shape in (False, True):
        compare(
            events.averages(by_shape=by_shape),
            profile.key_averages(group_by_input_shape=by_shape),
        )


class Event:
    """An event like kineto's; missing fields are empty."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        nothing = [] if name in ("shapes", "stack", "concrete_inputs") else 0
        value = self._values.get(name, "" if name.endswith("name") else nothing)
        return lambda: value


def device_events(seed: int) -> list[Event]:
    """Return nested operators in two threads, with kernels, copies and memory."""
    rng = random.Random(seed)
    cpu, cuda = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    events: list[Event] = []

    def operators(thread: int, start: int, end: int, depth: int) -> None:
        now = start
        while now < end - 50:
            stop = min(end, now + rng.randrange(20, 400))
            ident = len(events) + 1
            common = {"start_thread_id": thread, "device_type": cpu}
            name = f"aten::op{rng.randrange(3)}"
            events.append(
                Event(
                    name=name, start_ns=now, end_ns=stop, correlation_id=ident,
                    end_thread_id=thread if rng.random() < 0.95 else 9,
                    is_user_annotation=rng.random() < 0.1, shapes=[[rng.randrange(2)]],
                    flops=rng.randrange(9), **common,
                )
            )  # fmt: skip
            if rng.random() < 0.5:
                at = rng.randrange(now, stop)
                events.append(
                    Event(
                        name="cudaLaunchKernel", start_ns=at, end_ns=min(stop, at + 5),
                        linked_correlation_id=ident, correlation_id=10_000 + ident,
                        start_thread_id=77, end_thread_id=77, device_type=cpu,
                    )
                )  # fmt: skip
                for _ in range(rng.randrange(3)):
                    events.append(
                        Event(
                            name=f"kernel{rng.randrange(2)}", start_ns=at + 100, end_ns=at + 300,
                            linked_correlation_id=ident, device_type=cuda,
                        )
                    )  # fmt: skip
            if rng.random() < 0.4:
                where = rng.choice((cpu, cuda))
                at = rng.randrange(now, stop)
                events.append(
                    Event(
                        name="[memory]", start_ns=at, end_ns=at, nbytes=rng.randrange(-99, 99),
                        start_thread_id=thread, device_type=where,
                    )
                )  # fmt: skip
            if depth < 4 and rng.random() < 0.7:
                operators(thread, now + rng.randrange(3), stop, depth + 1)
            now = stop + rng.randrange(30)

    for thread in (1, 2):
        operators(thread, 0, 5000, 0)
    for name in ("[memory]", "[OutOfMemory]"):
        events.append(
            Event(
                name=name, start_ns=10_000, end_ns=10_000, nbytes=7, start_thread_id=1,
                device_type=cuda,
            )
        )  # fmt: skip
    return events


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_a_device_are_those_of_torch(seed: int) -> None:
    from torch.autograd.profiler_util import EventList

    raw = device_events(seed)
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True, profile_memory=True
    )
    with profile:
        pass

    class Results:
        def events(self) -> list[Event]:
            return raw

        def trace_start_ns(self) -> int:
            return 0

    inner = profile.profiler
    inner.use_device, inner.kineto_results = "cuda", Results()
    made = WindowEvents(profile)
    wanted = EventList(
        inner._parse_kineto_results(Results()),
        use_device="cuda",
        profile_memory=True,
        with_flops=True,
    )
    wanted._build_tree()
    for by_shape in (False, True):
        compare(made.averages(by_shape=by_shape), wanted.key_averages(by_shape))


def test_a_torch_that_is_not_known_sums_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with profile:
        torch.ones(3)
    profile.profiler.profiler_kind = torch.autograd.ProfilerState.KINETO_GPU_FALLBACK
    assert [e.key for e in WindowEvents(profile).averages()] == [
        e.key for e in profile.key_averages()
    ]


def test_a_window_without_an_operator_has_no_rows() -> None:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with profile:
        pass
    assert len(WindowEvents(profile).averages()) == len(profile.key_averages())
