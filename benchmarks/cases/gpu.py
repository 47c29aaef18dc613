"""Measures the cost of the GPU layer with the fake driver and libcupti of tests/gpu.

The device is simulated, so the results contain fastprof's own cost, not CUPTI's.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastprof_adapter
from harness import CaseResult, Options, Table, ratio

TARGET_RECORDS_PER_S = 20e6
_ROOT = Path(__file__).resolve().parent.parent.parent
_FAKE = _ROOT / "tests" / "gpu"


def _compile(folder: Path, *arguments: object) -> None:
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        *("-O2", "-std=gnu11", "-DNDEBUG"),
        *("-I", str(_ROOT / "csrc"), "-I", str(_FAKE / "fake")),
        *map(str, arguments),
    ]
    subprocess.run(command, check=True, cwd=folder)


def _compile_collector(folder: Path) -> list[Path]:
    """Compile the collector's own sources; return the objects."""
    objects = folder / "objects"
    objects.mkdir()
    sources = [
        *sorted((_ROOT / "csrc" / "core").glob("*.c")),
        *sorted((_ROOT / "csrc" / "gpu").glob("*.c")),
        _FAKE / "fake" / "fake_records.c",
    ]
    _compile(objects, "-c", *sources)
    return sorted(objects.glob("*.o"))


def _c_program(name: str, folder: Path, objects: Sequence[Path], *, quick: bool) -> dict[str, Any]:
    """Compile and run a program of ``c/``."""
    source = _ROOT / "benchmarks" / "c" / f"{name}.c"
    made = folder / name
    defined = ["-DQUICK"] if quick else []
    _compile(folder, *defined, source, *objects, "-o", made, "-pthread", "-ldl")
    done = subprocess.run([made], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _child(env: dict[str, str], *arguments: object) -> dict[str, Any]:
    script = str(Path(__file__).with_name("gpu_children.py"))
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _fake_env(folder: Path) -> dict[str, str]:
    sys.path.insert(0, str(_FAKE))
    import build_fake
    import fake_handles

    build_fake.build_module(folder)
    builders = (build_fake.build_cupti, build_fake.build_cuda, build_fake.build_nvml)
    gpu = fake_handles.FakeGpu(folder, *(build(folder) for build in builders))
    return gpu.env()


def _without_gpu() -> dict[str, str]:
    names = ("FASTPROF_CUPTI", "FASTPROF_CUDA_DRIVER", "FASTPROF_NVML")
    return {name: value for name, value in os.environ.items() if name not in names}


def _decode_table(data: dict[str, Any]) -> Table:
    rate = 1e9 / data["record_ns"]
    return Table(
        "gpu: the drain thread's work, ns per record or launch",
        ("what", "callbacks", "external"),
        (
            ("activity record", data["record_ns"], data["external_record_ns"]),
            ("launch", data["launch_event_ns"], data["external_call_ns"]),
            ("ageing, once a second", data["age_ns"], data["external_age_ns"]),
        ),
        (
            f"{rate / 1e6:.1f} M records/s per core; target {TARGET_RECORDS_PER_S / 1e6:.0f}.",
            "Without the library's iterator and without waiting for memory that it wrote.",
        ),
    )


def _program_table(callback: dict[str, Any], sections: dict[str, Any]) -> Table:
    rows: list[tuple[str, float | None, float | None]] = [
        ("launch, callback that returns at once", callback["at_once_ns"], 1.0),
        (
            "launch, the first 1000 of a call",
            callback["recorded_ns"],
            ratio(callback["recorded_ns"], callback["at_once_ns"]),
        ),
        (
            "launch, later: the driver's callbacks",
            callback["driver_ns"],
            ratio(callback["driver_ns"], callback["at_once_ns"]),
        ),
    ]
    names = {"off": "section, no collector", "callbacks": "section, callbacks"}
    names["external"] = "section, external correlation"
    rows += [
        (text, sections[name] * 1e9, ratio(sections[name], sections["off"]))
        for name, text in names.items()
    ]
    return Table(
        "gpu: what the program's thread pays, ns",
        ("what", "ns", "ratio"),
        tuple(rows),
        ("External correlation: with the fake's push and pop, which take a lock.",),
    )


def run(options: Options) -> CaseResult:
    """Run C programs and children one after another; inside each, candidates take turns."""
    why = fastprof_adapter.missing()
    if not why and not sys.platform.startswith("linux"):
        why = "the collector is for Linux"
    if why:
        table = Table("gpu", ("what", "ns"), (("fastprof", None),), (why,))
        return CaseResult("gpu", (table,), {"missing": why})
    rounds = options.round_count(20, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = _fake_env(folder)
        objects = _compile_collector(folder)

        def c_program(name: str) -> dict[str, Any]:
            return _c_program(name, folder, objects, quick=options.quick)

        data: dict[str, Any] = {
            "decode": c_program("bench_decode"),
            "callback": c_program("bench_callback"),
            "threads": c_program("bench_burst"),
            "sections": _child(env, "sections", rounds, options.pick(200_000, 20_000)),
            "burst": {
                tier: _child(env, "burst", tier, options.pick(1_000_000, 50_000))
                for tier in ("callbacks", "external")
            },
            "memory": _child(env, "memory", options.pick(10_000_000, 100_000)),
            "start": _child(_without_gpu(), "start", rounds * 5),
        }
    bursts = tuple(
        (tier, b["count"], b["launches_per_s"], b["count"] - b["kernels"], b["count"] - b["placed"])
        for tier, b in data["burst"].items()
    )
    start = data["start"]
    tables = (
        _decode_table(data["decode"]),
        _program_table(data["callback"], data["sections"]),
        Table(
            "gpu: launches as fast as the fake can",
            ("tier", "launches", "launches/s", "missing", "without a place"),
            bursts,
            ("Target: none missing at 1 M launches/s for a second.",),
        ),
        Table(
            f"gpu: 1 M launches/s from 4 threads for {options.pick(5, 1)} s, CUPTI being a stub",
            ("what", "value"),
            tuple(data["threads"].items()),
            ("Target: lost 0; peak_bytes is what the collector took.",),
        ),
        Table(
            "gpu: the rest",
            ("what", "value"),
            (
                (
                    f"bytes grown over {data['memory']['count']:,} launches",
                    data["memory"]["grown_bytes"],
                ),
                ("us to start and stop, gpu=False", start["gpu=False"] * 1e6),
                ('us to start and stop, gpu="auto"', start['gpu="auto"'] * 1e6),
            ),
            (f"On this machine the layer said: {start['why'] or 'nothing'}.",),
        ),
    )
    return CaseResult("gpu", tables, data)
