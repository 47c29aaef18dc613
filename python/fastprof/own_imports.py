"""Separates the imports of the commands from those of the profiled program.

A module of the program may have the name of one in the standard library.  A command imports some
hundred standard modules before the program, and others while it runs and after it.  So:

- until the program starts, the standard library stands first on ``sys.path`` (:func:`begin`);
- the program gets the ``sys.path`` that ``python`` would give it, and ``sys.modules`` without the
  standard modules that its own ones shadow (:func:`hand_over`);
- what fastprof imports later, it imports inside :class:`Protected`, or by :func:`standard`;
- if tracemalloc traces from the start (``-X tracemalloc=25``), it begins anew with the program: it
  makes imports 30 times slower, and would give the program fastprof's memory for its own.

Modules that the program does not shadow stay in ``sys.modules``: a second copy of ``threading`` or
``logging`` would split their state (docs/decisions/0032-own-imports.md).  Where fastprof is a
library of the program, nothing here has an effect.
"""

import os
import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: What ``python`` itself has imported before it runs a script.
_OF_PYTHON = frozenset(
    [
        "_collections_abc",
        "_sitebuiltins",
        "abc",
        "codecs",
        "encodings",
        "genericpath",
        "io",
        "os",
        "posixpath",
        "site",
        "stat",
        "zipimport",
    ]
)

#: The entries of ``sys.path`` with the standard library.
_standard: list[str] = []
#: The rest of ``sys.path``, without the folder of the command; None: fastprof is a library.
_others: list[str] | None = None
#: ``sys.path`` without the folder of the command, in the interpreter's order.
_given: list[str] = []
#: The entered :class:`Protected`; what they keep of the program: its modules, and its ``sys.path``.
_entered: "list[Protected]" = []
_theirs: "dict[str, Any]" = {}
_path: list[str] | None = None
#: What :func:`standard` has returned.
_found: "dict[str, Any]" = {}
#: fastprof's own modules that the program must not find.
_kept: "dict[str, Any]" = {}
#: The frames per trace of tracemalloc, which is off until :func:`hand_over`; 0: it was off.
_traced_frames = 0


#: Held while :func:`first_use` imports, and by a fork.
_importing = RLock()
_forks_wait = False
_FORK_WAITS_S = 10.0


def first_use(name: str) -> "Any":
    """Import a module of fastprof that a public name needs; one thread at a time.

    Packages import their modules.  So two threads could each wait for a module that the other
    imports, and Python would show one of them a module that is not complete.  A fork waits, too:
    its child could never complete what another thread imports.
    """
    global _forks_wait
    import importlib

    from fastprof.clock import acquired

    with _importing:
        if not _forks_wait and hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: acquired(_importing, _FORK_WAITS_S),
                after_in_parent=_forked,
                after_in_child=_forked_child,
            )
            _forks_wait = True
        return importlib.import_module(name)


def _forked() -> None:
    from contextlib import suppress

    with suppress(RuntimeError):  # the fork waited long enough, or it began before the registration
        _importing.release()


def _forked_child() -> None:
    global _importing
    _importing = RLock()


def is_own_command() -> bool:
    """Return whether this process is ``python -m fastprof`` or ``fastprof``."""
    module = _module_run(sys.orig_argv[1:])
    if module is not None:
        return module.partition(".")[0] == "fastprof"
    # Not a module that is being located: sys.argv is the program's.
    argv: list[str] = getattr(sys, "argv", None) or [""]
    return os.path.basename(argv[0]).partition(".")[0] == "fastprof"


def begin() -> None:
    """Put the standard library first on ``sys.path``, until :func:`hand_over`."""
    global _others, _standard
    if _others is not None:
        return
    _pause_tracing()
    path = list(sys.path)
    # Empty: python -c, as fastprof starts the ranks of a job.
    safe = getattr(sys.flags, "safe_path", False)
    if path and not safe and path[0] in ("", _command_folder()):
        del path[0]
    _standard = [entry for entry in path if _is_standard(entry)]
    _others = [entry for entry in path if not _is_standard(entry)]
    _given[:] = path
    replaced = _replaced()
    if replaced:
        # runpy, which came before, has found these on the path.  Not what sitecustomize has put in
        # a module's place: that is the program's.
        replaced &= _shadowed(sys.path)
    sys.path[:] = [*_standard, *_others]
    for name in replaced:
        del sys.modules[name]


def _pause_tracing() -> None:
    global _traced_frames
    try:
        import _tracemalloc  # not on a path: it is in the interpreter
    except ImportError:
        return
    if _tracemalloc.is_tracing():
        _traced_frames = _tracemalloc.get_traceback_limit()
        _tracemalloc.stop()


def hand_over(first: str | None, load: "Callable[[], object]") -> None:
    """Leave ``sys.path`` and ``sys.modules`` to the program.

    Args:
        first: the program's ``sys.path[0]``; None: it has none.
        load: imports what fastprof needs while the program runs and at its end; called only if the
            program has a module with the name of a standard one, or tracemalloc traces.
    """
    global _traced_frames
    program = [] if first is None else [first]
    if _others is None:
        sys.path[:0] = program
        return
    shadowed = _shadowed([*program, *_given])
    if shadowed or _traced_frames:
        load()
    if _traced_frames:
        import _tracemalloc

        _tracemalloc.start(_traced_frames)
        _traced_frames = 0
    sys.path[:] = [*program, *_given]
    for name in list(sys.modules):
        if name.partition(".")[0] in shadowed:
            _kept[name] = sys.modules.pop(name)


class Protected:
    """Context manager: imports find the standard library, whatever the program has imported.

    The first of several threads changes the modules, and the last one to leave changes them back.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        if _others is None:
            return
        _entered.append(self)
        if _entered[0] is not self:
            return
        try:
            _hide_theirs()
        except BaseException:  # from a signal handler
            _entered.remove(self)
            sys.modules.update(_theirs)
            raise

    def __exit__(self, *exc_info: object) -> None:
        if self in _entered:
            _entered.remove(self)
            if not _entered:
                _show_theirs()


def _hide_theirs() -> None:
    global _path
    _theirs.clear()
    names = _shadowed(sys.path) | _replaced() | {name.partition(".")[0] for name in _kept}
    if not names:
        return
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            _theirs[name] = sys.modules.pop(name)
    sys.modules.update(_kept)
    # The program's folders stay behind: another thread may import from them meanwhile.
    _path, sys.path = sys.path, [*_standard, *sys.path]


def _show_theirs() -> None:
    global _path
    if _path is None:
        return
    sys.path, _path = _path, None
    names = {name.partition(".")[0] for name in (*_theirs, *_kept)}
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            _kept[name] = sys.modules.pop(name)
    sys.modules.update(_theirs)
    _theirs.clear()


def standard(name: str) -> "Any":
    """Return a standard module; only the first call looks for the program's modules.

    That reads the program's folder, which may have any number of files.
    """
    module = _found.get(name)
    if module is None:
        with Protected():
            module = _found[name] = __import__(name)
    return module


def _shadowed(path: list[str]) -> set[str]:
    """Return the names of standard modules for which ``path`` has another module first."""
    from _frozen_importlib_external import PathFinder

    before: list[str] = []
    for entry in path:
        if _is_standard(entry):
            break
        before.append(entry)
    names: set[str] = set()
    for entry in before:
        try:
            names.update(file.partition(".")[0] for file in os.listdir(entry or os.curdir))
        except NotADirectoryError:  # an archive
            names.update(sys.stdlib_module_names)
        except OSError:
            pass
    found = set()
    for name in names & sys.stdlib_module_names - _OF_PYTHON - set(sys.builtin_module_names):
        spec = None if _is_frozen(name) else PathFinder.find_spec(name, before)
        if spec is not None and spec.loader is not None:  # a folder alone shadows nothing
            found.add(name)
    return found


def _replaced() -> set[str]:
    """Return the names of standard modules that are others in ``sys.modules``."""
    names = set()
    for name in sys.stdlib_module_names - _OF_PYTHON:
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if isinstance(file, str) and not file.startswith(tuple(_standard)):
            names.add(name)
    return names


def _is_standard(entry: str) -> bool:
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    return os.path.basename(entry) in ("lib-dynload", archive) or (
        entry != "" and entry == os.path.dirname(getattr(os, "__file__", ""))
    )


def _is_frozen(name: str) -> bool:
    import _imp

    return _imp.is_frozen(name)


def _command_folder() -> str | None:
    """Return what the interpreter has put first on ``sys.path`` for the command."""
    if _module_run(sys.orig_argv[1:]) is None:
        return os.path.dirname(os.path.realpath(sys.argv[0]))
    try:
        return os.getcwd()
    except OSError:
        return None


def _module_run(arguments: list[str]) -> str | None:
    """Return the module that ``-m`` names in the interpreter's arguments, before the script."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            return None
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for i, letter in enumerate(argument[1:], 2):
            if letter == "m":
                return argument[i:] or next(rest, "")
            if letter == "c":
                return None
            if letter in "WX":
                if not argument[i:]:
                    next(rest, None)
                break
    return None
