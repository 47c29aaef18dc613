"""The codec of saved runs: each fact is declared once, written exactly, and checked."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

import pytest
from fastprof.errors import SnapshotError
from fastprof.snapshot import Snapshot
from fastprof.snapshot.codec import (
    Count,
    KeyIndex,
    MaybeEmpty,
    Record,
    Row,
    Saved,
    Table,
    kind_of,
    read,
)
from fastprof.snapshot.kinds import AtMost, Integer, Known, Number, WrongError
from hypothesis import given
from hypothesis import strategies as st
from unit import (
    test_fprof,
    test_report_loaders,
    test_snapshot_gpu,
    test_snapshot_operators,
    test_snapshot_outliers,
    test_step_split,
    test_trace,
)


@dataclass(frozen=True, slots=True)
class Pair(Row):
    key: KeyIndex
    ns: Count


@dataclass(frozen=True, slots=True)
class Columns(Table):
    start: tuple[Count, ...] = ()
    change: tuple[Annotated[int, Integer(-5, 5)], ...] = ()
    unsure: MaybeEmpty[tuple[Count, ...]] = ()


@dataclass(frozen=True, slots=True)
class Fact(Record):
    name: str
    share: Annotated[float, Number(0, 1)]
    on: bool
    pairs: Annotated[tuple[Pair, ...], AtMost(3)]
    table: Columns
    by_name: Mapping[str, tuple[Count, float]]
    size: Annotated[Count | None, Saved("bytes")] = None
    added: Count = 7
    more: Mapping[str, Count] = field(default_factory=dict)

    def check(self, known: Known) -> None:
        if self.added == 13:
            raise WrongError(self.added, "no thirteen", ".added")


KNOWN = Known({"keys": 4})
big = st.integers(0, 2**63 - 1)
columns = st.lists(st.tuples(big, st.integers(-5, 5), big)).map(
    lambda rows: Columns(*(tuple(c) for c in zip(*rows, strict=True))) if rows else Columns()
)
facts = st.builds(
    Fact,
    name=st.text(),
    share=st.floats(0, 1),
    on=st.booleans(),
    pairs=st.lists(st.builds(Pair, st.integers(0, 3), big), max_size=3).map(tuple),
    table=columns,
    by_name=st.dictionaries(st.text(), st.tuples(big, st.floats(allow_nan=False, width=16))
                            .filter(lambda pair: abs(pair[1]) < 1e9)),
    size=st.none() | big,
    added=big.filter(lambda n: n != 13),
    more=st.dictionaries(st.text(), big),
)  # fmt: skip


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(facts)
def test_what_is_written_is_read_back_exactly(fact: Fact) -> None:
    assert read(Fact, through_json(fact.to_dict()), "fact", KNOWN) == fact


FACT = Fact("a", 0.5, True, (Pair(1, 2), Pair(3, 4)), Columns((1, 2), (-1, 5)), {"x": (1, 2.0)})


def test_a_record_is_an_object_and_a_row_is_a_list() -> None:
    assert FACT.to_dict() == {
        "name": "a",
        "share": 0.5,
        "on": True,
        "pairs": [[1, 2], [3, 4]],
        "table": {"start": [1, 2], "change": [-1, 5], "unsure": []},
        "by_name": {"x": [1, 2.0]},
        "bytes": None,
        "added": 7,
        "more": {},
    }


def test_only_a_field_that_may_be_null_may_be_absent() -> None:
    data = FACT.to_dict()
    for name in data:
        less = {key: value for key, value in data.items() if key != name}
        if name == "bytes":
            assert read(Fact, less, "fact", KNOWN) == FACT
        else:
            with pytest.raises(SnapshotError, match=rf"^fact\.{name} is None, expected"):
                read(Fact, less, "fact", KNOWN)


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (["name"], 5, "fact.name is 5, expected a string"),
        (["share"], 1.5, "fact.share is 1.5, expected a number from 0 to 1"),
        (["share"], float("nan"), "fact.share is nan, expected a finite number"),
        (["on"], 1, "fact.on is 1, expected true or false"),
        (["pairs"], {}, "fact.pairs is an object of 0, expected a list"),
        (["pairs"], [[0, 0]] * 4, "fact.pairs is 4, expected at most 3 rows"),
        (["pairs", 1], [1], "fact.pairs[1] is a list of 1, expected [key, ns]"),
        (["pairs", 1, 0], 4, "fact.pairs[1].key is 4, expected an integer from 0 to 3"),
        (["pairs", 1, 1], -1, f"fact.pairs[1].ns is -1, expected an integer from 0 to {2**63 - 1}"),
        (["table", "change", 1], 6, "fact.table.change[1] is 6, expected an integer from -5 to 5"),
        (["table", "change"], [1], "fact.table.change is 1, expected 2 rows"),
        (["table", "unsure"], [1], "fact.table.unsure is 1, expected 2 rows"),
        (["by_name", "x"], [1], "fact.by_name['x'] is a list of 1, expected a list of 2"),
        (["added"], None, f"fact.added is None, expected an integer from 0 to {2**63 - 1}"),
        (["added"], 13, "fact.added is 13, expected no thirteen"),
    ],
)
def test_an_error_names_the_field_and_what_was_expected(
    path: list[Any], value: object, error: str
) -> None:
    data = FACT.to_dict()
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(SnapshotError) as caught:
        read(Fact, data, "fact", KNOWN)
    assert str(caught.value) == error


def test_integers_that_many_readers_would_round_may_be_strings() -> None:
    data = FACT.to_dict()
    data["added"] = str(2**60)
    data["table"]["start"][0] = str(2**63 - 1)
    found = read(Fact, data, "fact", KNOWN)
    assert (found.added, found.table.start[0]) == (2**60, 2**63 - 1)
    data["table"]["change"][0] = "5"  # such a small range has no such integers
    with pytest.raises(SnapshotError, match=r"change\[0\] is '5'"):
        read(Fact, data, "fact", KNOWN)


@pytest.mark.parametrize("hint", [int, list, "x", dict[str, int], int | str, Annotated[int, 5]])
def test_an_annotation_that_says_no_kind_is_refused(hint: object) -> None:
    with pytest.raises(TypeError, match="does not say"):
        kind_of(hint)


# ---- whole runs ----


@cache
def runs() -> tuple[dict[str, Any], ...]:
    """Return the saved data of runs that have every part."""
    made = (
        test_fprof.rich_snapshot(),
        test_snapshot_gpu.gpu_run(),
        test_snapshot_operators.snapshot(),
        test_snapshot_outliers.snapshot(),
        test_step_split.run(),
        test_trace.snapshot(),
        test_report_loaders.run(test_report_loaders.workers()),
    )
    return tuple(through_json(snapshot.to_dict()) for snapshot in made)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for step, inner in value.items():
            yield from leaves(inner, (*path, step))


odd = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 9), st.integers(), st.floats(), st.text(max_size=9),
    st.lists(st.integers(0, 9), max_size=4), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip


@given(st.data())
def test_f46_a_run_with_one_other_value_is_refused_or_valid(data: st.DataObject) -> None:
    run = copy.deepcopy(data.draw(st.sampled_from(runs()), label="run"))
    path = data.draw(st.sampled_from(list(leaves(run))), label="path")
    inner = run
    for step in path[:-1]:
        inner = inner[step]
    if data.draw(st.booleans(), label="removed"):
        del inner[path[-1]]
    else:
        inner[path[-1]] = data.draw(odd, label="value")
    found, error = None, ""
    try:
        found = Snapshot.from_dict(run)
    except SnapshotError as refused:
        error = str(refused)
    assert "\n" not in error
    assert len(error) < 300
    if found is not None:
        assert Snapshot.from_dict(through_json(found.to_dict())) == found
