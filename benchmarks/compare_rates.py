"""Counts wrong results of ``fastprof compare``: on simulated steps and on a real loop.

    python benchmarks/compare_rates.py simulated [--pairs 1000] [--jobs 2]
    python benchmarks/compare_rates.py few [--pairs 1000] [--jobs 2]
    python benchmarks/compare_rates.py real [--runs 40] [--steps 300] [--folder DIR]

``simulated`` compares pairs of series with known means.  Columns: how often steps were not tested;
of the tested ones, how often equal means were called different, and how often the intervals of the
mean and of the median contained the true difference; how often a change of the size called
detectable was found.  All at level 0.95 and without allowance for noise between runs.

``few`` compares short runs whose steps may depend on each other for long, without their warm-up.
First pairs of equal programs: of all pairs, how many were called different by the bootstrap, and by
the test for few steps where the bootstrap needs more.  Then programs with the noise of a real loop
and a known change: how many were found.

``real`` runs ``fastprof demo`` repeatedly (or reads the runs in DIR), compares runs of the same
program with each other, one against the next and four against four, and counts reported changes.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

import fastprof
from fastprof.comparison.stats.significance import Series, decide, effect_of_steps
from fastprof.comparison.stats.transient import transient

LEVEL = 0.95
SHIFT = 0.05
#: Half the draws of real comparisons, to save time.
DRAWS = 1000
STEPS = (100, 400, 4096)


def autoregressive(phi: float) -> Callable[[random.Random, int], list[float]]:
    """Steps of 100 ms; each deviation is ``phi`` of the last one plus noise of 1 ms."""

    def make(source: random.Random, n: int) -> list[float]:
        x = source.gauss(0, 1 / math.sqrt(1 - phi * phi))
        out = []
        for _ in range(n):
            out.append(100 + x)
            x = phi * x + source.gauss(0, 1)
        return out

    return make


def pareto(source: random.Random, n: int) -> list[float]:
    """Heavy tail: of Pareto's distribution with exponent 2.5, whose third moment is infinite."""
    return [100 + source.paretovariate(2.5) for _ in range(n)]


def log_normal(source: random.Random, n: int) -> list[float]:
    """Skewed."""
    return [100 + math.exp(source.gauss(0, 1)) for _ in range(n)]


def checkpoints(source: random.Random, n: int) -> list[float]:
    """Every 50th step takes 1.5 times as long."""
    phase = source.randrange(50)
    return [100 + source.gauss(0, 1) + (50 if (i + phase) % 50 == 0 else 0) for i in range(n)]


def stalls(source: random.Random, n: int) -> list[float]:
    """One random step in 50 takes 1.5 times as long."""
    return [100 + source.gauss(0, 1) + (50 if source.random() < 0.02 else 0) for _ in range(n)]


def drift(source: random.Random, n: int) -> list[float]:
    """3 % slower from the first step to the last."""
    return [100 + source.gauss(0, 1) + 3 * (i / n - 0.5) for i in range(n)]


SERIES: dict[str, Callable[[random.Random, int], list[float]]] = {
    "independent": autoregressive(0.0),
    "AR(1), 0.3": autoregressive(0.3),
    "AR(1), 0.6": autoregressive(0.6),
    "AR(1), 0.9": autoregressive(0.9),
    "AR(1), -0.5": autoregressive(-0.5),
    "Pareto 2.5": pareto,
    "log-normal": log_normal,
    "checkpoints": checkpoints,
    "stalls": stalls,
    "drift": drift,
}


def with_noise(phi: float, noise: float) -> Callable[[random.Random, int], list[float]]:
    """Autoregressive steps, hidden by independent noise of ``noise`` times their deviation."""
    slow = autoregressive(phi)

    def make(source: random.Random, n: int) -> list[float]:
        deviation = noise / math.sqrt(1 - phi * phi)
        return [v + source.gauss(0, deviation) for v in slow(source, n)]

    return make


def alternating(source: random.Random, n: int) -> list[float]:
    """Every second step takes 1.2 times as long."""
    phase = source.randrange(2)
    return [100 + source.gauss(0, 1) + 20 * ((i + phase) % 2) for i in range(n)]


def waves(source: random.Random, n: int) -> list[float]:
    """Periods of 40 steps."""
    phase = source.uniform(0, 40)
    wave = (3 * math.sin(2 * math.pi * (i + phase) / 40) for i in range(n))
    return [100 + source.gauss(0, 1) + w for w in wave]


def warm_up(source: random.Random, n: int) -> list[float]:
    """Up to 20 % slower at the beginning, for up to 0.4 of the steps."""
    length, size = n * source.uniform(0.05, 0.4), source.uniform(0, 20)
    return [100 + source.gauss(0, 1) + size * math.exp(-i / length) for i in range(n)]


def long_stall(source: random.Random, n: int) -> list[float]:
    """In every second run one stall of up to 0.4 of the steps, which take 1.8 times as long."""
    values = [100 + source.gauss(0, 1) for _ in range(n)]
    if source.random() < 0.5:
        length = max(1, round(n * source.uniform(0.03, 0.4)))
        first = source.randrange(n - length + 1)
        values[first : first + length] = [1.8 * v for v in values[first : first + length]]
    return values


def own_drift(source: random.Random, n: int) -> list[float]:
    """Each run becomes faster or slower, by 3 % typically, from the same beginning."""
    slope = source.gauss(0, 3)
    return [100 + source.gauss(0, 1) + slope * i / n for i in range(n)]


FEW: dict[str, Callable[[random.Random, int], list[float]]] = {
    **{f"AR(1), {phi}": autoregressive(phi) for phi in (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, -0.5)},
    "alternating": alternating,
    "waves": waves,
    "checkpoints": checkpoints,
    "Pareto 2.5": pareto,
    "log-normal": log_normal,
    "stalls": stalls,
    "long stall": long_stall,
    "drift": drift,
    "warm-up": warm_up,
    "AR(1), 0.9 + noise": with_noise(0.9, 1),
    "AR(1), 0.95 + noise": with_noise(0.95, 1),
    "AR(1), 0.98 + noise": with_noise(0.98, 1),
    "drift of its own": own_drift,
}
FEW_STEPS = (24, 32, 40, 64, 100, 145, 200)
#: Change -> numbers of steps for which its power is measured.
CHANGES = {-0.9: (24, 40, 64, 145), -0.5: (40, 64, 145), -0.3: (40, 64, 145, 200), 2.0: (40, 145)}


def shared(source: random.Random, n: int) -> list[float]:
    """The noise of a loop on a shared machine: 25 %, a third of the variance slow (0.9)."""
    slow = autoregressive(0.9)(source, n)
    return [20 * math.exp(0.06 * (v - 100) + source.gauss(0, 0.2)) for v in slow]


def settled(values: Sequence[float]) -> Sequence[float] | None:
    left_out = transient(values)
    return None if left_out is None else values[left_out:]


def simulate_few(job: tuple[str, int, int]) -> list[int]:
    """Count pairs: called different by the bootstrap, by the test for few steps, not tested."""
    name, n, pairs = job
    source = random.Random(f"few {name} {n}")
    counts = [0] * 3
    for _ in range(pairs):
        before, after = settled(FEW[name](source, n)), settled(FEW[name](source, n))
        row = None if before is None or after is None else effect(before, after)
        if row is None or row.p is None:
            counts[2] += 1
        else:
            counts[row.wanted is not None] += row.significant
    return counts


def simulate_change(job: tuple[float, int, int]) -> list[int]:
    """Count pairs: found, of these by the bootstrap, not tested."""
    change, n, pairs = job
    source = random.Random(f"change {change} {n}")
    counts = [0] * 3
    for _ in range(pairs):
        before = settled(shared(source, n))
        after = settled([(1 + change) * ms for ms in shared(source, n)])
        row = None if before is None or after is None else effect(before, after, noise=0.02)
        if row is None or row.p is None:
            counts[2] += 1
            continue
        found = row.significant and (row.difference_ms > 0) == (change > 0)
        counts[0] += found
        counts[1] += found and row.wanted is None
    return counts


def few(pairs: int, jobs: int, numbers: Sequence[int]) -> None:
    """Print both tables, in Markdown."""
    print(
        "Called different, of all pairs: by the bootstrap + by the one for few steps (not tested)\n"
    )
    print("| steps |", " | ".join(map(str, numbers)), "|\n|:--|" + "--:|" * len(numbers))
    with ProcessPoolExecutor(jobs) as pool:
        work = [(name, n, pairs) for name in FEW for n in numbers]
        found = pool.map(simulate_few, work)
        for name in FEW:
            cells = [
                f"{many / pairs:.1%} + {short / pairs:.1%} ({left / pairs:.0%})"
                for many, short, left in (next(found) for _ in numbers)
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print("\nFound (of these by the bootstrap)\n")
        print("| change | steps | found | not tested |\n|--:|--:|--:|--:|")
        changes = [(change, n, pairs) for change, of in CHANGES.items() for n in of]
        for (change, n, _), (all_, many, left) in zip(
            changes, pool.map(simulate_change, changes), strict=True
        ):
            shares = f"{all_ / pairs:.1%} ({many / pairs:.1%}) | {left / pairs:.1%}"
            print(f"| {change:+.0%} | {n} | {shares} |", flush=True)


def simulate(job: tuple[str, int, int]) -> tuple[str, int, list[int]]:
    """Count: tested, called different, mean covered, medians known, covered, tried, found."""
    name, n, pairs = job
    make = SERIES[name]
    source = random.Random(f"{name} {n}")
    counts = [0] * 7
    for i in range(pairs):
        before, after = make(source, n), make(source, n)
        equal = effect(before, after)
        if equal.p is None:
            continue
        counts[0] += 1
        counts[1] += equal.significant
        moved = effect(before, [v + 100 * SHIFT for v in after])
        counts[2] += moved.low_ms <= 100 * SHIFT <= moved.high_ms
        if moved.median is not None and moved.median.low_ms is not None:
            counts[3] += 1
            counts[4] += moved.median.low_ms <= 100 * SHIFT <= moved.median.high_ms
        if i % 4 == 0:
            counts[5] += 1
            larger = [v + equal.detectable_ms for v in after]
            counts[6] += effect(before, larger).significant
    return name, n, counts


def effect(before: Sequence[float], after: Sequence[float], noise: float = 0.0):
    """Return the row of a comparison of two series, decided alone."""
    row = effect_of_steps(
        "step", "step", Series(before, 0), Series(after, 0), level=LEVEL, noise=noise, draws=DRAWS
    )
    return decide([row], level=LEVEL)[0]


def many_rows(pairs: int) -> float:
    """Return how often one of ten equal rows is called different."""
    source = random.Random("rows")
    wrong = 0
    for _ in range(pairs):
        rows = [
            effect_of_steps(
                str(i), "section", Series(autoregressive(0.3)(source, 200), 0),
                Series(autoregressive(0.3)(source, 200), 0), level=LEVEL, noise=0.0,
            )
            for i in range(10)
        ]  # fmt: skip
        wrong += any(row.significant for row in decide(rows, level=LEVEL))
    return wrong / pairs


def simulated(pairs: int, jobs: int, numbers: Sequence[int]) -> None:
    """Print the table, in Markdown."""
    work = [(name, n, pairs if n < 1000 else pairs // 8) for n in numbers for name in SERIES]
    print("| steps | n | pairs | not tested | called different | mean covered | median covered "
          "| detectable found |\n|:--|--:|--:|--:|--:|--:|--:|--:|")  # fmt: skip
    with ProcessPoolExecutor(jobs) as pool:
        for job, (name, n, counts) in zip(work, pool.map(simulate, work), strict=True):
            tested, wrong, covered, medians, covered_median, tried, found = counts
            cells = [
                share(job[2] - tested, job[2]), share(wrong, tested), share(covered, tested),
                share(covered_median, medians), share(found, tried),
            ]  # fmt: skip
            print(f"| {name} | {n} | {job[2]} | {' | '.join(cells)} |", flush=True)
    print(f"\nAny of ten equal rows called different: {many_rows(pairs // 2):.1%}")


def share(part: int, whole: int) -> str:
    """Return ``part`` of ``whole`` in percent; if there are too few, both numbers."""
    return f"{part / whole:.1%}" if whole >= 50 else f"{part} of {whole}"


def record(folder: Path, runs: int, steps: int) -> None:
    """Save ``runs`` runs of the demo's loop."""
    folder.mkdir(parents=True, exist_ok=True)
    code = "import sys; from fastprof.cli import main; sys.exit(main(sys.argv[1:]))"
    for i in range(runs):
        path = folder / f"run{i:03}.fprof"
        args = ["demo", "--backend", "pure", "--steps", str(steps), "--save", str(path)]
        subprocess.run(
            [sys.executable, "-c", code, *args], check=True, capture_output=True, timeout=600
        )


def real(folder: Path, runs: int, steps: int) -> None:
    """Compare runs of one program with each other."""
    if not any(folder.glob("*.fprof")):
        record(folder, runs, steps)
    reports = [fastprof.load(path) for path in sorted(folder.glob("*.fprof"))]
    means = [report.steps.mean_ms or 0.0 for report in reports]
    print(f"{len(reports)} runs, mean step {min(means):.2f} to {max(means):.2f} ms")
    tally("one against the next", [fastprof.compare(a, b) for a, b in pairwise(reports)])
    # Eight neighbouring runs, taken in turns, so that a temporary load affects both sides.
    turns = [
        fastprof.compare(reports[i : i + 8 : 2], reports[i + 1 : i + 8 : 2])
        for i in range(len(reports) - 7)
    ]
    tally("four against four, taken in turns", turns)


def tally(name: str, comparisons: Sequence[fastprof.Comparison]) -> None:
    """Print how many comparisons of equal programs claim a change."""
    steps = [c.step for c in comparisons if c.step is not None]
    tested = [step for step in steps if step.p is not None]
    wrong = sum(step.significant for step in tested)
    anything = sum(c.changed for c in comparisons)
    print(
        f"{name}: {len(comparisons)} comparisons, step tested in {len(tested)}, called different "
        f"in {wrong}; any row called different in {anything} ({share(anything, len(comparisons))})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Error rates of fastprof compare.")
    parser.add_argument("what", choices=("simulated", "few", "real"))
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("-n", type=int, nargs="+", help="steps per run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=Path("compare-runs"))
    options = parser.parse_args()
    if options.what == "simulated":
        simulated(options.pairs, options.jobs, options.n or STEPS)
    elif options.what == "few":
        few(options.pairs, options.jobs, options.n or FEW_STEPS)
    else:
        real(options.folder, options.runs, options.steps)


if __name__ == "__main__":
    main()
