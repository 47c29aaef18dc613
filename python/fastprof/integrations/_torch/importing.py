"""Detects the import of torch, or another module, without importing it.

A finder on ``sys.meta_path`` waits for the import, lets the other finders find the module
and is called when its code has run.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from fastprof.session.patching.finders import add_finder, remove_finder
from fastprof.session.patching.wrapping import FAILED, wrap


def is_complete(name: str) -> bool:
    """Return whether the module is imported and its code has run."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


class TorchImport:
    """Calls ``ready`` once the module is imported, at once if it already is.

    Args:
        ready: called without arguments in the importing thread.
    """

    def __init__(self, ready: Callable[[], object], module: str = "torch") -> None:
        self._ready = ready
        self._module = module
        self._waiting = False

    def watch(self) -> None:
        """Start waiting."""
        if is_complete(self._module):
            self._ready()
            return
        self._waiting = True
        add_finder(self)

    def forget(self) -> None:
        """Stop waiting."""
        self._waiting = False
        remove_finder(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module as the other finders do; find nothing else."""
        if not self._waiting:
            return None
        if name != self._module:
            if is_complete(self._module):  # its import was running when the waiting began
                self._arrived()
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._follow(spec)
                return spec  # type: ignore[no-any-return]
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def has_run(args: Any, kwargs: Any, result: Any) -> None:
            vars(loader).pop("exec_module", None)
            if result is not FAILED:
                self._arrived()

        try:
            loader.exec_module = wrap(run, None, has_run)
        except AttributeError:  # a loader without attributes; the next import detects it
            return

    def _arrived(self) -> None:
        if self._waiting and self._module in sys.modules:
            self.forget()
            self._ready()
