"""The status line of ``fastprof run``."""

from __future__ import annotations

import io

import pytest
from fastprof.cli.progress import Progress


def test_the_line_is_not_glued_to_a_bar_of_tqdm() -> None:
    tqdm = pytest.importorskip("tqdm")
    stream = io.StringIO()
    times = iter([0.0, 100.0])
    progress = Progress(stream, lambda: next(times))
    with tqdm.tqdm(total=10, file=stream) as bar:
        bar.update(3)
        bar.refresh()
        progress.log_metrics({}, 10)
        progress.log_metrics({}, 20)
        text = stream.getvalue()
    before, line, after = text.partition("fastprof: step 20")
    assert line
    assert before.endswith("\r")
    assert "\n" in after
    assert "30%" in after
