"""The questions of the first day with a GPU, in order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question, and the program that answers it.

    Attributes:
        name: the name of the answering function in ``script`` and of the judging one in judge.py.
        part: 1 to 4.
        script: a file of this folder.
        limit_s: seconds after which the program is ended.
        simulated: whether the simulated device can answer.
        optional: about a tool that the machine may lack.
        together: one process answers neighbouring questions with the same word.
        compares: judge the answers of these questions; run nothing.
    """

    name: str
    part: int
    script: str = ""
    limit_s: int = 60
    simulated: bool = True
    optional: bool = False
    together: str = ""
    compares: tuple[str, ...] = ()


def _part(part: int, script: str, *names: str, **options: object) -> list[Question]:
    return [Question(name, part, script, **options) for name in names]  # type: ignore[arg-type]


QUESTIONS: tuple[Question, ...] = (
    # 1: the machine, and CUPTI without fastprof
    *_part(1, "basics.py", "machine", "doctor"),
    *_part(1, "probe.py", "probe_flush", "probe_clock", "probe_nested", "probe_ids"),
    *_part(1, "probe.py", "probe_external", "probe_cost"),
    # 2: known truth
    *_part(2, "child.py", "counts", "threads", "streams", "copies", together="counts"),
    *_part(2, "child.py", "backward", "spins", "delay", together="counts"),
    *_part(2, "child.py", "driver_only"),
    *_part(2, "child.py", "graph", "graph_before", "graph_again", "graph_long"),
    *_part(2, "child.py", "everything", "everything_held"),
    Question("both_ways", 2, compares=("everything", "everything_held")),
    *_part(2, "basics.py", "replay_callbacks", "replay_external", optional=True),
    *_part(2, "child.py", "health"),
    # 3: other profilers, and programs
    *_part(3, "others.py", "default_run", limit_s=90, simulated=False),
    *_part(3, "others.py", "seed", limit_s=90, simulated=False),
    *_part(3, "others.py", "profiler_cpu_between", "profiler_cuda_between", simulated=False),
    *_part(3, "others.py", "profiler_cpu_first", "profiler_cuda_first", simulated=False),
    *_part(3, "others.py", "profiler_inside", simulated=False),
    *_part(3, "others.py", "same_kernels", "same_kernels_after", simulated=False),
    *_part(3, "others.py", "compiled", limit_s=90, simulated=False),
    *_part(3, "others.py", "loader", simulated=False),
    *_part(3, "load.py", "endings", limit_s=90),
    # 4: load, and fastprof's cost
    *_part(4, "load.py", "busy", "long_kernel", "million", "costs"),
    *_part(4, "others.py", "default_cost", limit_s=120, simulated=False),
    *_part(4, "others.py", "overhead_transformer", limit_s=90, simulated=False),
    *_part(4, "others.py", "overhead_launches", simulated=False),
    *_part(4, "others.py", "under_ncu", limit_s=90, simulated=False, optional=True),
)
