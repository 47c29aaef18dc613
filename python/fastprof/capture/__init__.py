"""Recording: the C recorder, its calibration, and its conversion to a Snapshot."""

try:
    from fastprof._core import Recorder, Section, force_off, profile_section
except ImportError as error:
    from fastprof.capture.missing import why_missing

    raise ImportError(why_missing(error), name=error.name) from error

__all__ = ["Recorder", "Section", "force_off", "profile_section"]
