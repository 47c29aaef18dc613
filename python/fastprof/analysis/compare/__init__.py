"""Comparing saved runs, and checking what one says.

:func:`compare` says what changed between runs and whether that is more than chance,
:func:`check` whether conditions hold.
"""

from fastprof.analysis.compare.build import compare
from fastprof.analysis.compare.check import check
from fastprof.analysis.compare.model import Comparison

__all__ = ["Comparison", "check", "compare"]
