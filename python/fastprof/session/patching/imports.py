"""Imports libraries without the function hook, if one thread can switch it off.

Before Python 3.12 an import of torch is a third slower under the hook, and no report shows its two
million calls one by one.  A module's loader shows where the body of the module begins and ends.
"""

from importlib.machinery import SourceFileLoader
from typing import Any

from fastprof.capture.around import Around
from fastprof.guards import own_errors
from fastprof.report.origin import import_class
from fastprof.session.part import Part
from fastprof.session.patching.replaced import Replaced

#: The class of a library module's body by :func:`fastprof.report.origin.import_class`.
_LIBRARYS = 2


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
        around = Around(SourceFileLoader.exec_module, self._begins, self._ended)
        self._replaced.put(SourceFileLoader, "exec_module", around)

    def end(self, count: int = 0) -> None:
        """Stop following imports: the run is about to end."""
        self._replaced.restore()

    def forget(self) -> None:
        """Clean up in a forked child, where the run has ended."""
        self.end()

    def _begins(self, loader: Any, module: object) -> object:
        """Return what represents the body that begins, or None: it is recorded as usual."""
        try:
            path = loader.path
            if import_class(path, "<module>") == _LIBRARYS:
                return self._recorder.rest(path)
            self._recorder.end_rest(None)  # until the outermost body of a library ends
        except own_errors():  # a foreign loader
            pass
        except BaseException:  # Ctrl-C: the rest would not end
            self._recorder.end_rest(None)
            raise
        return None

    def _ended(self, body: Any, result: object) -> None:
        if body is not None:
            self._recorder.end_rest(body)
