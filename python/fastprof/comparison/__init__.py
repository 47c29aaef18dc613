"""Comparing saved runs, and checking what one says.

:func:`compare` says what changed between runs and whether that is more than chance,
:func:`check` whether conditions hold.
"""

from fastprof.comparison.build import compare
from fastprof.comparison.check import check
from fastprof.comparison.model import Comparison

__all__ = ["Comparison", "check", "compare"]
