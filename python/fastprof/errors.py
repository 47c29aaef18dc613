"""The exception classes of fastprof; all of them are :class:`FastprofError`.

Each is also the built-in exception that says the same, so that ``except ValueError`` goes on
working.  The extension raises :class:`BusyError` from here.
"""

from __future__ import annotations


class FastprofError(Exception):
    """The base of fastprof's exception classes; bad arguments raise ValueError or TypeError."""


class StateError(FastprofError, RuntimeError):
    """A call came out of order: started twice, ``step()`` outside a run, ...

    The message says what is running, where it was started, and what to do instead.
    """


class BusyError(FastprofError, RuntimeError):
    """Another profiler holds the interpreter's hook; the message says which and the remedy."""


class LoadError(FastprofError, ValueError):
    """A file is not a saved run that can be read; one line that names the file and why."""


class SnapshotError(FastprofError, ValueError):
    """A saved run is damaged; the message names the field and the reason."""


class ExportError(FastprofError, ValueError):
    """A report cannot be written in this format.

    No format has that name or suffix, the report lacks what the format shows (a tree of
    calling contexts, GPU figures, a trace), or a package that the format needs is missing.
    The message says which, and the remedy.
    """


class MergeError(FastprofError, ValueError):
    """A trace of torch.profiler cannot be merged; the message says why."""


class ConditionError(FastprofError, ValueError):
    """A condition cannot be understood, or is about something that was not recorded."""


class CheckError(FastprofError, AssertionError):
    """A report does not meet its conditions; one line per condition, with its values."""


class UnknownSectionError(FastprofError, KeyError):
    """No section has that name; the message lists those there are."""

    def __str__(self) -> str:
        # KeyError shows repr() of its argument, which garbles a sentence.
        return str(self.args[0]) if self.args else ""
