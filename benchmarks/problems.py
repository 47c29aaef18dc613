"""Measures the cost of the ten planted problems: each script's step time before and after its fix.

    python benchmarks/problems.py [NAME ...] [--rounds 3] [--json FILE]

Only sections and steps are recorded, so the times are nearly those of the unprofiled scripts;
the two versions take turns, and the fastest run of each counts.  Needs torch.  The script with a
fake GPU needs a C compiler; it chooses the fake's times itself, so they measure nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Table, machine, render

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "examples" / "problems").glob("*.py"))
FAKE = ROOT / "tests" / "problems" / "host_device_pingpong.py"
#: Number of steps that do the work of one step of the healthy version.
STEPS = {"tiny_batches": 256}


def one(script: str, arguments: list[str]) -> None:
    """Run a script here; the last line is its mean step time in ms."""
    import fastprof
    from fastprof.integrations import torch_loop

    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    with torch_loop.attach(functions=False, gpu=False) as loop:
        runpy.run_path(script, run_name="__main__")
    report: fastprof.Report = loop.report()
    print(f"\n{report.steps.mean_ms}")


def step_ms(script: Path, arguments: list[str], env: dict[str, str]) -> float:
    """Return the mean step time of one run in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", str(script), *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=folder, env=env
        )
    if done.returncode != 0:
        sys.exit(f"{script.name} failed:\n{done.stderr}")
    return float(done.stdout.splitlines()[-1])


def fake_gpu(folder: Path) -> dict[str, str]:
    """Build the fake GPU; return the variables that its programs need."""
    builder = str(ROOT / "tests" / "gpu" / "build_fake.py")
    subprocess.run([sys.executable, builder, str(folder)], check=True, capture_output=True)
    path = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "FASTPROF_CUPTI": str(folder / "libcupti.so"),
        "FASTPROF_CUDA_DRIVER": str(folder / "libcuda.so.1"),
    }


def rule_of(script: Path) -> str:
    """Return the rule that a script names in its first lines."""
    lines = script.read_text(encoding="utf-8").splitlines()
    return next(line[6:].rstrip(".") for line in lines if line.startswith("Rule: "))


def compare(scripts: list[Path], rounds: int) -> list[tuple[str, str, float, float]]:
    """Return name, rule and the step times before and after of each script."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            env = {**os.environ, **(fake_gpu(Path(folder)) if script == FAKE else {})}
            before, after = [], []
            for _ in range(rounds):
                before.append(step_ms(script, [], env))
                after.append(step_ms(script, ["--healthy"], env))
            scale = STEPS.get(script.stem, 1)
            rows.append((script.stem, rule_of(script), scale * min(before), min(after)))
    return rows


def main() -> None:
    scripts = {path.stem: path for path in [*SCRIPTS, FAKE]}
    parser = argparse.ArgumentParser(description="The ten problems, before and after.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(scripts))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write all numbers there")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in scripts]
    if unknown or asked.rounds < 1:
        parser.error(f"no script {unknown[0]!r}" if unknown else "--rounds must be at least 1")
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    rows = compare([scripts[name] for name in asked.names or scripts], asked.rounds)
    table = Table(
        "ms per step",
        ("script", "rule", "before", "after", "saved %"),
        tuple((n, r, b, a, 100 * (1 - a / b)) for n, r, b, a in rows),
        ("tiny_batches: ms per 512 samples", "host_device_pingpong: a fake GPU's times"),
    )
    print("\n" + render(table))
    if asked.json:
        Path(asked.json).write_text(json.dumps({"machine": about, "rows": rows}), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], sys.argv[3:])
    else:
        main()
