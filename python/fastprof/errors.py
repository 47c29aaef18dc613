"""Errors of the public face that are nobody else's.

``BusyError`` (another profiler holds the hook) comes from the extension and
``SnapshotError`` (a damaged file) from :mod:`fastprof.snapshot`.
"""

from __future__ import annotations


class StateError(RuntimeError):
    """A call came out of order: started twice, ``step()`` outside a run, ...

    The message says what is running, where it was started, and what to do instead.
    """


class LoadError(ValueError):
    """A file is not a saved run that can be read; one line that names the file and why."""


class UnknownFormatError(ValueError):
    """No output format has that name or file suffix; the message lists those there are."""


class ConditionError(ValueError):
    """A condition cannot be understood, or is about something that was not recorded."""


class CheckError(AssertionError):
    """A report does not hold what was asked of it; a line per condition, with its values."""


class NoTreeError(ValueError):
    """The output needs a calling-context tree, and this report was read from a file without."""


class NoGpuError(ValueError):
    """The output is about the GPU, and this recording has no figures of one."""


class NoTraceError(ValueError):
    """The output is a trace, and this recording has none."""


class MergeError(ValueError):
    """A trace of torch.profiler cannot be merged; the message says why."""


class MissingExtraError(ValueError):
    """The output needs a package that is not installed; the message names the extra to install."""


class UnknownSectionError(KeyError):
    """No section has that name; the message lists those there are."""

    def __str__(self) -> str:
        # KeyError shows repr() of its argument, which garbles a sentence.
        return str(self.args[0]) if self.args else ""
