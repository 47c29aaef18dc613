"""A report as one HTML file that needs nothing else: no network, no other file.

The page's policy allows the scripts written here, known by their hashes, and nothing from
anywhere.  Data stand in it as JSON in which no markup can begin, and the scripts put them
into the page as text only, so no name in a recording becomes an element, a handler or a
link.  Needs jinja2; without plotly the page has no charts and says so.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
from importlib.resources import files
from typing import Any, TextIO

from fastprof.errors import ExportError
from fastprof.render.html.data import page_data
from fastprof.render.html.library import load_library
from fastprof.report.model import Report
from fastprof.report.writers import compact_json

#: In the order in which they build on each other; the last one runs the page.
SCRIPTS = (
    "dom.js",
    "theme.js",
    "table.js",
    "bars.js",
    "calls.js",
    "functions.js",
    "flame_tree.js",
    "flame_fold.js",
    "flame_view.js",
    "flame.js",
    "charts.js",
    "parts.js",
    "page.js",
)
STYLES = ("page.css", "parts.css", "print.css")

#: JSON may spell every character this way; these begin or end markup.
_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def write(report: Report, stream: TextIO) -> None:
    """Write the page.

    Raises:
        ExportError: jinja2 is not installed.
    """
    stream.write(_template().render(_content(report)))


def _template() -> Any:
    try:
        jinja2 = importlib.import_module("jinja2")
    except ImportError:
        raise ExportError(
            "an HTML report needs jinja2, which is not installed: pip install 'fastprof[html]'"
        ) from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_asset("templates", "report.html"))


def _content(report: Report) -> dict[str, Any]:
    """What the template's places are filled with; the markup in it is all our own."""
    markup = importlib.import_module("markupsafe").Markup
    script = "(() => {\n" + "\n".join(_asset("js", name) for name in SCRIPTS) + "})();\n"
    library = load_library()
    scripts = [script] if library is None else [script, library.text]
    rules = [
        "default-src 'none'",
        "script-src " + " ".join(map(_source, scripts)),
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if library is not None:
        rules.append("img-src data:")  # plotly before 7 tries one of its own
    return {
        "policy": "; ".join(rules),
        "style": markup(page_style()),
        "script": markup(script),
        "library": "" if library is None else library.packed,
        "data": markup(safe_json(page_data(report))),
    }


def page_style() -> str:
    """Return the style sheet of a page."""
    text = "\n".join(_asset("css", name) for name in STYLES)
    return text.replace("/* dark.css */", _asset("css", "dark.css"))


def safe_json(value: Any) -> str:
    """Return ASCII JSON that is also safe inside a script element."""
    text = compact_json(value)
    return text.translate(_MARKUP)


def _source(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _asset(folder: str, name: str) -> str:
    text = files(__name__).joinpath(folder).joinpath(name).read_text(encoding="utf-8")
    # As a browser reads it, or its hash would be another.
    return text.replace("\r\n", "\n")
