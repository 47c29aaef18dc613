"""The C extension.  All of it is internal; ``fastprof`` has the public names.

The docstrings of the extension itself have little more than signatures.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any, TypeVar, final

_T = TypeVar("_T")

#: Names of loader phases by number: "", data, forward, backward, optimizer, batch_wait.  The last
#: is not a section: ``next_batch`` measures it.
PHASES: tuple[str, ...]

#: Names of the sections whose whole time is of one kind, whatever runs in them.
COVERING_SECTIONS: tuple[str, ...]

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
        constructors: bool = ...,  # also types and callable objects; monitoring without timer
        max_nodes: int = 1_000_000,  # per thread
        max_depth: int = 1024,
        skip_steps: int = 3,
        outliers: int = 0,  # number of slowest steps to keep in detail, at most 100
    ) -> None: ...
    # ---- functions (cProfile's names)
    def enable(
        self, subcalls: bool = True, builtins: bool = True, *, callers: bool = False
    ) -> None:
        """Record the calls of every thread; BusyError: another profiler holds the hook.

        ``callers``: calls that are open now are callers of later ones, and are not counted.
        """
    def disable(self) -> None:
        """Stop recording calls in every thread."""
    def clear(self) -> None:
        """Delete everything recorded."""
    def pause_functions(self, *, unhook: bool = False) -> bool:
        """Ignore calls; ``unhook``: also remove the hook, so that another profiler can use it.

        Returns whether a pause has begun: functions were recorded until now.
        """
    def resume_functions(self) -> None:
        """End a pause: open calls are callers again, and are not counted.

        Does nothing while the hook is removed.
        """
    def rehook(self) -> None:
        """Install the hook again, after ``pause_functions(unhook=True)``; the pause continues.

        BusyError: another profiler holds the hook; functions are off from now on.
        """
    def rest(self, file: str, /) -> CodeType | None:
        """Begin the body of the module in ``file``.

        In set-up, before Python 3.12, this removes the hook from the thread and returns an object
        for :meth:`end_rest`.  None: the body is recorded like other code.
        """
    def end_rest(self, module: CodeType | None, /) -> None:
        """End that body; the hook returns with the outermost body, or at once with None."""
    # ---- sections
    def start_sections(self) -> None:
        """Record sections and steps; BusyError: another recorder does."""
    def stop_sections(self) -> None: ...
    # ---- steps without the hook, in a separate phase of the run; they are not measured
    def unprofiled_length(self, settles_ns: int, /) -> int:
        """Return the steps for the next block, if a change of the hook slows steps this long."""
    def plan_unprofiled(self, step: int, /) -> None:
        """Begin the phase when ``step`` steps have ended; 0: never."""
    def last_blocks(self, count: int, /) -> list[tuple[int, int]]:
        """Return the median ns of steps without and with the hook, per block, latest first."""
    def begin_unprofiled(self) -> bool:
        """Remove the hook, at the begin of the planned step; return whether it is removed."""
    def end_unprofiled(self, valid: bool, /) -> None:
        """Install the hook again, at the begin of the next measured step.

        Not ``valid``: the steps of this block were unlike others.  BusyError: another profiler
        holds the hook; functions are off from now on.
        """
    def begin_plain_time(self) -> bool:
        """Remove the hook in a run without steps so far; return whether it is removed."""
    @property
    def in_plain_time(self) -> bool: ...  # it is
    def end_plain_time(self, window: bool, /) -> None:
        """Install the hook again, for a ``window`` or for good; BusyError: as end_unprofiled()."""
    def call_counts(self) -> tuple[int, int, int]:
        """Return the number of recorded calls of Python functions, C functions, constructors."""
    # ---- steps and phases of the run, from the training thread
    def mark(self) -> None:
        """Begin the first step now."""
    def step(self) -> int:
        """End a step; return the number of steps so far."""
    @property
    def steps(self) -> int: ...
    def set_phase(self, phase: int, goes_on: bool = False, /) -> int:
        """Begin a phase, an index of snapshot.run_phases.RUN_PHASES; return the one before.

        "steps" and "warmup" both mean the phase that the number of steps requires.
        """
    def end_loop(self) -> None:
        """No step follows: move the time after the last one to "outside", unless it is short."""
    # ---- loaders: ``tag`` is a small integer chosen by the caller; -1: none
    def set_loader(self, tag: int) -> None:
        """Let phases of this thread belong to loader ``tag`` from now on."""
    def next_batch(
        self,
        tag: int,
        iterator: Iterator[_T],
        section: Section,
        fetch: Callable[[Any], _T] | None = None,
    ) -> _T:
        """Return ``next(iterator)``, called inside ``section``; StopIteration is not a sample.

        ``fetch``: called with ``iterator`` instead of ``next``.

        The delivery makes ``tag`` the current loader, and adds a batch_wait sample to ``tag``:
        the time from the end of that loader's previous batch (the later of the last exit of a
        phase section and step() while it was the current loader; without both, this call) to the
        delivery; none for its first batch.  The time from the end of the previous batch of *any*
        loader goes to tag -1, phase batch_wait (the global wait).  While nothing records, this is
        plain ``next(iterator)``.
        """
    def take_loaders(self) -> list[tuple[int, int, int, int]]:
        """Return [(tag, phase, count, sum_ns)] since the last call, over all threads.

        A phase of ``options.PHASES``; plus their number: the same in plain steps only.
        """
    def loader_totals(self) -> list[tuple[int, int, int, int]]:
        """Return the same since the start."""
    # ---- the GPU
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
        takes_slot: bool = True,
    ) -> dict[str, Any]:
        """Attribute GPU work to this recorder: ``{"state", "reason", "tier"}``.

        ``state`` is "on", "off" (``reason`` says why) or "waiting": the program has not
        initialised CUDA so far, ask again later.  With ``nvml``, a path or a bare file name,
        temperature, clocks, power and throttling of the devices are sampled every period.
        ``takes_slot``: take CUPTI's subscriber slot from torch.profiler, which keeps it after its
        sessions.
        """
    def gpu_stop(self, timeout_s: float = 2.0) -> None:
        """Wait for the device's unfinished work, without synchronizing; release CUPTI."""
    def gpu_pause(self, why: str, /) -> None:
        """Release CUPTI for another client."""
    def gpu_resume(self) -> None:
        """Continue after gpu_pause()."""
    def gpu_flush(self, timeout_s: float = 1.0, /) -> bool:
        """Fetch all records so far; return whether they arrived in time."""
    def gpu_status(self) -> dict[str, Any]:
        """``{"state", "reason", "tier"}``; state may also be "paused".

        While the recorder has the GPU also ``health``: per device the samples so far, or None.
        """
    # ---- the trace
    def trace_open(self, *, min_ns: int = 50_000, max_events: int = 200_000) -> None:
        """Begin a window: keep begin and end of sections, steps, and functions of ``min_ns``.

        The limits of the first call apply to all windows.
        """
    def trace_close(self) -> None:
        """End the window, and all events that are open in it."""
    # ---- reading
    def export(
        self, *, trace: bool = False, fold_imports: Callable[[str, str], int] | None = None
    ) -> dict[str, Any]:
        """Return everything recorded as columns; capture/convert.py has the layout.

        ``fold_imports(file, name)`` returns the class of code, which depends on the name only if
        that begins with "_" or "<": 0 the program's, 1 a library's, 2
        the body of a library's module, 3 the begin of an import.  Calls by libraries in imports
        of set-up are then counted per module.
        """
    def window(self, first: int, plain: bool = False, /) -> dict[str, Any] | None:
        """Return measured or plain steps from number ``first`` on, and the training thread's place.

        May be called from any thread.  None: no thread makes steps.

        ``number``, ``wall_ns``, ``cpu_ns``, ``cpu_wait_ns``, ``communication_ns``,
        ``autograd_ns``, ``gc_ns``, ``faults``, ``gpu_wait_ns`` (the GPU ran collectives and
        computed nothing) and ``gpu_compute_ns`` are int64 in bytes, a row per step, -1 if unknown.
        ``gpu_last``: the last step whose ``gpu_wait_ns`` is known, -1: no GPU has run collectives.
        ``gpu_busy``: whether the GPU has unfinished work, None: unknown.
        ``sections``: [(name, bytes)].
        ``waits``: [(node, ns so far)] of waits for other ranks.  ``open``: names of the open
        sections.  ``waiting``: whether the thread waits for other ranks, or may.  ``phase``: an
        index of RUN_PHASES, ``phases_ns``: the times of all of them so far.  ``thread``: the
        thread's ident, ``last_event``: the clock's ticks at its last event.  ``steps`` and
        ``measured``: numbers of steps so far.
        """
    def node_times(self) -> bytes | None:
        """Return the self time in ns of each context of the training thread, as int64."""
    def add_spent(
        self,
        first: int,
        least_ns: int,
        known: bytearray | array[int],
        place: bytearray | array[int],
        sums: bytearray | array[int],
        /,
    ) -> tuple[int, int, int, bytes] | None:
        """Add what some nodes of the training thread have spent since the last look.

        From node ``first`` on at most 4096 are read, and as many as ``place`` has.  ``known``: two
        int64 per node, which this call keeps.  ``place``: int32 per node, its context, or -1 minus
        the context that it counts to; the bases of phases are the contexts 0, 1, ...  ``sums``:
        int64 ns and calls per context, to which this adds.

        Returns the thread's number, the number of all nodes, the first node that was not read, and
        at most 64 new nodes as int64 (node, ns, calls): sections, and those of at least
        ``least_ns``.  None: no thread makes steps.

        Raises:
            ValueError: the sizes of the buffers do not match.
        """
    def nodes(
        self, wanted: bytes, /
    ) -> tuple[dict[int, tuple[int, int]], list[tuple[str, str, int, str, str]]] | None:
        """Return {node: (parent, key)} and the keys' descriptions, with the contexts above.

        ``wanted`` are int64.  A key below 0 is -1 minus the number of a phase of the run.  None:
        no thread makes steps, or there are too many contexts.
        """
    def run_unrecorded(self, function: Callable[[], object], /) -> object:
        """Call ``function`` in a thread of fastprof, which is not recorded meanwhile."""
    def begin_lines(self, interval_ns: int, limit_ns: int, most: int, /) -> bool:
        """Begin to sample on which lines the calling thread is, from another thread.

        Only steps of the run count.  It ends after ``most`` samples, after ``limit_ns``, before a
        fork, or when they are taken.  Returns False if lines cannot be sampled here, or are being
        sampled already.
        """
    def take_lines(self, wait: bool, /) -> list[tuple[str, int, str, int, int]] | None:
        """End sampling; return (file, first line, function, line, number of samples) rows.

        A function counts once in a sample, at its innermost call.  Functions that the recorder does
        not know are left out.  None: sampling goes on, because ``wait`` is false and it has not
        ended.
        """
    def code_objects(self) -> list[CodeType]:
        """Return the code objects that were called."""
    def memory(self) -> dict[str, int]:
        """Return the numbers of bytes, nodes and threads held."""
    @property
    def active(self) -> bool: ...  # functions are recorded
    @property
    def recording(self) -> bool: ...  # sections are recorded
    @property
    def backend(self) -> str | None: ...  # chosen at the first enable()
    @property
    def displaced(self) -> bool: ...  # another tool took the hook
    @property
    def external_timer(self) -> bool: ...
    @property
    def subcalls(self) -> bool: ...
    next_event: int  # number of steps after which the run has work
    @property
    def sync(self) -> bool: ...  # whether sections synchronize by default
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
        """Open it, unless phase_is_open(); return whether it was opened."""
    def phase_is_open(self) -> bool:
        """Return whether it, or another section of its phase, is open in this thread."""
    def leave_later(self) -> None:
        """Close it when another phase begins, the section around it closes, or the step ends."""
    def leave_now(self) -> None:
        """Close it if that has not happened since leave_later()."""
    def park(self) -> None:
        """Close it without ending its sample, after leave_later()."""
    def resume(self) -> bool:
        """Open it again after park(); return whether its sample was still open."""

def profile_section(name: str, *, sync: bool | None = None) -> Section: ...
def set_sync_function(function: Callable[[], object] | None) -> None: ...
def set_decorator_function(function: Callable[[Section, Any], Any]) -> None: ...
def force_off() -> None:
    """Let every later start of a recorder do nothing (FASTPROF=0)."""

def nvtx_in(on: bool, /) -> None:
    """Choose whether NVTX ranges of other libraries become sections."""

def nvtx_out(on: bool, /) -> str | None:
    """Choose whether sections become NVTX ranges; return why they do not, or None."""

def nvtx_emits() -> bool:
    """Return whether sections become NVTX ranges now."""

def nvtx_tool() -> str | None:
    """NVTX_INJECTION64_PATH as libraries see it."""

def ring_after(function: Callable[[], Callable[[], object] | None], ns: int, /) -> None:
    """Call ``function`` once in the main thread after a time in ns, as a signal handler is called.

    It is not traced.  What it returns, a function or None, is called when its frame has ended, and
    again a moment later if that returns False.  There is one such call at a time: this one replaces
    another that has not begun.
    """

def ring_never() -> None:
    """Forget the call of ring_after(), if it has not begun."""

def listen(folder: bytes, function: Callable[[int], int | None], /) -> None:
    """Call ``function`` in another thread when ``folder`` has changed, or a signal has come.

    It gets the number of signals of :func:`handle_signal`, is not traced, and returns the time in
    ns after which it is called again, or None: at the next change.
    """

def listen_never() -> None:
    """End :func:`listen`."""

def handle_signal(number: int, /) -> None:
    """Catch a signal until the process ends; a handler that it has now runs, too."""

def call_in_main(function: Callable[[], Callable[[], object] | None], /) -> bool:
    """Call ``function`` in the main thread, as a signal handler is called; return whether it will.

    It is not traced.  What it returns, a function or None, is called when its frame has ended.
    """

def clock_ns() -> int:
    """The recorder's clock now, in ns (for tests of the clock)."""

def clock_name() -> str: ...
def handle_end_signals(carrier: int, /) -> bool:
    """Let signals that end the process run Python's handler of ``carrier``; return if any does now.

    They are SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU and SIGQUIT, each only if it has the default
    action, which ``signal.getsignal`` still finds.  The process ends if Python's handler has not
    run 5 s later.
    """

def leave_end_signals() -> None:
    """Restore their default actions, unless the program has set others since."""

def end_signal_taken() -> int:
    """Note that Python's handler runs; return the first signal that came, or 0."""

def set_python_handler(number: int, handler: Any, /) -> Any:
    """Do what ``signal.signal`` does, but leave the signal's action in C as it is.

    The action must run Python's handler: it is Python's own, or one that calls that.
    """

def nvml_probe(path: str, bus_ids: tuple[str, ...], /) -> dict[str, Any]:
    """Return NVML's current values of these devices.

    ``{"reason": str, "devices": [{"temperature_c", "sm_clock_mhz", "power_mw", "reasons"}]}``,
    each an int or None.  It may hang: ask in a child.
    """

def gpu_probe(
    driver_path: str | None, cupti_paths: Sequence[str], initialise: bool, /
) -> dict[str, Any]:
    """Return the answers of the CUDA driver and, if it works, of each libcupti.

    ``{"driver": {"state": "ready" | "waiting" | "none", "reason": str, "version": int | None,
    "devices": [...]}, "cupti": [{"path": str, "version": int | None, "reason": str}]}``.
    Opening a libcupti may crash the process: do it in a child.
    """

def pair_sums(
    parent: Sequence[int],
    groups: Sequence[int],
    calls: Sequence[int],
    resumes: Sequence[int],
    self_ns: Sequence[float],
    raw_ns: Sequence[int],
    /,
) -> tuple[list[int], ...] | None:
    """Return the nodes of a tree summed per caller and callee, see ``report.flat.PairSums``.

    Returns None if a value is no int, is negative, or a column's sum exceeds 64 bits.
    """

def stats_file(
    labels: list[tuple[str, int, str]],
    parent: Sequence[int],
    groups: Sequence[int],
    calls: Sequence[int],
    resumes: Sequence[int],
    self_ns: Sequence[float],
    raw_ns: Sequence[int],
    /,
) -> tuple[bytes, int, int] | None:
    """Return the same as a ``.stats`` file, and the numbers of its functions and edges.

    ``labels`` has (file, line, name) per group.  Returns None if pair_sums does, or if a line is
    negative or too large.
    """

class PlainSteps:
    """Ends the steps of an optimizer while each is like its last one.

    :meth:`before` and :meth:`after` call ``left()``, then the functions of these names, for
    anything else.  After a step that reaches ``recorder.next_event`` they call ``due(count)``.
    """

    def __init__(
        self,
        before: Callable[..., Any],
        after: Callable[..., Any],
        left: Callable[[], object],
        due: Callable[[int], object],
        loading: object,
        claims: list[object],
        flags: object,
        recorder: Recorder,
        /,
    ) -> None: ...
    @property
    def on(self) -> bool: ...
    @property
    def stepping(self) -> bool: ...
    def begin(self, optimizer: object, tag: int, /) -> None: ...
    def end(self) -> tuple[bool, bool]: ...
    def take(self) -> tuple[int, int, int]: ...
    def before(self, optimizer: Any, args: Any, kwargs: Any, /) -> Any: ...
    def after(self, optimizer: Any, args: Any, kwargs: Any, /) -> None: ...

class PlainFetch:
    """Fetches the batches of an iterator while ``steps`` ends the steps of its loop.

    :meth:`next` calls ``slow(iterator)`` for anything else, and ``over()`` when the iterator, which
    is asked by ``original(iterator)``, has ended.
    """

    def __init__(
        self,
        steps: PlainSteps,
        slow: Callable[[Any], Any],
        over: Callable[[], object],
        original: Callable[[Any], Any],
        phases: object,
        section: Section,
        /,
    ) -> None: ...
    def begin(self, iterator: object, entry: object, tag: int, most: int, /) -> bool: ...
    def end(self) -> None: ...
    def next(self, iterator: Any, /) -> Any: ...

class Around:
    """Calls ``original`` between two functions during which the thread is not traced.

    ``before`` gets the arguments of the call, ``after`` what ``before`` returned and the result of
    ``original``, ``...`` if it raised.  It has no frame, and is bound to objects as a function is.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        before: Callable[..., Any] | None,
        after: Callable[[Any, Any], object] | None,
        /,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def find_elsewhere(finder: object, name: str | None, /, *args: Any) -> Any:
    """Return what the finders other than ``finder`` find for ``args``, if they begin with ``name``.

    Without a frame, as the import system itself; else returns None.
    """
