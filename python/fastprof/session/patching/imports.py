"""Imports libraries without the function hook, if one thread can switch it off.

Before Python 3.12 an import of torch is a third slower under the hook, and no report shows its two
million calls one by one.  A module's loader shows where the body of the module begins and ends.
"""

from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

from fastprof.guards import own_errors
from fastprof.report.origin import import_class
from fastprof.session.part import Part
from fastprof.session.patching.replaced import Replaced

#: The class of a library module's body by :func:`fastprof.report.origin.import_class`.
_LIBRARYS = 2

#: The import system leaves frames of this file out of the tracebacks of failed imports.
_IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"


class LightImports(Part):
    """Suspends the recorder while the body of a library's module runs in set-up.

    Modules have their rows, with the time of their callees.  In the body of one of the program's
    modules calls are recorded as usual.
    """

    kind = "integration"
    in_loop = True

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._replaced = Replaced()

    def install(self) -> None:
        """Begin to follow imports."""
        around = _around(SourceFileLoader.exec_module, self._recorder)
        self._replaced.put(SourceFileLoader, "exec_module", around)

    def end(self, count: int = 0) -> None:
        """Stop following imports: the run is about to end."""
        self._replaced.restore()

    def forget(self) -> None:
        """Clean up in a forked child, where the run has ended."""
        self.end()


def _around(original: Callable[[Any, Any], None], recorder: Any) -> Callable[[Any, Any], None]:
    rest, end_rest = recorder.rest, recorder.end_rest

    def exec_module(loader: Any, module: Any) -> None:
        body = None
        try:
            path = loader.path
            if import_class(path, "<module>") == _LIBRARYS:
                body = rest(path)
            else:
                end_rest(None)  # until the outermost body of a library ends
        except own_errors():  # a foreign loader
            pass
        except BaseException:  # Ctrl-C: the rest would not end
            end_rest(None)
            raise
        try:
            original(loader, module)
        finally:
            if body is not None:
                end_rest(body)

    exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
    return exec_module
