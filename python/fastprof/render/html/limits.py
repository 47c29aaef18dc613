"""How much of a recording one page holds; what is left out is said on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """Bounds on what a page embeds, so that a browser opens it at once.

    ``contexts`` is over all flame graphs; the smallest ones are drawn together as one.
    ``functions`` and ``edges`` (pairs of caller and callee) are those with most time,
    ``rows`` those of any other table.  ``sources`` are the functions whose source lines are
    read, once by cumulative time for the program's own and once by self time for all;
    ``source_lines`` is over one of them, ``source_characters`` over all.
    """

    contexts: int = 250_000
    functions: int = 100_000
    edges: int = 300_000
    rows: int = 500
    sources: int = 60
    source_lines: int = 60
    source_characters: int = 150_000


LIMITS = PageLimits()
#: Of each phase of the run that is not the one shown first.
OTHER_PHASES = PageLimits(contexts=10_000, functions=1_000, edges=5_000)
