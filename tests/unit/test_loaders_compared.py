"""Row S4-17: comparing several loaders."""

from __future__ import annotations

import pytest
from fastprof.results.report import build_report
from fastprof.snapshot import LoaderStats, Snapshot
from fastprof.tables.loaders import loader_tables
from unit.snapshots import MS


def loader(name, batches, weight=None, split="train", **ms):
    """Return a loader whose phases take ``ms`` per batch."""
    phases = {phase: (batches, round(batches * each * MS)) for phase, each in ms.items()}
    return LoaderStats(name, split, batches, phases, weight)


def report(*loaders):
    return build_report(Snapshot({}, 10**9, loaders=loaders))


def hints(*loaders):
    return [note for note in report(*loaders).notes if "batch" in note]


SAME = {"forward": 10, "backward": 20, "optimizer": 3}


def test_s4_17_the_table_has_counts_weights_times_and_shares():
    made = report(loader("main", 70, 0.7, data=5, **SAME), loader("aux", 30, 0.3, data=47, **SAME))
    table = loader_tables(made)[0]
    rows = {row[0]: dict(zip(table.headers, row)) for row in table.rows}
    assert rows["main"] == {
        "loader": "main", "split": "train", "batches": "70", "realized %": "70.0",
        "weight": "0.70", "time %": "52.6", "data ms": "5.00", "forward ms": "10.0",
        "backward ms": "20.0", "optimizer ms": "3.00",
    }  # fmt: skip
    assert (rows["aux"]["realized %"], rows["aux"]["time %"]) == ("30.0", "47.4")
    assert sum(row.time_share for row in made.loaders) == pytest.approx(1)


def test_s4_17_a_loader_alone_has_no_shares_that_are_always_100():
    table = loader_tables(report(loader("a", 70, **SAME), loader("b", 9, split="val", **SAME)))[0]
    assert "realized %" not in table.headers
    assert "time %" not in f"{table.headers} {table.title}"


def test_s4_17_slow_data_of_one_loader_is_its_reading_or_preprocessing():
    (found,) = hints(loader("main", 70, data=5, **SAME), loader("aux", 30, data=47, **SAME))
    assert found == (
        "aux: data takes 47.0 ms per batch against 5.00 ms of main: its reading or preprocessing "
        "takes longer (it has 47.4 % of the time for 30.0 % of batches)."
    )


def test_s4_17_another_forward_time_is_shapes_or_sequence_lengths():
    (found,) = hints(
        loader("short", 50, data=5, forward=10, backward=20),
        loader("long", 50, data=5, forward=40, backward=80),
    )
    assert found == (
        "long: forward takes 40.0 ms per batch against 10.0 ms of short: its shapes or sequence "
        "lengths differ (it has 78.1 % of the time for 50.0 % of batches)."
    )


def test_s4_17_a_note_compares_realized_proportions_with_the_weights():
    found = hints(loader("main", 500, 7, **SAME), loader("aux", 500, 3, **SAME))
    assert found == [
        "main: 50.0 % of the batches came from it, its weight asks for 70.0 %.",
        "aux: 50.0 % of the batches came from it, its weight asks for 30.0 %.",
    ]


@pytest.mark.parametrize(
    "loaders",
    [
        # alike
        (loader("a", 70, 0.7, data=5, **SAME), loader("b", 30, 0.3, data=5.5, **SAME)),
        # a possible result of a weighted draw of 100
        (loader("a", 78, 0.7, data=5, **SAME), loader("b", 22, 0.3, data=5, **SAME)),
        # many times as slow, but almost nothing of a batch
        (loader("a", 50, data=0.1, **SAME), loader("b", 50, data=0.9, **SAME)),
        # too few batches of one
        (loader("a", 500, data=1, **SAME), loader("b", 19, data=50, **SAME)),
        # of another split: validation has no backward and other batches
        (loader("a", 50, data=1, **SAME), loader("b", 50, split="val", data=50, forward=9)),
        # a single loader
        (loader("a", 500, 0.7, data=50, **SAME),),
        # weights of some only
        (loader("a", 500, 0.7, **SAME), loader("b", 500, None, **SAME)),
        # no times at all
        (loader("a", 50), loader("b", 50)),
        (loader("a", 0), loader("b", 0)),
    ],
)
def test_s4_17_no_hint_without_a_difference(loaders):
    assert hints(*loaders) == []


def test_s4_13_hostile_names_in_hints_are_printable_ascii():
    (found,) = hints(loader("a\x1b[31m", 50, data=50, **SAME), loader("b", 50, data=5, **SAME))
    assert found.startswith("a\\x1b[31m: data takes 50.0 ms")
