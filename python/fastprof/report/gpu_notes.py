"""Notes that explain the GPU figures."""

from collections.abc import Iterator

from fastprof.report.figures import counted, duration
from fastprof.report.model_gpu import GpuReport
from fastprof.snapshot import Snapshot
from fastprof.snapshot.gpu import GpuSnapshot

#: Counters of normal work, not of faults.
_WORK = frozenset(
    {"records", "kernels", "copies", "memsets", "launches", "syncs", "graph_launches"}
)

#: Fault -> its effect on the figures.
_FAULTS = {
    "dropped": "GPU records that CUPTI lost (their time is missing)",
    "discarded": "Buffers of GPU records thrown away because none was free (their time is missing)",
    "incomplete": "GPU activities still running at the end, left out",
    "zero_time": "GPU records without a time, left out (CUPTI had no memory on the device)",
    "whole_graphs": "CUDA graphs recorded as a whole, not by kernel (CUPTI had no memory on the "
    "device for their kernels' times)",
    "invalid": "GPU records that end before they begin, left out",
    "unknown_kind": "GPU records of a kind that was not requested, ignored",
    "truncated": "Buffers that ended inside a GPU record (the rest of each is missing)",
    "late": "GPU activities that came too late for the busy and idle times (all others have them)",
    "stale": "GPU records from before the recording, left out",
    "graph_ids": "Kernels of CUDA graphs without a place: this CUPTI (before CUDA 13.1 update 1) "
    "gives wrong ids after the first recording of a process",
    "unheard": "Flush periods at the end without any GPU record, while the program ran: it used no "
    "GPU, or another profiler took the records",
    "misdated": "GPU records with the times of another profiler's clock, left out",
    "clocks_taken_back": "Times another profiler replaced CUPTI's clock (fastprof restored it)",
    "lost_launches": "GPU launches not tracked, out of memory (their work is unattributed)",
    "expired_launches": "GPU launches whose work was never seen",
    "negative_delay": "GPU activities that seem to start before their launch (a delay of 0)",
    "cupti_errors": "Calls of CUPTI that failed",
    "taken": "Launches whose GPU records went to another profiler",
    "rows_dropped": "GPU activities beyond the limit on rows, counted without their place",
    "names_dropped": "Kernels beyond the limit on names, counted as (other kernels)",
    "timeline_lost": "GPU activities missing from the busy and idle times (out of memory)",
    "graph_nodes_lost": "Nodes of CUDA graphs captured at an unknown place (out of memory)",
    "owners_lost": "Thread-ownership updates lost (out of memory)",
    "clock_steps": "Times the GPU's clock was stepped (its times were adjusted)",
}  # fmt: skip


def gpu_notes(snapshot: Snapshot, report: GpuReport | None) -> Iterator[str]:
    """Yield the notes on the GPU figures; none without a GPU layer."""
    gpu = snapshot.gpu
    if gpu is None or report is None:
        return
    if gpu.status == "on":
        if gpu.reason and gpu.tier == "external":
            yield (
                "Launches were matched to sections by external correlation, which takes longer "
                f"than callbacks: {gpu.reason}"
            )
        elif gpu.reason:
            yield gpu.reason
        yield from _meaning(snapshot, gpu, report)
        if gpu.health_hung:
            yield gpu.health_reason.rstrip(". ") + "."
    for pause in report.pauses:
        yield (
            f"The GPU was not observed for {duration(pause.paused_ns / 1e6)}"
            f"{f', while {pause.why} had its records' if pause.why else ''}. No figure includes "
            "the work of that time."
        )
    if report.paused_ns > sum(pause.paused_ns for pause in report.pauses):
        yield f"The GPU was not observed for {duration(report.paused_ns / 1e6)} in total."
    for name, count in gpu.counters.items():
        if count and name not in _WORK:
            what = _FAULTS.get(name, f"GPU: {name.replace('_', ' ')}")
            yield f"{what}: {counted(count)}."


def _meaning(snapshot: Snapshot, gpu: GpuSnapshot, report: GpuReport) -> Iterator[str]:
    yield (
        "GPU work counts for the section and function that launched it, not for the one during "
        "which it ran; activities that run at the same time each count in full."
    )
    totals = report.totals
    if totals is not None and totals.inherited_ns:
        yield (
            f"Inherited: {duration(totals.inherited_ns / 1e6)} of GPU time were launched by "
            "threads without a section (autograd) and count for the thread whose backward they ran."
        )
    if totals is not None and totals.other_threads_ns:
        yield (
            f"Other threads: {duration(totals.other_threads_ns / 1e6)} of GPU time were launched "
            "by threads outside of sections while no thread was in backward; they are in no row."
        )
    if totals is not None and totals.unattributed_ns:
        yield (
            f"Unattributed: {duration(totals.unattributed_ns / 1e6)} of GPU time have no launch "
            "that fastprof saw; they are in no row."
        )
    if totals is not None and totals.replayed_ns:
        yield (
            f"CUDA graphs: {duration(totals.replayed_ns / 1e6)} of GPU time count for where the "
            "graph was replayed, not where it was captured."
        )
    if not (snapshot.meta.get("sync") or snapshot.meta.get("synchronized")):
        yield (
            "Not synchronized: GPU times come from the device's own records, and fastprof never "
            "waited for it."
        )
    # With phases of the run a report has the GPU time of one.
    if not snapshot.phases and any(device.step_count for device in gpu.devices):
        yield (
            "GPU time by section is over the whole recording, steps or not; only busy and idle "
            "times are known for the measured steps alone."
        )
