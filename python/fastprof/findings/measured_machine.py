"""Measurements of the CPUs and the GPU."""

from collections.abc import Mapping

from fastprof.findings.gpu_time import Timeline, timeline_of
from fastprof.findings.measured_steps import StepFacts
from fastprof.lazy import Lazy
from fastprof.report.gpu import NO_SECTION as NOT_IN_SECTION
from fastprof.report.model_gpu import GpuReport
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.run_phases import ALL

#: Phases of the run in which a network runs.
_TRAINS = frozenset({"steps", "warmup", "unprofiled", "validation"})

#: Other programs that use less of a CPU leave it to this one.
_IDLE = 0.25


class MachineFacts(StepFacts):
    """The machine of a report."""

    @Lazy
    def cpus(self) -> float | None:
        """CPUs that the program may use; None: not recorded."""
        known = (self.report.meta.get(name) for name in ("cpus", "cpu_limit"))
        limits = [float(value) for value in known if isinstance(value, (int, float)) and value > 0]
        limits += [float(w.cpus) for row in self.report.loaders if (w := row.workers) and w.cpus]
        return min(limits, default=None)

    @property
    def own_cpus(self) -> float | None:
        """A rank's part of the CPUs if the ranks of the job share them, else all of them."""
        return None if self.cpus is None else self.cpus / self.ranks_on_cpus

    @property
    def ranks_on_cpus(self) -> int:
        """Ranks of the job that share this process's CPUs; 1 if none does, or it is unknown."""
        told = self.report.meta.get("ranks_on_cpus")
        return told if isinstance(told, int) and told > 1 else 1

    @Lazy
    def cpus_used(self) -> float | None:
        """CPUs in use by the program and its workers in steps; None: not recorded.

        Only the CPU time of the whole recording is known.  Where it runs no network (imports,
        set-up) a program mostly uses one CPU, while torch computes with several threads in steps.
        """
        ns = self.report.meta.get("process_cpu_ns")
        duration = self.report.snapshot.duration_ns
        if not isinstance(ns, int) or duration <= 0:
            return None
        average = ns / duration
        trains = sum(row.wall_ms for row in self.report.phases if row.name in _TRAINS)
        trains = 1e6 * max(trains, self.report.steps.wall_ms or 0.0)
        if not 0.0 < trains < duration:
            return average
        used = max(average, (ns - (duration - trains)) / trains)
        return used if self.cpus is None else max(average, min(used, self.cpus))

    @property
    def others_are_known(self) -> bool:
        """Whether the CPU use of other programs was recorded.

        With other ranks it is not known: most of it is theirs, and they have their part.
        """
        told = isinstance(self.report.meta.get("others_cpu_ns"), int)
        return told and self.own_cpus is not None and self.ranks_on_cpus == 1

    @Lazy
    def others_cpus(self) -> float:
        """CPUs of :attr:`own_cpus` in use by other programs; 0 if unknown."""
        ns, duration = self.report.meta.get("others_cpu_ns"), self.report.snapshot.duration_ns
        if not self.others_are_known or not isinstance(ns, int) or self.own_cpus is None:
            return 0.0
        if duration <= 0:
            return 0.0
        allowed = self.report.meta.get("cpus")
        # Within a container's limit, they first have the CPUs that it leaves to them anyway.
        left = allowed - self.own_cpus if isinstance(allowed, (int, float)) else 0.0
        return max(0.0, min(self.own_cpus, ns / duration - max(0.0, left)))

    @property
    def crowded(self) -> bool:
        """Whether other programs have CPUs that further workers would need."""
        return self.cpu_waits.matter or self.others_cpus > _IDLE

    @property
    def gpu(self) -> GpuReport | None:
        """The GPU layer, None if it was off."""
        gpu = self.report.gpu
        return gpu if gpu is not None and gpu.status == "on" and gpu.devices else None

    @property
    def cpu_only(self) -> bool:
        """Whether the machine is known to have no GPU."""
        gpu = self.report.gpu
        return gpu is not None and gpu.lacks_device

    @property
    def hidden_gpu(self) -> bool:
        """Whether there may be a GPU that was not observed."""
        return self.report.gpu is not None and self.gpu is None and not self.cpu_only

    @property
    def lacks_bfloat16(self) -> bool:
        """Whether a GPU is older than compute capability 8.0: it has no bfloat16 units.

        See NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities".
        """
        devices = () if self.gpu is None else self.gpu.devices
        return any(d.capability.partition(".")[0] in ("5", "6", "7") for d in devices)

    @Lazy
    def timeline(self) -> Timeline | None:
        """The devices' time per span; several count as one that is as busy as their mean."""
        return None if self.gpu is None else timeline_of(self.gpu, self.span_ms)

    @Lazy
    def idle(self) -> Mapping[str, float]:
        """The GPU's idle time in steps that the program causes: outermost section -> ms per span.

        Leaves out fastprof's own cost, and sections between steps (validation, for example).
        """
        rows = () if self.timeline is None else self.timeline.idle
        idle = {UNACCOUNTED if name == NOT_IN_SECTION else name: ms for name, ms in rows}
        return {
            name: max(0.0, ms - self.own_costs.get(name, 0.0))
            for name, ms in idle.items()
            if not self.steps or name in self.rows
        }

    @Lazy
    def copied(self) -> float:
        """Copies between device and host: their part of the time in the report's phase."""
        gpu = self.gpu
        if gpu is None or gpu.use is None:
            return 0.0
        view = self.report.view
        wall = sum(d.whole.wall_ns for d in gpu.devices)
        if self.report.phase != ALL and view.phases:
            wall = view.duration_ns * len(gpu.devices)
        return gpu.use.transfer_ns / wall if wall else 0.0
