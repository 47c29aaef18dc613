"""How much of a recording one page holds; what is left out is said on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """Bounds on what a page embeds, so that a browser opens it at once.

    ``contexts`` is over all flame graphs; the smallest ones are drawn together as one.
    ``functions`` and ``edges`` (pairs of caller and callee) are those with most time,
    ``rows`` those of any other table.
    """

    contexts: int = 250_000
    functions: int = 100_000
    edges: int = 300_000
    rows: int = 500


LIMITS = PageLimits()
