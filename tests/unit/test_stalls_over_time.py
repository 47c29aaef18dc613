"""Long steps and passes that take more time since some moment, in planted segments."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from fastprof.session.history.passes import Lasting, PassWatcher, lasting_sentence
from fastprof.session.history.stalls import StallWatcher, period_of, share, stalls_sentence
from fastprof.snapshot import Key
from fastprof.snapshot.history import (
    Contexts,
    Segment,
    SegmentSteps,
    bucket,
    joined,
    longest,
    spent_of,
)
from fastprof.snapshot.history_sums import Passes
from fastprof.snapshot.run_phases import RUN_PHASES

SECTIONS = ("forward", "checkpoint")
KEYS = (
    *(Key("section", "", 0, name, name) for name in SECTIONS),
    Key("python", "train.py", 80, "save", "save"),
    Key("python", "train.py", 20, "evaluate", "evaluate"),
)
VALIDATION = RUN_PHASES.index("validation")
CONTEXTS = Contexts((-1, -1, 1, -1), (0, 1, 2, 3), (0, 0, 0, VALIDATION))
_STEPS = 125
_USUAL = 40_000_000

Stall = Callable[[int], int]


def every(period: int, ms: float, since: int = 0) -> Stall:
    """Return stalls in steps without functions, the first one 50 steps after ``since``."""
    return lambda n: round(ms * 1e6) if n >= since and n % period == 50 else 0


def run(
    stall: Stall,
    segments: int = 120,
    full: bool = False,
    steps: int = _STEPS,
    saving: float = 1.0,
) -> Iterable[Segment]:
    """Return segments of steps of 40 ms, of which some take as long as ``stall`` says.

    ``saving`` is the part of that in a function, as far as functions are recorded.
    """
    drawn, at_ns = random.Random(3), 0
    for i in range(segments):
        numbers = range(i * steps, (i + 1) * steps)
        kinds = numbers[:10], numbers[10:]
        if full:
            kinds = numbers, numbers[:0]
        made = [steps_of(part, stall, drawn) for part in kinds]
        ns = sum(one.sum_ns for one in made)
        saved = round(saving * sum(map(stall, kinds[0])))
        yield Segment(
            numbers[0],
            steps,
            at_ns,
            at_ns + ns,
            *made,
            spent=spent_of({0: (len(kinds[0]), len(kinds[0]) * _USUAL), 2: (1, saved)}),
        )
        at_ns += ns


def steps_of(numbers: range, stall: Stall, drawn: random.Random) -> SegmentSteps:
    times = [stall(n) or round(_USUAL * drawn.gauss(1, 0.01)) for n in numbers]
    counts: dict[int, int] = {}
    for ns in times:
        counts[bucket(ns)] = counts.get(bucket(ns), 0) + 1
    rows = [(n, ns, 1, ns - _USUAL, 0, 0) for n, ns in zip(numbers, times, strict=True) if stall(n)]
    return SegmentSteps(
        count=len(times),
        sum_ns=sum(times),
        hist=tuple(sorted(counts.items())),
        rows=((0, len(times), len(times) * _USUAL),) if times else (),
        long=longest(rows),
    )


def lines(segments: Iterable[Segment]) -> list[str]:
    watcher = StallWatcher()
    found = [watcher.add(segment, 0) for segment in segments]
    return [stalls_sentence(one, SECTIONS, CONTEXTS, KEYS, 0) for one in found if one is not None]


def test_periodic_stalls_that_begin_in_the_run_are_found_with_their_period() -> None:
    (text,) = lines(run(every(500, 1200, since=5000)))
    assert text.startswith("since step 5051 (")
    assert "every 500 steps a step takes 1.20 s (usually 4" in text
    assert "in all 5.8" in text
    assert text.endswith(": 1.16 s of it in checkpoint")


def test_the_function_is_named_if_it_was_recorded_in_a_long_step() -> None:
    (text,) = lines(run(every(500, 1200, since=5000), full=True))
    assert text.endswith(": 1.16 s of it in checkpoint in save (train.py:80)")


def test_a_function_with_a_small_part_of_many_long_steps_is_not_named() -> None:
    """Of all segments since the rise, only the longest steps are kept."""
    (text,) = lines(run(every(100, 1200, since=5000), full=True, saving=0.2))
    assert text.endswith(": 1.16 s of it in checkpoint")
    (text,) = lines(run(every(100, 1200, since=5000), full=True, saving=0.5))
    assert text.endswith(": 1.16 s of it in checkpoint in save (train.py:80)")


@pytest.mark.parametrize("period", [100, 500, 3000, 10_000])
def test_a_healthy_run_with_steady_checkpoints_has_no_line(period: int) -> None:
    assert lines(run(every(period, 3000), segments=1000)) == []
    assert lines(run(every(period, 3000, since=1), segments=1000)) == []


def test_stalls_that_take_longer_are_found_with_what_they_took_before() -> None:
    def stall(number: int) -> int:
        return every(500, 300 if number < 8000 else 2000)(number)

    (text,) = lines(run(stall))
    assert "every 500 steps a step takes 2.00 s" in text
    assert "; before, every 500 steps a step took 300 ms" in text


def test_stalls_that_grow_are_found_again_and_again() -> None:
    said = lines(run(lambda n: every(250, 200 + n / 5)(n), segments=400))
    assert said
    assert all("every 250 steps a step takes " in text for text in said)


def test_irregular_stalls_are_counted() -> None:
    drawn = random.Random(1)
    chosen = {n for n in range(25_000, 50_000) if drawn.random() < 0.01}
    (text,) = lines(run(lambda n: 1_000_000_000 * (n in chosen), segments=400))
    assert " steps take 1.00 s (usually 4" in text
    assert "every" not in text


def test_of_many_long_steps_the_usual_time_is_said_and_not_that_of_the_longest() -> None:
    """Of a segment few of them are kept one by one."""
    drawn = random.Random(4)
    ms = {n: drawn.uniform(200, 900) for n in range(48_000, 75_000) if drawn.random() < 0.01}
    (text,) = lines(run(lambda n: round(1e6 * ms.get(n, 0)), segments=50, steps=1500))
    took = re.search(r" steps take (\d+) ms \(usually 4.*: (\d+) ms of it in checkpoint", text)
    assert took, text
    assert 530 <= int(took[1]) <= 570
    assert int(took[1]) - 60 <= int(took[2]) < int(took[1])


def test_the_period_of_the_longest_of_many_long_steps_is_not_said() -> None:
    def stall(n: int) -> int:
        return (10**9 + (n % 200 == 50)) if n >= 64_000 and n % 100 == 50 else 0

    (text,) = lines(run(stall, segments=50, steps=2000))
    assert "every" not in text
    assert re.search(r" of [\d,]+ steps take (1\.0\d s|99\d ms) \(usually 4", text)


def test_long_steps_that_take_ever_more_time_are_found_with_their_part() -> None:
    said = lines(run(lambda n: round(1e9 + 2e4 * n) * (n % 125 == 50), segments=200))
    drifts = [text for text in said if "ever" in text]
    assert drifts
    for text in drifts:
        assert re.search(r"long steps take ever more time, in all [\d.]+ % more by step ", text)


def test_stalls_that_end_have_no_line() -> None:
    assert lines(run(lambda n: every(500, 1200)(n) if n < 8000 else 0)) == []


def test_rare_pauses_have_no_line() -> None:
    drawn = random.Random(2)
    for seed in range(20):
        chosen = {drawn.randrange(400 * _STEPS) for _ in range(20)}
        assert lines(run(lambda n, c=chosen: 700_000_000 * (n in c), segments=400)) == [], seed


def test_many_slow_steps_are_a_level_and_no_stalls() -> None:
    assert lines(run(every(20, 400, since=5000))) == []


@pytest.mark.parametrize(
    ("numbers", "period"),
    [
        ([500, 1000, 1500], 500),
        ([500, 1000, 2000, 2501], 500),
        ([500, 1000], None),
        ([500, 620, 1900], None),
        ([5, 6, 7], None),
    ],
)
def test_a_period_is_one_only_if_it_is_regular(numbers: list[int], period: int | None) -> None:
    assert period_of([(n,) for n in numbers]) == period


def test_joining_segments_keeps_the_longest_steps_and_their_part() -> None:
    parts = list(run(every(50, 1200), segments=8))
    one = joined(joined(parts[0], parts[1]), parts[2])
    other = joined(parts[0], joined(parts[1], parts[2]))
    assert one == other
    assert share(parts[:3]) == pytest.approx(share((one,)))
    assert len(one.full.long or ()) <= 8
    assert joined(parts[0], replace(parts[1], plain=SegmentSteps(count=1))).plain.long is None


# ---- passes


def passes(
    ms_of: Callable[[int], float],
    count: int = 30,
    recorded: Callable[[int], float] = lambda number: 1.0,
    stage_of: Callable[[int], int] = lambda number: 0,
) -> list[Lasting]:
    """Return what is found in a run with a validation in each third segment.

    ``recorded`` is the part of a validation's time that is known of its function.
    """
    watcher, found, drawn = PassWatcher("validation"), [], random.Random(2)
    for i, segment in enumerate(run(every(10**9, 0), segments=3 * count)):
        part = [0.0, 0.7, 0.3][i % 3]  # it begins in one segment and ends in the next
        ns = round(ms_of(i // 3) * 1e6 * part * drawn.gauss(1, 0.005))
        known = round(ns * recorded(i // 3))
        spent = spent_of({3: (1, known)}) if known else segment.spent
        change = watcher.add(
            replace(
                segment,
                phases_ns=(0,) * VALIDATION + (ns,),
                passes=Passes(int(i % 3 == 1), 0),
                spent=spent,
            ),
            stage_of(i // 3),
        )
        if change is not None:
            found.append(change)
    return found


def test_a_validation_that_takes_longer_is_found_with_its_function() -> None:
    (found,) = passes(lambda number: 2000 if number < 15 else 2600)
    assert found.first == _STEPS * (3 * 15 + 1)
    text = lasting_sentence(found, CONTEXTS, KEYS, 0)
    assert text.startswith("since step 5751 (")
    assert ") a validation takes 30" in text or ") a validation takes 29" in text
    assert "% longer (2.6" in text or "% longer (2.5" in text
    assert text.endswith(": most of the difference in evaluate (train.py:20)")


def test_a_function_of_validation_that_differs_by_more_than_the_change_is_not_named() -> None:
    """Most validations are recorded without functions."""
    (found,) = passes(
        lambda number: 2000 if number < 15 else 2600,
        recorded=lambda number: 1.0 if number >= 15 else 0.1,
    )
    assert " in evaluate" not in lasting_sentence(found, CONTEXTS, KEYS, 0)


def test_a_function_with_less_than_half_of_a_longer_validation_is_not_named() -> None:
    (found,) = passes(lambda n: 2000 if n < 15 else 2600, recorded=lambda number: 0.4)
    assert "of the difference" not in lasting_sentence(found, CONTEXTS, KEYS, 0)


def test_a_validation_of_another_stage_is_no_longer_one() -> None:
    assert passes(lambda n: 2000 if n < 15 else 2600, stage_of=lambda n: int(n >= 15)) == []


def test_a_validation_that_ever_grows_is_found() -> None:
    found = passes(lambda number: 2000 * 1.05**number, count=40)
    assert found
    assert all(one.drift and one.since_ns > one.before_ns for one in found)
    text = lasting_sentence(found[0], CONTEXTS, KEYS, 0)
    assert text.startswith("since step 126 (")
    assert ") a validation takes ever longer, " in text
    assert " by step " in text


def test_passes_of_equal_length_have_no_line() -> None:
    assert passes(lambda number: 2000, count=200) == []


def test_passes_of_no_length_have_no_line() -> None:
    assert passes(lambda number: 2 if number < 15 else 8) == []


def test_without_a_number_of_passes_nothing_is_found() -> None:
    watcher = PassWatcher("checkpoint")
    for segment in run(every(10**9, 0), segments=10):
        assert watcher.add(replace(segment, phases_ns=(5,) * 10), 0) is None
