"""``Profiler.loader``: the wrapped loader keeps its behaviour."""

from __future__ import annotations

import copy

import fastprof
import pytest
from fastprof.session.loaders.timing import LoaderRegistry


class Batches:
    """Like a DataLoader: re-iterable, with attributes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.batch_size = 8
        self.epoch = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        yield from range(self.count)

    def __len__(self) -> int:
        return self.count


@pytest.fixture
def prof():
    with fastprof.Profiler(functions=False) as profiler:
        yield profiler


def rows(prof):
    return {(row.split, row.name): row for row in prof.snapshot().loaders}


def test_a_loader_can_be_iterated_again_and_keeps_its_length(prof) -> None:
    loader = prof.loader(Batches(3), "main")
    assert len(loader) == 3
    for _ in range(2):
        assert list(loader) == [0, 1, 2]
    assert rows(prof)["train", "main"].batches == 6


def test_attributes_are_read_from_and_written_to_the_loader(prof) -> None:
    batches = Batches(3)
    loader = prof.loader(batches, "main")
    assert loader.batch_size == 8
    loader.set_epoch(4)
    loader.batch_size = 16
    assert (batches.epoch, batches.batch_size) == (4, 16)
    del loader.batch_size
    assert not hasattr(batches, "batch_size")
    with pytest.raises(AttributeError):
        _ = loader.no_such_attribute


def test_a_timed_iterable_without_length_has_no_length(prof) -> None:
    class Endless:
        def __iter__(self):
            return iter(int, 1)

    loader = prof.loader(Endless())
    with pytest.raises(TypeError):
        len(loader)
    assert loader
    assert list(zip(range(3), loader, strict=False)) == [(0, 0), (1, 0), (2, 0)]
    assert list(prof.loader(x for x in "ab")) == ["a", "b"]


def test_a_generator_can_be_passed_to_next_and_closed(prof) -> None:
    closed = []

    def batches():
        try:
            yield from range(10)
        finally:
            closed.append(True)

    loader = prof.loader(batches(), "main")
    assert next(loader) == 0
    assert next(loader) == 1
    loader.close()
    assert closed == [True]
    assert list(loader) == []
    assert rows(prof)["train", "main"].batches == 2


def test_an_exception_in_the_loader_passes_through(prof) -> None:
    def batches():
        yield 1
        raise LookupError("corrupt sample")

    with pytest.raises(LookupError, match="corrupt sample"):
        for _ in prof.loader(batches(), "main"):
            pass
    assert rows(prof)["train", "main"].batches == 1


def test_early_break_and_a_new_epoch(prof) -> None:
    loader = prof.loader(Batches(10), "main")
    for batch in loader:
        if batch == 2:
            break
    assert list(loader) == list(range(10))
    assert rows(prof)["train", "main"].batches == 13


def test_a_loader_can_be_made_before_start_and_used_after_stop() -> None:
    prof = fastprof.Profiler(functions=False)
    loader = prof.loader(Batches(3), "main")
    assert list(loader) == [0, 1, 2]
    with prof:
        assert list(loader) == [0, 1, 2]
    assert list(loader) == [0, 1, 2]
    assert rows(prof)["train", "main"].batches == 3
    assert rows(prof)["train", "main"].phases["data"][0] == 3


def test_a_loader_wrapped_twice_is_timed_once(prof) -> None:
    loader = prof.loader(Batches(3), "main")
    assert prof.loader(loader) is loader
    assert list(prof.loader(loader, "again")) == [0, 1, 2]
    assert ("train", "main") in rows(prof)
    assert rows(prof)["train", "main"].batches == 0
    assert rows(prof)["train", "again"].batches == 3


def test_old_style_iteration_by_index(prof) -> None:
    class Old:
        def __getitem__(self, index):
            if index == 3:
                raise IndexError
            return index

    assert list(prof.loader(Old())) == [0, 1, 2]
    assert prof.loader([4, 5])[1] == 5


def test_a_loader_can_be_copied(prof) -> None:
    loader = prof.loader(Batches(2), "main")
    assert copy.copy(loader).batch_size == 8
    assert "main" in repr(loader)


def test_bad_arguments_have_clear_errors(prof) -> None:
    for name, error in ((5, TypeError), ("", ValueError), (b"x", TypeError)):
        with pytest.raises(error, match="loader name"):
            prof.loader([], name)
    with pytest.raises(ValueError, match="split"):
        prof.loader([], split="test")
    with pytest.raises(ValueError, match="weight"):
        prof.loader([], weight=-1)
    with pytest.raises(ValueError, match="weight"):
        prof.loader([], weight=float("nan"))
    with pytest.raises(TypeError, match="iterated"):
        prof.loader(5)


def test_s4_13_the_same_unnamed_object_keeps_its_number() -> None:
    registry = LoaderRegistry()
    one, two = Batches(1), Batches(1)
    for _ in range(3):
        assert registry.entry(one, None, "train").name == "loader0"
        assert registry.entry(two, None, "train").name == "loader1"
    assert registry.entry(one, None, "val").name == "loader0"
    assert len(registry.entries) == 3


def test_s4_13_a_loader_made_anew_each_epoch_is_one_loader() -> None:
    registry = LoaderRegistry()
    kept = Batches(1)
    assert registry.entry(kept, None, "train").name == "loader0"
    for _ in range(50):
        generator = (x for x in "ab")
        assert registry.entry(generator, None, "train").name == "loader1"
        del generator
    assert len(registry.entries) == 2


def test_s4_13_a_name_is_the_same_loader_in_every_epoch() -> None:
    registry = LoaderRegistry()
    assert registry.entry([], "main", "train") is registry.entry([], "main", "train")
    assert registry.entry([], "main", "train") is not registry.entry([], "main", "val")
    assert registry.entry([], "a b", "train").name == "a_b"
    assert registry.entry([], "a/b", "train").name.startswith("a_b_")
    assert registry.entry([], "unknown", "train").name != "unknown"


def test_s4_13_a_number_already_used_as_a_name_is_passed_over() -> None:
    registry = LoaderRegistry()
    registry.entry([], "loader0", "train")
    assert registry.entry(Batches(1), None, "train").name == "loader1"


def test_a_ten_megabyte_name_is_not_kept() -> None:
    registry = LoaderRegistry()
    entry = registry.entry([], "x" * 10_000_000, "train")
    assert len(entry.name) == 100
    assert all(len(part) < 100 for key in registry._named for part in key)


def test_an_iterator_that_is_a_loader_keeps_its_own_face() -> None:
    class Pipeline:
        def __init__(self) -> None:
            self.left = 3
            self.epoch = 0

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> int:
            return i

    pipeline = Pipeline()
    with fastprof.Profiler(functions=False) as prof:
        loader = prof.loader(pipeline, name="p")
        assert len(loader) == 3
        assert loader[1] == 1
        loader.epoch = 5
        assert pipeline.epoch == 5
        assert prof.loader(loader) is loader
        assert len(list(loader)) == 3
    assert prof.report().section("data").count == 3
    with pytest.raises(TypeError, match="len"):
        len(prof.loader(iter([1])))
