"""Finds, loads and sets up the profiled program like ``python`` itself."""

import builtins
import contextlib
import importlib.machinery
import importlib.util
import io
import optparse
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastprof.cli.exit_hooks import Endings, complain
from fastprof.cli.launchers import launcher_problem
from fastprof.cli.output import output_told_of
from fastprof.cli.parsing import USAGE_ERROR, Options
from fastprof.errors import BusyError, FastprofError
from fastprof.report.figures import plural
from fastprof.session import current
from fastprof.session.environment import switch
from fastprof.session.run import Run


class TargetError(FastprofError):
    """There is no such program; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Target:
    """Code to ``exec`` in ``namespace``; ``is_module`` distinguishes ``-m`` from a script."""

    code: types.CodeType
    namespace: dict[str, Any]
    is_module: bool


def parse_target(parser: Options, argv: Sequence[str]) -> tuple[optparse.Values, list[str]]:
    """Parse a command's options and ``[-m MODULE | SCRIPT] ARGS``; exit without a program."""
    parser.disable_interspersed_args()
    parser.flag("-m", "profile a library module, as python -m does", dest="module")
    with output_told_of():
        options, args = parser.parse_args(list(argv))
    if not args:
        parser.error("SCRIPT or -m MODULE is missing: the program to profile, and its arguments")
    return options, args


def prepare_or_run(args: Sequence[str], *, as_module: bool) -> Target | int:
    """Set up the program in ``args[0]``, like :func:`prepare`.

    Returns:
        the program; or the exit status if it cannot be run, or was run without being profiled
        (``FASTPROF=0``).
    """
    problem = launcher_problem(args, as_module=as_module)
    if problem is not None:
        complain(problem)
        return USAGE_ERROR
    try:
        target = prepare(args, as_module=as_module)
    except TargetError as error:
        complain(str(error))
        return 1 if as_module else USAGE_ERROR  # python's own status
    if switch.MODE != "off":
        return target
    complain("FASTPROF=0: the program runs without being profiled")
    with _traceback_of(target):
        exec(target.code, target.namespace)
    return 0


def execute(target: Target, start: Callable[[], object], endings: Endings) -> int:
    """Run the program between ``start()`` and ``endings.stop()``; return the exit status.

    fastprof works before and after it, so the tables have the program's rows only.
    """
    with _traceback_of(target), endings:
        try:
            start()
        except BusyError as error:
            endings.cancel()
            complain(str(error))
            return USAGE_ERROR
        try:
            exec(target.code, target.namespace)
            endings.in_order = True
        except SystemExit as end:
            endings.in_order = end.code is None or end.code == 0
            raise
        except Exception as error:
            run = current.running()
            if isinstance(run, Run):
                run.facts["ended_by"] = type(error).__name__
                _explain_limit(error, run)
            raise
        finally:
            endings.stop()
    return 0


def _explain_limit(error: Exception, run: Run) -> None:
    """Add to an error that follows the limit on steps that loaders were empty by then.

    A trainer that stops on a metric of its validation fails if the validation got no batch.
    """
    if run.max_steps is None or not run.limit_reached:
        return
    note = (
        f"fastprof: after {plural(run.max_steps, 'step')} (--steps, or max_steps) no loader "
        "delivered batches, not even to a validation. If that is why it failed, use more steps."
    )
    with contextlib.suppress(Exception):  # an error that takes no note
        if sys.version_info >= (3, 11):
            error.add_note(note)
        else:
            complain(note.partition(": ")[2])


def prepare(args: Sequence[str], *, as_module: bool) -> Target:
    """Set up ``sys.argv``, ``sys.path`` and ``__main__`` for the program in ``args[0]``.

    Raises:
        TargetError: it does not exist or cannot be read.
        SystemExit: it is not a Python program, and its SyntaxError was printed.
    """
    return _module(args) if as_module else _script(args)


def _script(args: Sequence[str]) -> Target:
    path = args[0]
    try:
        # Not open(): io.open_code() triggers the audit hook for code.
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TargetError(f"can't open file {path!a}: {reason}") from None
    # cProfile's tables have the name as given.
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        # Without a traceback, like python's.
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
    absolute = os.path.abspath(path)
    sys.argv[:] = args
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    # A real module: pickle and multiprocessing find its definitions there.
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=absolute,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", absolute),
        # None as in any script: a spawned worker then runs the file by its path.
        __spec__=None,
        __builtins__=builtins,
    )
    sys.modules["__main__"] = module
    return Target(code, module.__dict__, is_module=False)


def _module(args: Sequence[str]) -> Target:
    name = args[0]
    if not getattr(sys.flags, "safe_path", False) and sys.path[:1] not in ([""], [os.getcwd()]):
        sys.path.insert(0, os.getcwd())
    try:
        # Only the first part: finding the rest runs the package's own code, which belongs in the
        # profile.
        found = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise TargetError(f"no module named {name!a}")
    sys.argv[:] = args
    import runpy

    code = compile(
        "run_module(modname, run_name='__main__', alter_sys=True)",
        "<string>",
        "exec",
        dont_inherit=True,
    )
    return Target(code, {"run_module": runpy.run_module, "modname": name}, is_module=True)


@contextlib.contextmanager
def _traceback_of(target: Target) -> Iterator[None]:
    """Make the traceback of an error that ends the process begin in the profiled program."""
    try:
        yield
    except SystemExit:
        raise
    except BaseException as error:
        _hide_own_frames(error, target)
        raise


def _hide_own_frames(error: BaseException, target: Target) -> None:
    """Let ``sys.excepthook`` see the program's frames alone, once.

    The interpreter calls ``sys.excepthook`` as soon as the command returns.  The program's own hook
    is wrapped no earlier, and for this one call: it is the program's again in functions at exit,
    and nothing keeps the program's globals alive.
    """
    show = getattr(sys, "excepthook", None)
    if show is None:
        return
    frames = _of_target(error.__traceback__, target)

    def excepthook(
        kind: type[BaseException], error: BaseException, tb: types.TracebackType | None
    ) -> None:
        nonlocal frames
        sys.excepthook = show
        begun, frames = frames, None
        # What the interpreter has just set, for debuggers.
        sys.last_traceback = begun
        show(kind, error.with_traceback(begun), begun)

    sys.excepthook = excepthook


def _of_target(traceback: types.TracebackType | None, target: Target) -> types.TracebackType | None:
    tb = traceback
    while tb is not None and tb.tb_frame.f_code is not target.code:
        tb = tb.tb_next
    if tb is None:
        return traceback  # not the program's error, but fastprof's
    if not target.is_module:
        return tb
    tb = tb.tb_next
    while tb is not None and tb.tb_frame.f_globals.get("__name__") == "runpy":
        tb = tb.tb_next
    return tb
