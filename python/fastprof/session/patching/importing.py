"""Detects the import of torch, or another module, without importing it.

A finder on ``sys.meta_path`` waits for the import, lets the other finders find the module
and is called when its code has run.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from fastprof.capture.around import Around, find_elsewhere
from fastprof.session.patching.finders import add_finder, remove_finder


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
        #: Finds the module as the other finders do; finds nothing else.
        self.find_spec = Around(partial(find_elsewhere, self, module), self._asked, self._found)

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

    def _asked(self, name: str, path: Any = None, target: Any = None) -> None:
        # An import of the module may have been running when the waiting began.
        if self._waiting and name != self._module and is_complete(self._module):
            self._arrived()

    def _found(self, _: None, spec: Any) -> None:
        loader: Any = getattr(spec, "loader", None)
        run = getattr(loader, "exec_module", None)
        if run is None or not self._waiting:
            return

        def has_run(_: None, result: object) -> None:
            vars(loader).pop("exec_module", None)
            if result is not ...:
                self._arrived()

        try:
            loader.exec_module = Around(run, None, has_run)
        except AttributeError:  # a loader without attributes; the next import detects it
            return

    def _arrived(self) -> None:
        if self._waiting and self._module in sys.modules:
            self.forget()
            self._ready()
