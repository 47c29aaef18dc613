"""Measures how fast an HTML report of a large recording opens and responds.

Saves an artificial recording with many functions and contexts as a page, and opens it in headless
Chromium repeatedly.  "usable" is the time from the start of navigation until the whole page is on
the screen and responds.  The other times are from an action until its result is drawn.

    PYTHONPATH=python:tests python benchmarks/html_page.py --functions 50000 --contexts 200000
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

from browser import Browser, browser
from unit.pages import large, report_of

#: Actions of a reader: statements, each timed until its result is drawn.
ACTIONS = {
    "filter functions": "filter.value = 'work_77'; filter.dispatchEvent(new Event('input'))",
    "sort by name": "document.querySelector('.virtual thead button').click()",
    "scroll to the end": "document.querySelector('.tall').scrollTop = 1e9",
    "callers and callees": "document.querySelector('.virtual button.name').click()",
    "search the graph": "search.value = 'work_77'; search.dispatchEvent(new Event('input'))",
    "point at a step": "find('.plot').dispatchEvent("
    "new KeyboardEvent('keydown', { key: 'ArrowRight' }))",
    "zoom by key": "flame.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }))",
}
#: The page responds to typing after a pause of so many ms, which does not count.
PAUSE = 80


def act(page: Browser, statement: str) -> float:
    """Return the ms until the result of an action was drawn."""
    pause = PAUSE if "'input'" in statement else 0
    took = page.run(
        "(async () => { const find = (s) => document.querySelector(s);"
        " const filter = find('#function-filter'), search = find('#flame-search'),"
        " flame = find('.flame'); const began = performance.now();"
        f" {statement};"
        f" await new Promise((done) => setTimeout(done, {pause}));"
        " await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));"
        f" return performance.now() - began - {pause}; }})()"
    )
    return float(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=50_000)
    parser.add_argument("--contexts", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    report = report_of(large(options.functions, options.contexts))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.html"
        began = time.perf_counter()
        report.save(path)
        saved, size = time.perf_counter() - began, path.stat().st_size
        for _ in range(options.rounds):
            with browser() as page:  # a new browser: nothing is compiled yet
                page.size(1400, 900)
                page.open(path)
                ready = page.run("document.documentElement.dataset.ready")
                times.setdefault("usable", []).append(float(ready))
                for name, statement in ACTIONS.items():
                    times.setdefault(name, []).append(act(page, statement))
                assert page.console == []
                version = page.call("Browser.getVersion")["product"]
    print(f"{options.functions} functions, {options.contexts} contexts: {size / 1e6:.1f} MB")
    print(f"saved in {saved:.1f} s; Python {platform.python_version()}, {version}")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {platform.machine()}")
    for name, values in times.items():
        print(f"{name:20} {median(values):7.0f} ms  ({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    main()
