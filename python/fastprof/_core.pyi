"""The C extension.  Everything here is internal; the public face is ``fastprof``."""

from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any, TypeVar, final

_T = TypeVar("_T")

#: Names of loader phases by number: "", data, forward, backward, optimizer, batch_wait; the last
#: is no section: ``next_batch`` measures it (see there).
PHASES: tuple[str, ...]

class Recorder:
    """Records calls, sections and steps of every thread into calling-context trees."""

    def __init__(
        self,
        timer: Callable[[], float] | None = None,
        timeunit: float = 0.0,
        subcalls: bool = True,
        builtins: bool = True,
        *,
        backend: str = "auto",  # "auto" | "setprofile" | "monitoring"
        constructors: bool = ...,  # types and callable objects, too; monitoring without timer
        max_nodes: int = 1_000_000,  # per thread
        max_depth: int = 1024,
        skip_steps: int = 3,
        max_overhead: float = 0.0,  # 0 = no muting; else share of wall time, monitoring only
        outliers: int = 0,  # slowest steps to keep in detail, at most 100
    ) -> None: ...
    # function layer (cProfile's names)
    def enable(
        self,
        subcalls: bool = True,
        builtins: bool = True,
        *,
        callers: bool = False,  # calls that go on now are callers; they are not counted
    ) -> None: ...
    def disable(self) -> None: ...
    def clear(self) -> None: ...
    # section layer
    def start_sections(self) -> None: ...
    def stop_sections(self) -> None: ...
    # windows; calls that go on after a pause are callers again.  unhook: the hook is taken
    # out, until rehook(); resume_functions() does nothing meanwhile
    def pause_functions(self, *, unhook: bool = False) -> None: ...
    def resume_functions(self) -> None: ...
    def rehook(self) -> None: ...
    def rest(self, file: str, /) -> CodeType | None:
        """The body of a module begins; None: it is recorded as everything else is."""
    def end_rest(self, module: CodeType | None, /) -> None: ...
    # steps without the hook: so many are to be made if a change leaves traces so long (length);
    # from that many on they belong to a phase of their own and are not
    # measured (plan; 0: never); the hook is out from the beginning of the first one (begin, in
    # that step) until another one begins (end, in that)
    def unprofiled_length(self, settles_ns: int, /) -> int: ...
    def plan_unprofiled(self, step: int, /) -> None: ...
    def begin_unprofiled(self) -> bool: ...
    def end_unprofiled(self, valid: bool, /) -> None: ...
    # steps; both return the number of steps so far; called from the training thread
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    # the phase of the run, an index of snapshot.run_phases.RUN_PHASES; returns the one before
    def set_phase(self, phase: int, goes_on: bool = False, /) -> int: ...
    # no step will end any more: what has followed the last one is in the phase "outside"
    def end_loop(self) -> None: ...
    def mark(self) -> None:
        """Begin the first step now (called once, when the loop's profiler starts)."""
    # loaders: `tag` is a small integer chosen by the caller; -1 = none
    def set_loader(self, tag: int) -> None: ...
    def next_batch(self, tag: int, iterator: Iterator[_T], section: Section) -> _T:
        """``next(iterator)`` inside `section`; StopIteration is not counted as a sample.

        Makes `tag` the current loader on delivery.  Adds a batch_wait sample to `tag`:
        from the end of that loader's previous batch (the later of the last phase-section
        exit and step() seen while it was the current loader; if neither, this call) to
        the delivery; none for its first batch.  The same from the end of the previous
        batch of *any* loader goes to tag -1, phase batch_wait (the global wait).
        When nothing records it is plain ``next(iterator)``.
        """
    def take_loaders(self) -> list[tuple[int, int, int, int]]:
        """[(tag, phase, count, sum_ns)] since the last take, over all threads; resets."""
    def loader_totals(self) -> list[tuple[int, int, int, int]]:
        """The same since the start; does not reset."""
    @property
    def budget_visits(self) -> int: ...  # contexts and functions that max_overhead looked at
    def set_costs(
        self,
        python_ns: float,
        c_ns: float,
        implicit_ns: float = -1.0,
        constructor_ns: float = -1.0,
        /,
    ) -> None:
        """Cost of one recorded call in ns, for max_overhead.

        ``implicit_ns``: of a Python function that no call instruction announces; below 0: as
        ``python_ns``.  ``constructor_ns``: of a type or callable object; below 0: as ``c_ns``.
        """
    def gpu_start(
        self,
        cupti_paths: Sequence[str],
        driver_path: str | None,
        *,
        initialise: bool = False,
        tier: str = "auto",
        period_s: float = 1.0,
        patience_s: float = 15.0,
        nvml: str | None = None,
    ) -> dict[str, Any]:
        """Attribute GPU work to this recorder: ``{"state", "reason", "tier"}``.

        ``state`` is "on", "off" (``reason`` says why) or "waiting": the program has not
        initialised CUDA so far, ask again later.  With ``nvml``, a path or a bare file name,
        temperature, clocks, power and throttling of the devices are sampled every period.
        """
    def gpu_stop(self, timeout_s: float = 2.0) -> None:
        """Wait for what the device still does, without synchronizing; let go of CUPTI."""
    def gpu_pause(self, why: str, /) -> None:
        """Let go of CUPTI for another client."""
    def gpu_resume(self) -> None:
        """Go on after gpu_pause()."""
    def gpu_flush(self, timeout_s: float = 1.0, /) -> bool:
        """Bring what is recorded up to date; whether that was done in time."""
    def gpu_status(self) -> dict[str, Any]:
        """``{"state", "reason", "tier"}``; state may also be "paused"."""
    def trace_open(self, *, min_ns: int = 50_000, max_events: int = 200_000) -> None:
        """Begin a window of the trace; the limits of the first call hold."""
    def trace_close(self) -> None:
        """End the window; what is open is cut there."""
    def export(
        self, *, trace: bool = False, fold_imports: Callable[[str, str], int] | None = None
    ) -> dict[str, Any]:
        """Columns of everything recorded; see capture/convert.py for the layout."""
    def window(self, first: int, /) -> dict[str, Any] | None:
        """Measured steps from number ``first`` on, and where the thread that steps stands.

        ``number``, ``wall_ns``, ``cpu_ns``, ``cpu_wait_ns``, ``communication_ns``,
        ``autograd_ns``, ``gpu_wait_ns`` (the GPU ran collectives and computed nothing) and
        ``gpu_compute_ns`` are int64 in bytes, a row per step, -1 where not known; ``gpu_last``: the
        last step whose ``gpu_wait_ns`` is known, -1: no GPU has run collectives; ``gpu_busy``: the
        GPU has unfinished work, None: not known; ``sections``
        are [(name, bytes)]; ``waits`` are [(node, ns so far)] of what waits for other ranks;
        ``open`` are the names of the open sections; ``waiting``: the thread stands where it
        waits for other ranks, or may; ``phase`` is an index of RUN_PHASES, ``phases_ns`` are
        the times of all of them so far, ``thread`` is the thread's ident, ``last_event`` the
        clock's ticks at its last event, ``steps`` and ``measured`` how many steps there were so
        far.  None: nothing steps.
        """
    def node_times(self) -> bytes | None:
        """Own ns of each context of the thread that steps, as int64."""
    def nodes(
        self, wanted: bytes, /
    ) -> tuple[dict[int, tuple[int, int]], list[tuple[str, str, int, str, str]]] | None:
        """({node: (parent, key)}, descriptions of keys) of these contexts and those above them.

        ``wanted`` are int64.  A key below 0 is -1 less the number of a phase of the run.  None:
        nothing steps, or there are too many.
        """
    def run_unrecorded(self, function: Callable[[], object], /) -> object:
        """Call ``function`` in a thread of fastprof's, of which nothing is recorded meanwhile."""
    def code_objects(self) -> list[CodeType]:
        """Code objects that were called."""
    def memory(self) -> dict[str, int]:
        """Bytes, nodes and threads held."""
    @property
    def active(self) -> bool: ...  # function layer on
    @property
    def recording(self) -> bool: ...  # section layer on
    @property
    def backend(self) -> str | None: ...  # chosen at the first enable
    @property
    def displaced(self) -> bool: ...
    @property
    def external_timer(self) -> bool: ...
    @property
    def subcalls(self) -> bool: ...
    @property
    def sync(self) -> bool: ...
    @sync.setter
    def sync(self, value: bool) -> None: ...

@final
class Section:
    """A section name; context manager and decorator.  One shared object per name."""

    @property
    def name(self) -> str: ...
    def __enter__(self) -> Section: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
        /,
    ) -> None: ...
    def __call__(self, function: _T, /) -> _T: ...
    def enter_phase(self) -> bool:
        """Open it, unless phase_is_open(); whether it was opened."""
    def phase_is_open(self) -> bool:
        """Is it open in this thread, or another section of its phase?"""
    def leave_later(self) -> None:
        """Close it when another phase begins, what is around it closes, or the step ends."""
    def leave_now(self) -> None:
        """Close it if that has not happened after leave_later()."""
    def park(self) -> None:
        """Close it without ending its sample, after leave_later()."""
    def resume(self) -> bool:
        """Open it again after park(); whether there was something to go on with."""

def profile_section(name: str, *, sync: bool | None = None) -> Section: ...
def set_sync_function(function: Callable[[], object] | None) -> None: ...
def set_decorator_function(function: Callable[[Section, Any], Any]) -> None: ...
def force_off() -> None:
    """From now on starting a recorder does nothing (FASTPROF=0)."""

def nvtx_in(on: bool, /) -> None:
    """Do NVTX ranges of other libraries become sections?"""

def nvtx_out(on: bool, /) -> str | None:
    """Do sections become NVTX ranges?  Why they do not, or None."""

def nvtx_emits() -> bool:
    """Return whether sections become NVTX ranges now."""

def nvtx_tool() -> str | None:
    """NVTX_INJECTION64_PATH as libraries see it."""

def clock_ns() -> int:
    """The recorder's clock now, in ns (for tests of the clock)."""

def clock_name() -> str: ...
def limit_sigterm() -> None:
    """SIGTERM ends the process if Python's handler, which is installed, has not run 5 s later."""

def sigterm_taken() -> None:
    """Python's handler runs."""

def watch_exit(main_thread: int, /) -> None:
    """Note with which status the program ends."""

def exit_failed() -> bool:
    """Whether it has ended with another status than 0."""

def nvml_probe(path: str, bus_ids: tuple[str, ...], /) -> dict[str, Any]:
    """What NVML says of devices now.

    ``{"reason": str, "devices": [{"temperature_c", "sm_clock_mhz", "power_mw", "reasons"}]}``,
    each an int or None.  It may hang: ask in a child.
    """

def gpu_probe(
    driver_path: str | None, cupti_paths: Sequence[str], initialise: bool, /
) -> dict[str, Any]:
    """What the CUDA driver and, if it works, each libcupti say.

    ``{"driver": {"state": "ready" | "waiting" | "none", "reason": str, "version": int | None,
    "devices": [...]}, "cupti": [{"path": str, "version": int | None, "reason": str}]}``.
    Opening a libcupti may crash the process: do it in a child.
    """
