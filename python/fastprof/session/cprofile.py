"""cProfile's interface: ``import fastprof as cProfile`` works.

The table has cProfile's labels and counts, over all threads, and includes data that cProfile
loses (threads, functions with the same label, pybind11 methods).
``docs/cprofile-compat.md`` lists the intended differences.
"""

# No "from __future__" here: exec() of a string would pass it on to the profiled code.

import builtins
import os
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastprof.capture.clock_reads import sample
from fastprof.capture.options import Recorder
from fastprof.read.pstats import Entry, Function
from fastprof.session import current

if TYPE_CHECKING:
    from fastprof.results.report import Report
    from fastprof.snapshot import Snapshot

_T = TypeVar("_T")
_Sort = int | str | tuple[int | str, ...]


class ProfilerSubentry(NamedTuple):
    """Calls of one function by another; times in seconds."""

    code: types.CodeType | str
    callcount: int
    reccallcount: int
    totaltime: float
    inlinetime: float


class ProfilerEntry(NamedTuple):
    """One function; times in seconds.

    ``code`` is a code object, or the label of a C function.  ``callcount`` includes
    resumes of generators, ``reccallcount`` counts the calls inside another call of the
    same function.  ``calls`` lists the functions it calls, or is None.
    """

    code: types.CodeType | str
    callcount: int
    reccallcount: int
    totaltime: float
    inlinetime: float
    calls: list[ProfilerSubentry] | None


class Profile(Recorder):
    """A function profiler with cProfile's methods; also a context manager.

    The recorder provides ``enable()``, ``disable()`` and ``clear()``.  It records every
    thread.  Recordings add up until ``clear()``.

    Args:
        timer: returns the time; called at every event instead of reading the clock.
        timeunit: seconds per unit of ``timer``; 0.0: it returns seconds.
        subcalls: record callers and callees.
        builtins: record C functions, too.
        correct: subtract the profiler's own cost, measured on this machine, from all
            times; never done with a ``timer``.
        backend: ``"auto"``, ``"setprofile"``, or ``"monitoring"`` (CPython 3.12 and later).

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
    """

    #: Class attributes, so that a subclass that forgot ``super().__init__()`` gets only the
    #: recorder's error.
    _correct = True
    stats: dict[Function, Entry]

    def __init__(
        self,
        timer: Callable[[], float] | None = None,
        timeunit: float = 0.0,
        subcalls: bool = True,
        builtins: bool = True,
        *,
        correct: bool = True,
        backend: str = "auto",
    ) -> None:
        # The run that FASTPROF=1 has started leaves the hook to the program.
        current.free_functions()
        super().__init__(timer, timeunit, subcalls, builtins, backend=backend)
        self._correct = bool(correct)
        # The report tells by it whether its calibration was disturbed.
        sample()

    # -- running something -----------------------------------------------------

    def __enter__(self) -> "Profile":  # noqa: PYI034 - Self is new in 3.11
        self.enable()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disable()

    def run(self, cmd: str | types.CodeType) -> "Profile":
        """Profile ``exec(cmd)`` in the namespace of ``__main__``; return this profiler."""
        import __main__

        namespace = __main__.__dict__
        return self.runctx(cmd, namespace, namespace)

    def runctx(
        self,
        cmd: str | types.CodeType,
        globals: dict[str, Any],  # noqa: A002 - cProfile's name
        locals: Any,  # noqa: A002
    ) -> "Profile":
        """Profile ``exec(cmd, globals, locals)``; return this profiler."""
        if type(globals) is dict:
            globals.setdefault("__builtins__", vars(builtins))  # exec() would set fastprof's own
        self.enable()
        try:
            exec(cmd, globals, locals)
        finally:
            self.disable()
        return self

    def runcall(self, func: Callable[..., _T], /, *args: Any, **kw: Any) -> _T:
        """Profile ``func(*args, **kw)``; return what it returns."""
        self.enable()
        try:
            return func(*args, **kw)
        finally:
            self.disable()

    # -- results ---------------------------------------------------------------

    def create_stats(self) -> None:
        """Stop recording and set ``stats``."""
        self.disable()
        self.snapshot_stats()

    def snapshot_stats(self) -> None:
        """Set ``stats``; a recording continues."""
        self.stats = self._table()

    def getstats(self) -> list[ProfilerEntry]:
        """Return the functions with their callees.

        Functions with the same file, line and name are one entry.
        """
        stats = self._table()
        codes: dict[Function, types.CodeType | str] = {}
        for code in self.code_objects():
            codes.setdefault(_label(code), code)
        callees: dict[Function, list[ProfilerSubentry]] = {}
        for label, (_, _, _, _, callers) in stats.items():
            code_or_name = codes.get(label, label[2])
            for caller, edge in callers.items():
                assert isinstance(edge, tuple)
                calls, primitive, own, cumulative = edge
                callees.setdefault(caller, []).append(
                    ProfilerSubentry(code_or_name, calls, calls - primitive, cumulative, own)
                )
        return [
            ProfilerEntry(
                codes.get(label, label[2]), calls, calls - primitive, cumulative, own,
                callees.get(label),
            )
            for label, (primitive, calls, own, cumulative, _) in stats.items()
        ]  # fmt: skip

    def print_stats(self, sort: _Sort = -1) -> None:
        """Stop recording and print the table, the overhead and the notes.

        Args:
            sort: a key of :meth:`pstats.Stats.sort_stats`, or a tuple of them.
        """
        import pstats
        import sys

        keys: Any = sort if isinstance(sort, tuple) else (sort,)
        profiler: Any = self  # typeshed knows the standard library's profilers only
        pstats.Stats(profiler).strip_dirs().sort_stats(*keys).print_stats()
        report = self.report()
        if report.functions:
            from fastprof.names import encodable, printable

            lines = [report.overhead.text, *report.notes]
            said = "".join(f"{printable(line)}\n" for line in lines)
            sys.stdout.write(encodable(f"{said}\n", sys.stdout))

    def dump_stats(self, file: str | os.PathLike[str]) -> None:
        """Stop recording and write ``stats`` for :mod:`pstats`, completely or not at all.

        Raises:
            OSError: ``file`` cannot be written; ``stats`` is set and can be saved
                elsewhere.
            ValueError: its name contains a NUL.
        """
        import marshal

        from fastprof.fileio import atomic_write, resolve_output

        self.create_stats()
        with atomic_write(resolve_output(file)) as stream:
            stream.write(marshal.dumps(self.stats))

    def snapshot(self) -> "Snapshot":
        """Return the recording so far as a :class:`~fastprof.snapshot.Snapshot`."""
        from fastprof.capture.convert import take_snapshot
        from fastprof.session.environment.rank import Identity

        identity = Identity()
        # If the job has several processes, fastprof merge combines their functions.
        meta = identity.to_meta() if identity.world_size > 1 else None
        return take_snapshot(self, meta=meta)

    def report(self) -> "Report":
        """Return the recording so far as a :class:`~fastprof.Report`."""
        from fastprof.results.report import build_report

        return build_report(self.snapshot(), correct_times=self._correct)

    def _table(self) -> dict[Function, Entry]:
        from fastprof.export.pstats_ import stats_dict

        stats = stats_dict(self.snapshot(), correct_times=self._correct)
        if not self.subcalls:
            stats = {label: (*row[:4], {}) for label, row in stats.items()}
        return stats


def run(statement: str | types.CodeType, filename: Any = None, sort: _Sort = -1) -> None:
    """Profile ``statement`` in the namespace of ``__main__``, then print or save the table.

    Args:
        statement: the code to ``exec``; a ``SystemExit`` in it only ends it.
        filename: where to save the table for :mod:`pstats`; None: print it.
        sort: order of the printed table, a key of :meth:`pstats.Stats.sort_stats`.
    """
    import __main__

    namespace = __main__.__dict__
    runctx(statement, namespace, namespace, filename, sort)


def runctx(
    statement: str | types.CodeType,
    globals: dict[str, Any],  # noqa: A002 - cProfile's name
    locals: Any,  # noqa: A002
    filename: Any = None,
    sort: _Sort = -1,
) -> None:
    """Like :func:`run`, in a namespace of the caller's choice."""
    profiler = Profile()
    try:
        profiler.runctx(statement, globals, locals)
    except SystemExit:
        pass
    finally:
        if filename is None:
            profiler.print_stats(sort)
        else:
            profiler.dump_stats(filename)


def _label(code: types.CodeType) -> Function:
    from fastprof.names import printable_name

    return (printable_name(code.co_filename), code.co_firstlineno, printable_name(code.co_name))
