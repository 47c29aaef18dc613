"""Names that break programs that trust them (rows F43 and F44, promises P3 and P4)."""

from __future__ import annotations

from fastprof.snapshot import LoaderStats, Snapshot, StepRow, Steps
from fastprof.snapshot.gpu import GpuLine
from fastprof.snapshot.memory import MemorySection
from fastprof.snapshot.outliers import OutlierRow, OutlierSnapshot, OutlierStep
from unit.snapshots import (
    MS,
    Builder,
    Key,
    Node,
    activity,
    cost,
    gpu,
    h200,
    kernel,
    memory,
    section,
    timeline,
    waits,
)

NAMES = {
    "lone surrogate": "a\ud800b",
    "low surrogate": "\udcff",
    "NUL": "a\0b",
    "newline": "a\nb\r\nc",
    "empty": "",
    "1 MB": "x" * 1_000_000,
    "1 MB of letters that need six characters in JSON": "\u00e9" * 1_000_000,
    "bidi": "a\u202eb\u2066c\u200f",
    "ESC": "\x1b[31mred\x1b]0;title\x07",
    "C1 and DEL": "\x9b31m\x7f\x85",
    "line separators": "a\u2028b\u2029c",
    "semicolon": "a;b;c 12",
    "quotes": "\"'\\`${x}{{y}}",
    "markup": "[red]bold[/red]</ScRiPt><img src=x onerror=alert(1)>",
    "formula": "=cmd|' /C calc'!A0",
    "wide formula": "\uff1dcmd|' /C calc'!A0",
    "path": "../../etc/passwd",
    "prototype": "__proto__",
    "percent": "%s%n%(x)s{0}",
    "letters": "\u6570\u636e \u00e9 \u03b1",
    "wide": "\U0001f600" * 3,
}


def snapshot_with(name: str) -> Snapshot:
    """Return a small run in which everything has this name."""
    builder = Builder()
    work = Node(Key("python", name, 7, name, name), 10, 20 * MS)
    work.children = [
        Node(Key("c", "~", 0, f"<{name}>", name), 30, 5 * MS),
        Node(Key("type", "~", 0, name, name), 3, 1 * MS),
    ]
    main = Node(Key("python", "main.py", 1, "main", "main"), 1, 1 * MS)
    main.children = [Node(section(name), 10, 1 * MS, [work])]
    builder.thread(main, name=name)
    stats = builder.stats(name, [2 * MS] * 10)
    return builder.snapshot(
        meta={"python": "3.12.1", "platform": name, name: name},
        sections=(stats,),
        steps=Steps(10, 0, 30 * MS, 0.0, 3 * MS, 3 * MS, (3 * MS,) * 10, rows=(
            StepRow(stats.key, 10, 20 * MS),
        )),
        loaders=(LoaderStats(name, name, 10, {"data": (10, MS)}, 0.5),),
        calibration=cost(python=(50, 50)),
        counters={name: 3},
        notes=(f"note about {name}",),
        gpu=gpu(
            activity(0, 3 * MS, (0, 3)),
            reason=name,
            devices=(h200(name=name, whole=timeline(3 * MS, (stats.key, MS))),),
            kernels=(kernel(name, 3 * MS),),
            host=(waits((0, 3), syncs=1, blocked_ns=MS),),
            lines=(GpuLine(0, 3, name, 7, name, 1, MS),),
            pauses=((name, MS),),
            paused_ns=MS,
            counters={name: 4},
        ),
        outliers=OutlierSnapshot(0, 5, 9, 27 * MS, ((stats.key, 9 * MS),), 9, (
            OutlierStep(5, 0, 30 * MS, False, ((stats.key, 20 * MS),), 1, 30 * MS, False, (
                OutlierRow(3, 20 * MS, 1, 0, 9, 9), OutlierRow(4, 10 * MS, 1, 0, 9, 9),
            ), 0),
        )),
        memory=memory(sections=(MemorySection(name, 1, 2, 3, 4, 5),)),
    )  # fmt: skip
