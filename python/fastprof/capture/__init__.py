"""Recording: the C recorder, its calibration, and freezing it into a Snapshot."""

from fastprof._core import Recorder, Section, force_off, profile_section

__all__ = ["Recorder", "Section", "force_off", "profile_section"]
