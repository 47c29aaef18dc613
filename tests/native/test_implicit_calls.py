"""The form of a function's first call, on which the hook's cost depends."""

from __future__ import annotations

import sys

import pytest
from fastprof._core import Recorder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="no sys.monitoring")


class Thing:
    def __init__(self) -> None:
        self.value = 1

    def named(self, *args: object, key: object = None) -> int:
        return self.value

    def __call__(self) -> int:
        return self.value

    def __getitem__(self, index: int) -> int:
        return index

    def __add__(self, other: object) -> int:
        return 1

    def __iter__(self) -> Thing:
        return self

    def __next__(self) -> int:
        raise StopIteration

    @property
    def shown(self) -> int:
        return self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1


def with_keyword(*, key: int) -> int:
    return key


def with_stars(*args: int) -> int:
    return 1


def numbers() -> object:
    yield 1


def program() -> None:
    thing = Thing()
    Slotted()
    thing.named(1, key=2)
    with_keyword(key=1)
    with_stars(*(1, 2))
    list(numbers())
    for _ in numbers():
        pass
    _ = thing[1]
    _ = thing + 1
    _ = thing.shown
    for _ in thing:
        pass


def forms(run, backend="monitoring") -> dict[str, str]:
    recorder = Recorder(backend=backend)
    recorder.enable()
    run()
    recorder.disable()
    data = recorder.export()
    names = [key[4].removeprefix("Thing.") for key in data["keys"]]
    return {names[i]: form for i, form in data["forms"]}


def implicit(run, backend="monitoring") -> set[str]:
    return {name for name, form in forms(run, backend).items() if form == "implicit"}


def test_operators_loops_and_properties_are_distinguished_from_calls_by_name() -> None:
    found = implicit(program)
    assert found >= {"__getitem__", "__add__", "shown", "__iter__", "__next__"}
    assert not found & {"named", "with_keyword", "with_stars", "numbers", "program"}


def test_a_type_whose_init_is_never_entered_directly_is_recognized() -> None:
    found = implicit(program)
    assert not any(name.endswith("Thing") for name in found)
    assert any(name.endswith("Slotted") for name in found) == (sys.version_info[:2] == (3, 13))


def test_keywords_and_stars_are_distinguished_from_calls_by_position() -> None:
    def run() -> None:
        program()
        pair = (2, 1)
        max(*pair)
        sum([1], start=2)
        len(pair)
        abs(-1)
        "{}".format(1)  # noqa: UP032

    found = forms(run)
    assert found["named"] == found["with_keyword"] == "general"
    assert found["with_stars"] == "unpacked"
    assert found["builtins.max"] == found["builtins.sum"] == found["str.format"] == "general"
    assert not {"builtins.len", "builtins.abs", "program"} & found.keys()


def test_a_constructor_called_with_keywords_is_not_entered_straight() -> None:
    class Named:
        def __init__(self, value: int) -> None:
            self.value = value

    class Placed(Named):
        pass

    def run() -> None:
        Named(value=1)
        Placed(1)

    found = {name.rsplit(".", 1)[-1]: form for name, form in forms(run).items()}
    assert found["Named"] == "implicit"
    assert "Placed" not in found


def test_a_live_exception_stays() -> None:
    def run() -> None:
        try:
            raise KeyError("mine")
        except KeyError:
            shown.append(Thing().shown)
            seen.append(str(sys.exc_info()[1]))

    shown: list[int] = []
    seen: list[str] = []
    assert "shown" in implicit(run)
    assert (shown, seen) == ([1], ["'mine'"])


def test_the_other_hook_has_the_same_events_for_all() -> None:
    assert forms(program, "setprofile") == {}
