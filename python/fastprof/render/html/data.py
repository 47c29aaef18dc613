"""Data for the scripts of a page: flame graphs and functions, as columns of plain values."""

from collections.abc import Sequence
from typing import Any

from fastprof.render.html.flames import flame_columns
from fastprof.render.html.functions import function_columns
from fastprof.render.html.run_phases import PhaseView, phase_views
from fastprof.render.html.sources import Sources
from fastprof.render.html.strings import Strings
from fastprof.report.model import Report


def page_data(report: Report) -> dict[str, Any]:
    """Return names of ``phases``, ``strings``, and ``flame`` and ``functions`` if there are any.

    Names in it are fit for display.
    """
    strings = Strings()
    views = phase_views(report)
    drawn = {"flame": flame_columns(views, strings), "functions": _functions(views, strings)}
    found = {name: columns for name, columns in drawn.items() if columns is not None}
    return {"phases": [view.name for view in views], "strings": strings.table(), **found}


def _functions(views: Sequence[PhaseView], strings: Strings) -> dict[str, Any] | None:
    if not any(view.report.functions for view in views):
        return None
    sources = Sources(views[0].report.snapshot)
    phases = [
        function_columns(view.report.functions, strings, view.limits, sources) for view in views
    ]
    return {"phases": phases, "sources": sources.blocks}
