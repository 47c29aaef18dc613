"""``fastprof quickcheck``: times the four phases of a small network's step."""

from collections.abc import Sequence
from typing import Any

from fastprof.cli.exit_hooks import complain
from fastprof.cli.output import write_text
from fastprof.cli.parsing import Parser
from fastprof.clock import time
from fastprof.report.figures import number, plural, with_percent
from fastprof.report.targets import PHASES

RUNS = 100
_WARM_UP = 5


def run(argv: Sequence[str]) -> int:
    """Print the mean of each phase over 100 runs; 1 without torch, 2 for bad arguments."""
    parser = Parser(
        prog="fastprof quickcheck",
        description="Train a small network and print the times of the four phases of a step.",
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="default: 100")
    parser.add_argument("--device", default=None, help="default: cuda if there is one, else cpu")
    options = parser.parse_args(argv)
    if options.runs < 1:
        complain(f"--runs is {options.runs}, expected 1 or more")
        return 2
    try:
        import torch
    except ImportError as error:
        complain(
            f"quickcheck needs PyTorch, which cannot be imported ({error}): install torch, or "
            "use `fastprof demo`, which trains without it"
        )
        return 1
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        means = measure(torch, device, options.runs)
    except (RuntimeError, AssertionError) as error:  # no such device, or its memory is full
        why = (str(error) or type(error).__name__).rstrip(".")
        complain(f"device {device!r} cannot be used: {why}; try --device cpu")
        return 2
    write_text("\n".join(lines(means, device, options.runs)) + "\n")
    return 0


def lines(means: Sequence[float], device: str, runs: int) -> list[str]:
    """Return the result: four lines of times, and the usual shares."""
    total = sum(means) or 1.0
    times = [f"{p.title}: {number(ms, 2)} ms" for p, ms in zip(PHASES, means, strict=True)]
    shares = [
        f"  {phase.title}: {with_percent(ms / total)} (expected {phase.usual.text} %)"
        for phase, ms in zip(PHASES, means, strict=True)
    ]
    return [*times, "", f"Shares on {device}, mean of {plural(runs, 'run')}:", *shares]


def measure(torch: Any, device: str, runs: int) -> list[float]:
    """Return the mean of each phase in ms over ``runs`` runs, each with a new graph."""
    where = torch.device(device)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    ).to(where)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps = _WARM_UP + runs
    inputs, targets = torch.randn(steps * 64, 256), torch.randint(10, (steps * 64,))
    dataset = torch.utils.data.TensorDataset(inputs, targets)
    batches = iter(torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True))

    def now() -> int:
        # Kernels still run after their launch has returned: each phase waits for its own.
        if where.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    sums = [0] * len(PHASES)
    for step in range(steps):
        stamps = [time.perf_counter_ns()]
        x, y = (tensor.to(where) for tensor in next(batches))
        stamps.append(now())
        loss = torch.nn.functional.cross_entropy(model(x), y)
        stamps.append(now())
        loss.backward()
        stamps.append(now())
        optimizer.step()
        optimizer.zero_grad()
        stamps.append(now())
        if step >= _WARM_UP:
            sums = [s + b - a for s, a, b in zip(sums, stamps, stamps[1:], strict=False)]
    return [total / runs / 1e6 for total in sums]
