"""The exception classes of fastprof, all derived from :class:`FastprofError`.

Each also derives from the matching built-in exception, so ``except ValueError`` still works.  The
extension raises :class:`BusyError` from here.
"""


class FastprofError(Exception):
    """The base of fastprof's exception classes; bad arguments raise ValueError or TypeError."""


class StateError(FastprofError, RuntimeError):
    """A call came out of order: started twice, ``step()`` outside a run, ...

    The message names the running profiler, the place of its start, and the remedy.
    """


class BusyError(FastprofError, RuntimeError):
    """Another profiler holds the interpreter's hook; the message names it and the remedy."""


class LoadError(FastprofError, ValueError):
    """A file is not a readable saved run; one line with the file and the reason."""


class SnapshotError(FastprofError, ValueError):
    """A saved run is damaged; the message names the field and the reason."""


class ExportError(FastprofError, ValueError):
    """A report cannot be written in this format.

    No format has that name or suffix, the report lacks data for the format (a tree of calling
    contexts, GPU figures, a trace), or a package for the format is missing.  The message says
    which, and the remedy.
    """


class MergeError(FastprofError, ValueError):
    """A trace of torch.profiler cannot be merged; the message says why."""


class ConditionError(FastprofError, ValueError):
    """A condition is not valid, or refers to data that was not recorded."""


class UnknownSectionError(FastprofError, KeyError):
    """No section has that name; the message lists the existing ones."""

    def __str__(self) -> str:
        # KeyError shows repr() of its argument, which garbles a sentence.
        return str(self.args[0]) if self.args else ""
