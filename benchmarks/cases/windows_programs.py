"""Training programs for the case ``windows``: ``python windows_programs.py NAME STEPS [stated]``.

Each prints seconds per step after the first five, when the default operator window is over: CPU
time, wall time, and the cost that the current run states.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def mlp(torch: Any) -> Callable[[], None]:
    """Steps of about 0.5 ms."""
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    x, y = torch.randn(64, 32), torch.randint(0, 10, (64,))

    def step() -> None:
        criterion(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def transformer(torch: Any) -> Callable[[], None]:
    """Steps of about 20 ms with some thousand operators."""
    layer = torch.nn.TransformerEncoderLayer(96, 4, 192, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 48, 96)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lstm(torch: Any, batches: int = 1, length: int = 240) -> Callable[[], None]:
    """Steps of ``length`` calls of a cell; 240 calls are about 30,000 operators per batch."""
    cell = torch.nn.LSTMCell(8, 16)
    optimizer = torch.optim.SGD(cell.parameters(), 0.01)
    sequence = torch.randn(length, 4, 8)

    def step() -> None:
        for _ in range(batches):
            h = c = torch.zeros(4, 16)
            for x in sequence:
                h, c = cell(x, (h, c))
            h.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lstm_accumulated(torch: Any) -> Callable[[], None]:
    """Steps of about 600,000 operators."""
    return lstm(torch, 20)


#: Name -> the program and its steps in a full run.
PROGRAMS: dict[str, tuple[Callable[[Any], Callable[[], None]], int]] = {
    "mlp": (mlp, 6000),
    "transformer": (transformer, 300),
    "lstm": (lstm, 120),
    "lstm, accumulated": (lstm_accumulated, 16),
}
_FIRST = 5


def _stated() -> float:
    """Return the seconds that the current run has cost so far, by its own statement."""
    if sys.argv[3:] != ["stated"]:  # a report takes a second
        return 0.0
    from fastprof.session import current

    run: Any = current.running()
    if run is None:
        return 0.0
    run.recorder.pause_functions()  # the report's functions are not the program's
    try:
        return (run.report().overhead.estimated_ms or 0.0) / 1e3
    finally:
        run.recorder.resume_functions()


def main() -> None:
    import torch

    name, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = PROGRAMS[name][0](torch)
    began = wall = stated = 0.0
    for number in range(steps):
        if number == _FIRST:
            stated = _stated()
            began, wall = time.process_time(), time.perf_counter()
        step()
    began, wall = time.process_time() - began, time.perf_counter() - wall
    stated = _stated() - stated
    print("PER STEP", *(seconds / (steps - _FIRST) for seconds in (began, wall, stated)))


if __name__ == "__main__":
    main()
