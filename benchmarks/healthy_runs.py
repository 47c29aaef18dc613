"""False alarms of the search for changes over time, in simulated healthy runs.

    python benchmarks/healthy_runs.py [--hours N] [--seed N] [--noise NAME ...]

Per kind of noise and length of the runs it prints the changes that were found in N hours of
segments of 5 s: 0 is right.  The values are logarithms of step times.  All changes count here, also
those that have no line in a run, since all parts of a step changed by the same factor.  Nothing is
timed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fastprof.comparison.stats.changepoint import BEYOND, Watch

#: Segments of 5 s in an hour.
HOUR = 720
#: Standard deviation of the noise.
SD = 0.02

Noise = Callable[[random.Random, int], list[float]]


def alarms(values: Sequence[float], beyond: float = BEYOND) -> list[int]:
    """Return the places at which a change was found."""
    watch, found = Watch(beyond), []
    for i, value in enumerate(values):
        change = watch.add(value)
        if change is not None:
            found.append(i)
            watch.settle(change[1], change[0].drift)
    return found


def normal(drawn: random.Random, n: int, sd: float = SD) -> list[float]:
    return [drawn.gauss(0, sd) for _ in range(n)]


def _student(drawn: random.Random) -> float:
    squares = sum(drawn.gauss(0, 1) ** 2 for _ in range(3))
    return drawn.gauss(0, 1) / math.sqrt(squares / 3)


def heavy(drawn: random.Random, n: int) -> list[float]:
    """Return noise with Student's t of 3 degrees of freedom."""
    return [SD * _student(drawn) for _ in range(n)]


def endless(drawn: random.Random, n: int) -> list[float]:
    """Return Pareto's noise with exponent 2, whose variance is infinite."""
    return [SD * (drawn.paretovariate(2) - 1) for _ in range(n)]


def dependent(drawn: random.Random, n: int, phi: float = 0.8) -> list[float]:
    """Return first-order autoregressive noise with a standard deviation of 2 %."""

    def values() -> Iterator[float]:
        x = SD * drawn.gauss(0, 1)
        for _ in range(n):
            x = phi * x + SD * math.sqrt(1 - phi * phi) * drawn.gauss(0, 1)
            yield x

    return list(values())


def heavy_dependent(drawn: random.Random, n: int, phi: float = 0.8) -> list[float]:
    """Return the same, driven by Student's t of 3 degrees of freedom."""
    found, x = [], 0.0
    for _ in range(n):
        x = phi * x + SD * math.sqrt((1 - phi * phi) / 3) * _student(drawn)
        found.append(x)
    return found


def mixed(drawn: random.Random, n: int) -> list[float]:
    """Return slow noise with pauses: 3 % of the segments are up to 20 % longer."""
    return [
        x + drawn.gauss(0, SD / 2) + (0.2 * drawn.random() if drawn.random() < 0.03 else 0.0)
        for x in dependent(drawn, n)
    ]


def neighbour(drawn: random.Random, n: int, mean: float = 6.0) -> list[float]:
    """Return noise with a busy neighbour: for times of ``mean`` segments steps take 5 to 15 % more.

    Times with and without it are equally long on average, and each has its own length.
    """
    found: list[float] = []
    busy = drawn.random() < 0.5
    while len(found) < n:
        length = 1 + int(drawn.expovariate(1 / mean))
        level = drawn.uniform(0.05, 0.15) if busy else 0.0
        found += [level + drawn.gauss(0, SD / 2) for _ in range(length)]
        busy = not busy
    return found[:n]


NOISE: dict[str, Noise] = {
    "normal, 2 %": normal,
    "Student's t, 3 degrees of freedom": heavy,
    "Pareto, exponent 2": endless,
    "autocorrelation 0.5": partial(dependent, phi=0.5),
    "autocorrelation 0.8": dependent,
    "autocorrelation 0.8, Student's t": heavy_dependent,
    "autocorrelation 0.9": partial(dependent, phi=0.9),
    "autocorrelation 0.95": partial(dependent, phi=0.95),
    "autocorrelation 0.99": partial(dependent, phi=0.99),
    "autocorrelation 0.8 with pauses": mixed,
    "busy neighbour, half minutes": neighbour,
    "busy neighbour, minutes": partial(neighbour, mean=24.0),
}


def pauses(drawn: random.Random, n: int, mean_s: float = 600.0) -> list[float]:
    """Return the part of the time in long steps: pauses of 0.2 s and more, at any time."""
    return [
        math.log1p(0.2 * drawn.paretovariate(1.5) / 5) if drawn.random() < 5 / mean_s else 0.0
        for _ in range(n)
    ]


def saved(drawn: random.Random, n: int) -> list[float]:
    """Return the same for a run that saves every 40 to 5,000 s, which takes 1 to 60 s."""
    each, lasts = round(4 ** drawn.uniform(1.5, 5)), drawn.uniform(1, 60)
    return [math.log1p(lasts * drawn.gauss(1, 0.1) / 5) if i % each == 0 else 0.0 for i in range(n)]


#: Noise of long steps.
PAUSES: dict[str, Noise] = {
    "long steps: a pause in 10 min": pauses,
    "long steps: a pause in 30 s": partial(pauses, mean_s=30.0),
    "long steps: regular checkpoints": saved,
}
#: Hours of a run.
LENGTHS = (10.0, 1.0, 1 / 6)


def counted(noise: Noise, length: float, hours: float, seed: int) -> int:
    """Return the number of alarms in runs of ``length`` hours, of ``hours`` together."""
    found = 0
    for run in range(round(hours / length)):
        drawn = random.Random(f"{seed} {length:.3f} {run}")
        values = noise(drawn, round(length * HOUR))
        found += len(alarms(values, 0.0 if noise in PAUSES.values() else BEYOND))
    return found


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    kinds = NOISE | PAUSES
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--noise", nargs="*", default=list(kinds), choices=list(kinds))
    options = parser.parse_args(argv)
    write = sys.stdout.write
    write(
        f"{f'alarms in {options.hours:g} hours of runs of':40}{'10 h':>8}{'1 h':>8}{'10 min':>8}\n"
    )
    for name in options.noise:
        write(f"{name:40}")
        for length in LENGTHS:
            write(f"{counted(kinds[name], length, options.hours, options.seed):8}")
            sys.stdout.flush()
        write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
