"""What compilers did in a run: torch.compile, jax.jit."""

from dataclasses import dataclass
from typing import Annotated

from fastprof.snapshot.codec import Count, Record, Row
from fastprof.snapshot.kinds import AtMost, Choice, Known, WrongError
from fastprof.snapshot.run_phases import RUN_PHASES

#: Kinds of compilations: of a function's forward pass (or of a function that is not
#: differentiated), of its backward pass when that first runs, of kernels while they run (Triton's
#: autotuning, CUDA graphs), for torch.export, by jax.jit.
KINDS = ("forward", "backward", "runtime", "export", "jax")

#: The reason of a compilation that was not the first, if the compiler's version does not tell it.
NOT_KNOWN = "not known with this version"

#: Compilations of one run that are kept; of more only the number and the sum are.
MAX_EVENTS = 4096
MAX_BREAKS = 256


@dataclass(frozen=True, slots=True)
class CompileEvent(Row):
    """One compilation; times are integer nanoseconds by the compiler's own clock.

    ``step`` is the number of steps that had ended, ``phase`` the phase of the run that it
    interrupted.  ``id`` is the compiler's number for it, as ``function/compilation``; ``name``,
    ``file`` and ``line`` are those of the function's code; ``line`` 0: unknown.  ``total_ns``
    contains ``backend_ns`` (everything after the capture of the graph), which contains
    ``kernel_ns`` (making and compiling kernels).  ``hits`` and ``misses`` are those of the caches
    on disk.  ``reason`` is why it was compiled again, in the compiler's words; ``failed`` why it
    was not compiled; ``limit`` the limit of compilations that it has reached.  ``caller`` is
    the program's line from which a function of a library was called, as ``path:line``.
    """

    step: Count
    phase: Annotated[str, Choice(*RUN_PHASES)]
    kind: Annotated[str, Choice(*KINDS)]
    id: str
    name: str
    file: str
    line: Count
    total_ns: Count
    backend_ns: Count
    kernel_ns: Count
    hits: Count
    misses: Count
    reason: str
    failed: str
    limit: str
    caller: str = ""


@dataclass(frozen=True, slots=True)
class GraphBreak(Row):
    """A place where captured code ends, ``count`` times, and why, in the compiler's words.

    ``file``, ``line`` and ``name`` are the place in the program that led to it.
    """

    file: str
    line: Count
    name: str
    reason: str
    count: Count


@dataclass(frozen=True, slots=True)
class CompileSnapshot(Record):
    """All compilations of one run.

    ``wall_ns`` is the time in ns of the run's phase ``compile``, in which the training thread did.
    ``lost`` compilations are in no event, ``lost_ns`` is their time.  ``limit`` is the number of
    compilations per function after which the compiler gives up; 0: unknown.  ``cache`` is the
    folder of its cache on disk.  ``unknown`` names what this version does not report.
    ``inside`` numbers the events that were in the run's phase ``compile``, so that their time is
    not in that of steps; None: a file of an older version.
    """

    compiler: str
    version: str
    events: Annotated[tuple[CompileEvent, ...], AtMost(MAX_EVENTS, "compilations")] = ()
    breaks: Annotated[tuple[GraphBreak, ...], AtMost(MAX_BREAKS, "graph breaks")] = ()
    wall_ns: Count = 0
    lost: Count = 0
    lost_ns: Count = 0
    limit: Count = 0
    cache: str = ""
    unknown: tuple[str, ...] = ()
    inside: tuple[Count, ...] | None = None

    def check(self, known: Known) -> None:
        for number in self.inside or ():
            if number >= len(self.events):
                raise WrongError(number, f"below {len(self.events)}", ".inside")
