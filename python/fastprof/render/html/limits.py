"""Limits on the content of a page; the page says what they left out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """Limits on a page's data, so that a browser opens it at once.

    ``contexts`` is the limit of all flame graphs together; the smallest contexts are drawn as one.
    ``functions`` and ``edges`` (pairs of caller and callee) keep those with most time, ``rows`` is
    the limit of any other table.  ``sources`` is the number of functions with source lines, once by
    cumulative time for the program's own and once by self time for all; ``source_lines`` is the
    limit of one of them, ``source_characters`` of all.
    """

    contexts: int = 100_000
    functions: int = 20_000
    edges: int = 100_000
    rows: int = 500
    sources: int = 60
    source_lines: int = 60
    source_characters: int = 150_000


LIMITS = PageLimits()
#: For each phase of the run except the default one.
OTHER_PHASES = PageLimits(contexts=10_000, functions=1_000, edges=5_000)
