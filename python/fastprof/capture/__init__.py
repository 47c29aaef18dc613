"""Recording: the C recorder, its calibration, and freezing it into a Snapshot."""

from fastprof._core import BusyError, Recorder, Section, force_off, profile_section

__all__ = ["BusyError", "Recorder", "Section", "force_off", "profile_section"]
