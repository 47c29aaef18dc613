"""Libraries are imported without the function hook, where one thread can do without it.

Before Python 3.12 an import of torch is a third slower under the hook, and no report shows
its two million calls one by one.  A module's loader tells when the body of the module
begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

from fastprof.report.origin import import_class

#: The class that :func:`fastprof.report.origin.import_class` gives a library module's body.
_LIBRARYS = 2

#: The import system leaves frames in this file out of the tracebacks of failed imports.
_IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"


class LightImports:
    """Lets the recorder rest while the body of a library's module runs in set-up.

    Modules have their rows, with the time of what they call.  From where the body of one
    of the program's modules begins calls are recorded as ever.

    Args:
        recorder: the run's.
    """

    def __init__(self, recorder: Any) -> None:
        self._installed = _around(SourceFileLoader.exec_module, recorder)

    def install(self) -> None:
        """Begin to follow imports."""
        SourceFileLoader.exec_module = self._installed  # type: ignore[method-assign, assignment]

    def end(self) -> None:
        """Follow no more imports: the run is about to end."""
        if vars(SourceFileLoader).get("exec_module") is self._installed:
            del SourceFileLoader.exec_module  # inherited

    def forget(self) -> None:
        """The run has ended in this forked child."""
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
        except Exception:  # a foreign loader
            pass
        except BaseException:  # Ctrl-C: what began here does not end
            end_rest(None)
            raise
        try:
            original(loader, module)
        finally:
            if body is not None:
                end_rest(body)

    exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
    return exec_module
