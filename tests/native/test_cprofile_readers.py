"""Third-party readers open a real dump and show the same figures as pstats."""

from __future__ import annotations

import io
import json
import pstats
import time
from pathlib import Path
from typing import Any

import fastprof
import pytest
from cprofile_programs import PROGRAMS


@pytest.fixture
def dump(tmp_path: Path, backend: str) -> Path:
    profiler = fastprof.Profile(backend=backend)
    # exec: creates a name that no reader expects in a table.
    scope: dict[str, Any] = {}
    exec(
        compile("def \u00e9tat(): return [len(str(i)) for i in range(5)]", "<caf\u00e9>", "exec"),
        scope,
    )
    profiler.enable()
    for run in PROGRAMS.values():
        run()
    scope["\u00e9tat"]()
    profiler.disable()
    path = tmp_path / "p.stats"
    profiler.dump_stats(path)
    return path


def test_s0_05_pstats(dump: Path) -> None:
    stream = io.StringIO()
    stats = pstats.Stats(str(dump), stream=stream)
    stats.strip_dirs().sort_stats(pstats.SortKey.CUMULATIVE).print_stats(30)
    stats.sort_stats(pstats.SortKey.TIME).print_stats(30)
    stats.print_stats(r"\(move\)")
    stats.print_callers("move")
    stats.print_callees("move")
    text = stream.getvalue()
    assert "Ordered by: cumulative time" in text
    assert "due to restriction <30>" in text
    assert "127/1" in text  # towers of Hanoi: 2 ** 7 - 1 calls, one of them from outside
    assert text.count("126/2") == 2  # calls by itself: as caller and as callee


def test_s0_06_the_first_rows_are_in_descending_order(dump: Path) -> None:
    stats = pstats.Stats(str(dump), stream=io.StringIO())
    for key, column in ((pstats.SortKey.CUMULATIVE, 3), (pstats.SortKey.TIME, 2)):
        width, order = stats.sort_stats(key).get_print_list((30,))
        assert width > 0
        assert len(order) == 30
        figures = [stats.stats[label][column] for label in order]
        assert figures == sorted(figures, reverse=True)


def test_s0_08_self_times_add_up_to_the_time_of_the_program(backend: str) -> None:
    def whole() -> None:
        for run in PROGRAMS.values():
            run()
        time.sleep(0.05)

    profiler = fastprof.Profile(correct=False, backend=backend)
    profiler.runcall(whole)
    profiler.create_stats()
    rows = {k: v for k, v in profiler.stats.items() if not k[2].startswith("<method 'disable'")}
    [cumulative] = [row[3] for label, row in rows.items() if label[2] == "whole"]
    assert cumulative >= 0.05
    # Time of this thread and of all threads: the programs here start no threads.
    assert sum(row[2] for row in rows.values()) == pytest.approx(cumulative, rel=1e-3)


def test_snakeviz(dump: Path) -> None:
    reader = pytest.importorskip("snakeviz.stats")
    stats = pstats.Stats(str(dump), stream=io.StringIO())
    assert len(json.loads(json.dumps(reader.table_rows(stats)))) == len(stats.stats)
    shown = json.loads(json.dumps(reader.json_stats(stats)))
    [move] = [row for row in shown.values() if row["display_name"].endswith("(move)")]
    assert move["stats"][:2] == [1, 127]


def test_gprof2dot(dump: Path) -> None:
    reader = pytest.importorskip("gprof2dot")
    stats = pstats.Stats(str(dump), stream=io.StringIO())
    profile = reader.PstatsParser(str(dump)).parse()
    assert len(profile.functions) == len(stats.stats)
    assert profile[reader.TOTAL_TIME] == pytest.approx(stats.total_tt)


def test_tuna(dump: Path) -> None:
    reader = pytest.importorskip("tuna.main")
    tree = reader.read(str(dump))
    assert tree["children"]
    assert reader.render(tree, str(dump))


def test_flameprof(dump: Path) -> None:
    reader = pytest.importorskip("flameprof")
    stats = pstats.Stats(str(dump), stream=io.StringIO()).stats
    for form in ("svg", "log"):
        stream = io.StringIO()
        reader.render(stats, stream, form)
        # It omits short functions, but some function always remains.
        assert any(name in stream.getvalue() for name in PROGRAMS)
