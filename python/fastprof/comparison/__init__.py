"""Compares saved runs, and checks conditions on one.

:func:`compare` reports the changes between runs and whether they are more than chance,
:func:`check` whether conditions hold.
"""

from fastprof.comparison.build import compare
from fastprof.comparison.check import check
from fastprof.comparison.model import Comparison

__all__ = ["Comparison", "check", "compare"]
