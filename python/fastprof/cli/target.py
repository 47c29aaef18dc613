"""Finds, loads and sets up the profiled program like ``python`` itself."""

import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import io
import optparse
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pkgutil import get_importer
from runpy import _run_module_as_main  # type: ignore[attr-defined]
from typing import Any

import fastprof.capture
import fastprof.export
import fastprof.findings
import fastprof.integrations._torch
import fastprof.render
import fastprof.results
import fastprof.session
import fastprof.tables
from fastprof import own_builtins, own_imports
from fastprof.capture.options import Recorder
from fastprof.cli.exit_hooks import Endings, complain, ended_by
from fastprof.cli.launchers import launcher_problem
from fastprof.cli.output import output_told_of
from fastprof.cli.parsing import USAGE_ERROR, Options
from fastprof.errors import BusyError, FastprofError
from fastprof.guards import dropped
from fastprof.report.figures import plural
from fastprof.session import current
from fastprof.session.environment import switch
from fastprof.session.run import Run
from fastprof.session.thread_notes import ThreadNotes


class TargetError(FastprofError):
    """There is no such program; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Target:
    """Code to ``exec`` in ``namespace``; ``is_module``: fastprof's code, which calls runpy."""

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
    gc.unfreeze()
    with _traceback_of(target):
        exec(target.code, target.namespace)
    return 0


def execute(target: Target, start: Callable[[], object], endings: Endings) -> int:
    """Run the program between ``start()`` and ``endings.stop()``; return the exit status.

    fastprof works before and after it, so the tables have the program's rows only.
    """
    frozen = gc.get_freeze_count()  # visits each of them: not in the recording
    with _traceback_of(target), endings:
        try:
            start()
        except BusyError as error:
            endings.cancel()
            complain(str(error))
            return USAGE_ERROR
        try:
            try:
                exec(target.code, target.namespace)
            finally:
                if not own_builtins.OURS <= own_builtins.THEIRS:
                    own_builtins.put_back()
                    atexit.register(own_builtins.take_away)
            _wait_for_threads()
            endings.in_order = True
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):  # else there is a message to print
                _wait_for_threads()
            endings.in_order = end.code is None or end.code == 0
            raise
        except (Exception, KeyboardInterrupt) as error:
            ended_by(type(error).__name__)
            run = current.running()
            if isinstance(run, Run):
                _explain_limit(error, run)
            raise
        finally:
            endings.stop()
            if gc.get_freeze_count() <= frozen:  # the program has frozen nothing
                gc.unfreeze()
            endings.end()
    return 0


def _wait_for_threads() -> None:
    """Wait for the program's threads as the interpreter will: they belong in the recording.

    Executors end theirs in the same function, which does nothing when the interpreter calls it.
    """
    shutdown = getattr(threading, "_shutdown", None)
    if not callable(shutdown) or threading.current_thread() is not threading.main_thread():
        return
    run = current.running()
    if isinstance(run, Run):
        run.parts.of(ThreadNotes).note()
    try:
        shutdown()
    except BaseException as error:  # Ctrl-C, a signal handler, a function of the program
        tb = error.__traceback__
        raised = [error.with_traceback(tb and tb.tb_next)]

        def again() -> None:
            threading._shutdown = shutdown  # type: ignore[attr-defined]
            raise raised.pop()

        # The interpreter prints and drops what its call raises.
        threading._shutdown = again  # type: ignore[attr-defined]


def _explain_limit(error: BaseException, run: Run) -> None:
    """Add to an error that follows the limit on steps that loaders were empty by then.

    A trainer that stops on a metric of its validation fails if the validation got no batch.
    """
    limit = run.loading.limit
    if limit.steps is None or not limit.has_ended_loaders or not isinstance(error, Exception):
        return
    note = (
        f"fastprof: after {plural(limit.steps, 'step')} (--steps) no loader "
        "delivered batches, not even to a validation. If that is why it failed, use more steps."
    )
    with contextlib.suppress(Exception):  # an error that takes no note
        if sys.version_info >= (3, 11):
            error.add_note(note)
        else:
            complain(note.partition(": ")[2])


def prepare(args: Sequence[str], *, as_module: bool) -> Target:
    """Set up ``sys.argv``, ``sys.path``, ``sys.modules`` and ``__main__`` for the program.

    ``args[0]`` names it as for ``python``: a script, a folder or an archive with ``__main__.py``,
    ``-`` for standard input, or with ``as_module`` a module.

    Raises:
        TargetError: it does not exist or cannot be read.
        SystemExit: it is not a Python program, and its SyntaxError was printed.
    """
    if as_module:
        return _module(args)
    if args[0] == "-":
        return _standard_input(args)
    path = absolute(args[0])
    importer = get_importer(path)
    if importer is not None:
        if importer.find_spec("__main__") is None:
            raise TargetError(f"can't find '__main__' module in {args[0]!r}")
        return _folder(args, path)
    return _script(args, path)


def absolute(path: str) -> str:
    """Return ``path`` from the root as ``python`` does: ``link/..`` is not ``.``."""
    try:
        return os.path.join(os.getcwd(), path)
    except OSError:  # the current folder was deleted
        return path


def _script(args: Sequence[str], path: str) -> Target:
    try:
        # Not open(): io.open_code() triggers the audit hook for code.
        with io.open_code(path) as file:
            source = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TargetError(f"can't open file {args[0]!r}: {reason}") from None
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    return _source(
        args, source, path, _folder_first(os.path.dirname(os.path.realpath(path))), loader
    )


def _standard_input(args: Sequence[str]) -> Target:
    if sys.stdin is None or sys.stdin.isatty():
        raise TargetError("standard input is a terminal, and no program; name a script")
    source = sys.stdin.buffer.read()
    return _source(args, source, "<stdin>", _folder_first(""), importlib.machinery.BuiltinImporter)


def _source(
    args: Sequence[str], source: bytes, file: str, first: str | None, loader: Any
) -> Target:
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        # Without a traceback, like python's.
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
    namespace = _new_main(args, first)
    # __spec__ stays None, as in any script: a spawned worker then runs the file by its path.
    namespace.update(__file__=file, __loader__=loader)
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    return Target(code, namespace, is_module=False)


def _folder(args: Sequence[str], path: str) -> Target:
    # Python itself puts it there, even with -P.
    _new_main(args, path)
    return _by_runpy("__main__", is_switch=False)


def _module(args: Sequence[str]) -> Target:
    name = args[0]
    try:
        first = _folder_first(os.getcwd())
    except OSError:  # the current folder was deleted: like python
        first = None
    _new_main(["-m", *args[1:]], first)
    try:
        # Only the first part: finding the rest runs the package's own code, which belongs in the
        # profile.
        found = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise TargetError(f"no module named {name!r}")
    return _by_runpy(name, is_switch=True)


def _by_runpy(name: str, *, is_switch: bool) -> Target:
    """Return a program that ``python`` itself starts by this function, which fills ``__main__``."""
    code = compile("run(name, is_switch)", "<string>", "exec", dont_inherit=True)
    namespace = {"run": _run_module_as_main, "name": name, "is_switch": is_switch}
    return Target(code, namespace, is_module=True)


def _folder_first(folder: str) -> str | None:
    return None if getattr(sys.flags, "safe_path", False) else folder


def _new_main(args: Sequence[str], first: str | None) -> dict[str, Any]:
    """Leave ``sys.argv``, ``sys.path`` and ``sys.modules`` to the program; return its globals."""
    sys.argv[:] = args
    own_imports.hand_over(first, _load_own)
    # Each full collection would visit the objects of fastprof's modules, ten times as many as the
    # interpreter's own: tests that collect often took five times as long.  The program's globals
    # come after: whoever looks for the referrers of an object sees them.
    gc.freeze()
    # A real module: pickle and multiprocessing find its definitions there.
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace.update(__loader__=importlib.machinery.BuiltinImporter, __builtins__=builtins)
    if "__annotations__" in vars(sys.modules["__main__"]):  # python's own, before 3.14
        namespace.update(__annotations__={})
    sys.modules["__main__"] = module
    return namespace


def _load_own() -> None:
    """Import what fastprof may need while the program runs and at its end."""
    for package in (
        fastprof.capture,
        fastprof.session,
        fastprof.integrations._torch,
        fastprof.findings,
        fastprof.tables,
        fastprof.export,
        fastprof.render,
    ):
        load_package(package)
    Recorder()  # the extension finds threading


def load_package(package: types.ModuleType) -> None:
    """Import all modules of a package of fastprof's."""
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)


@contextlib.contextmanager
def _traceback_of(target: Target) -> Iterator[None]:
    """Make the traceback of an error that ends the process begin in the profiled program."""
    try:
        yield
    except SystemExit:
        raise
    except BaseException as error:
        with dropped(BaseException):  # an audit hook may refuse to show frames
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
    frames = _of_target(error, target)

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


def _of_target(error: BaseException, target: Target) -> types.TracebackType | None:
    tb = traceback = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not target.code:
        tb = tb.tb_next
    if tb is None:  # not the program's error, but fastprof's, or Ctrl-C while it saved
        return None if isinstance(error, KeyboardInterrupt) else traceback
    return tb.tb_next if target.is_module else tb
