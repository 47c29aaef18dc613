"""Measures what observing torch.compile costs a step that does not compile.

    python benchmarks/compiling.py --steps 3000

A compiled network is trained under a Profiler.  The run's part works after some of its steps: these
calls are counted, as are its reads of torch's metrics.  Blocks of further calls, which are timed,
alternate with those of steps; of both the fastest third counts: other programs can only add.
"""

import argparse
import platform
import time
from collections.abc import Callable
from statistics import median
from unittest import mock

import fastprof
from fastprof.session.compiling.part import Compilations
from fastprof.session.compiling.torch_compiler import TorchCompiler

#: Steps, and calls of the part, of a block.
_STEPS, _CALLS = 30, 1000


def timed_us(action: Callable[[], object], times: int) -> float:
    """Return the mean time of one of ``times`` calls, in microseconds."""
    began = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - began) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    blocks = max(3, parser.parse_args().steps // _STEPS)

    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(2)))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.ones(4, 64)

    parts: list[Compilations] = []  # one per call of the part
    reads: list[None] = []
    at_step, metrics = Compilations.at_step, TorchCompiler._metrics
    with (
        mock.patch.object(
            Compilations, "at_step", lambda self, n: parts.append(self) or at_step(self, n)
        ),
        mock.patch.object(
            TorchCompiler, "_metrics", lambda self: reads.append(None) or metrics(self)
        ),
        fastprof.Profiler(functions=False, gpu=False) as profiler,
    ):

        def step() -> None:
            compiled(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()

        while not parts:
            step()
        part = parts[-1]
        parts.clear()
        reads.clear()
        steps, calls = [], []
        for _ in range(blocks):
            steps.append(timed_us(step, _STEPS))
            calls.append(timed_us(lambda: at_step(part, 0), _CALLS))
        count, read = len(parts), len(reads)
    step_us, call_us = (median(sorted(times)[: blocks // 3]) for times in (steps, calls))
    share = call_us * count / (step_us * blocks * _STEPS)
    print(f"Python {platform.python_version()}, torch {torch.__version__}")
    print(f"{blocks * _STEPS} steps of {step_us:.0f} us: {count} calls of {call_us:.2f} us,")
    print(f"{100 * share:.4f} % of a step; {read} reads of torch's metrics")


if __name__ == "__main__":
    main()
