"""GPU work by the stacks that launched it: for flame graphs by GPU time.

A stack is a thread, its open contexts, and the kernel or copy itself.  Inherited work has the stack
of the thread that it was inherited from, followed by the launching thread's own stack.  Work
without a thread has one frame that says so.  The weights add up to all GPU time exactly.
"""

from collections.abc import Mapping

from fastprof.errors import ExportError
from fastprof.export.depth import places
from fastprof.export.frames import MAX_LABEL, frame_label
from fastprof.names import printable_name
from fastprof.report.gpu import measured
from fastprof.report.gpu_tree import Site, where
from fastprof.report.model import Report
from fastprof.report.model_gpu import OTHER_KERNELS_NAME
from fastprof.report.writers import require_tree
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import (
    COPY_D2D,
    COPY_D2H,
    COPY_H2D,
    COPY_H2H,
    COPY_OTHER,
    COPY_P2P,
    HOW_OTHER,
    MEMSET,
    OTHER_KERNELS,
    GpuSnapshot,
)

OTHER_THREADS = "(other threads)"
UNATTRIBUTED = "(unattributed)"

_LEAVES = {
    COPY_H2D: "(copy host to device)",
    COPY_D2H: "(copy device to host)",
    COPY_D2D: "(copy within a device)",
    COPY_P2P: "(copy between devices)",
    COPY_H2H: "(copy host to host)",
    COPY_OTHER: "(copy)",
    MEMSET: "(memset)",
    OTHER_KERNELS: OTHER_KERNELS_NAME,
}


def gpu_stacks(
    report: Report, what: str, names: Mapping[str, str] | None = None
) -> list[tuple[list[str], int]]:
    """Return (frames from the thread to the kernel, ns), with equal stacks added up.

    Args:
        what: the name of the output, for the error.
        names: other names of kernels.

    Raises:
        ExportError: the report has no contexts or no GPU figures.
    """
    require_tree(report, what)
    snapshot = report.view
    gpu = measured(snapshot)
    if gpu is None:
        raise ExportError(
            f"{what} needs GPU time, and this recording has none; if a GPU was used, the GPU line "
            f"of the report gives the reason"
        )
    paths = _Paths(snapshot)
    found: dict[tuple[str, Site | None, Site | None, str], int] = {}
    for row in gpu.activity:
        site, own = where(row)
        nobody = OTHER_THREADS if row.how == HOW_OTHER else UNATTRIBUTED
        key = (nobody if site is None else "", site, own, _leaf(gpu, row.what, names))
        found[key] = found.get(key, 0) + row.sum_ns
    stacks = []
    for (nobody, site, own, leaf), ns in found.items():
        frames = [nobody] if site is None else paths.of(site)
        if own is not None:
            frames = [*frames, *paths.of(own)[1:]]
        stacks.append(([*frames, leaf], ns))
    return stacks


def _leaf(gpu: GpuSnapshot, what: int, names: Mapping[str, str] | None) -> str:
    if what < 0:
        return _LEAVES[what]
    name = gpu.kernels[what].name
    return printable_name(name if names is None else names[name], MAX_LABEL)


class _Paths:
    """Frames from a thread to a node; finds the places of a thread's nodes once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._labels = [frame_label(key) for key in snapshot.keys]
        self._places: dict[int, list[int]] = {}

    def of(self, site: Site) -> list[str]:
        thread, node = site
        tree = self._snapshot.threads[thread]
        if thread not in self._places:
            self._places[thread] = places(tree.nodes.parent)[1]
        node = self._places[thread][node]
        frames = []
        while node > 0:
            frames.append(self._labels[tree.nodes.key[node]])
            node = tree.nodes.parent[node]
        frames.append(printable_name(tree.name or f"thread {tree.ident}", MAX_LABEL))
        return frames[::-1]
