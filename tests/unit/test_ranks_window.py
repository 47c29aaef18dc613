"""The values that ranks publish: small for any names and times, and read without trust."""

from __future__ import annotations

import json
import random
import zlib

import pytest
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.window import (
    COLUMNS,
    MAX_BLOCKS,
    MAX_BYTES,
    MAX_DETAIL_BYTES,
    RankDetail,
    RankWindow,
    Request,
    block_size,
    decode,
    decode_detail,
    decode_request,
    encode,
    encode_detail,
    encode_request,
    joined,
    means,
)
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

SECTIONS = ("data", "forward", "backward", "optimizer", "loss", "clip")


def window(seed=0, **changes):
    noise = random.Random(seed)
    wide = len(COLUMNS) + len(SECTIONS)
    blocks = {i * 8: tuple(noise.randrange(10**6) for _ in range(wide)) for i in range(MAX_BLOCKS)}
    fields = {
        "job": "0123abcd", "rank": 7, "world_size": 8, "host": "node-17", "beat": 12,
        "steps": 8 * MAX_BLOCKS + 3, "place": "data, decode (dataset.py:31)", "size": 8,
        "columns": COLUMNS, "sections": SECTIONS, "blocks": blocks, "waiting": {"backward": 1200},
        "between": {"checkpoint": 800}, **changes,
    }  # fmt: skip
    return RankWindow(**fields)


def test_a_window_comes_back_as_it_was():
    small = window(blocks=dict(list(window().blocks.items())[:20]))
    assert decode(encode(small)) == small


@pytest.mark.parametrize("seed", range(5))
def test_a_window_of_random_times_has_at_most_2_kib_and_the_newest_blocks(seed):
    data = encode(window(seed))
    assert len(data) <= MAX_BYTES == 2048
    kept = decode(data).blocks
    assert len(kept) >= 25  # a window of ten seconds has 16 to 32
    assert max(kept) == 8 * (MAX_BLOCKS - 1)


def test_long_names_do_not_make_a_value_longer():
    names = tuple(f"{i}" + "\N{SNOWMAN}" * 5000 for i in range(6))
    data = encode(window(sections=names, host="h" * 9999, place="\N{SNOWMAN}" * 9999))
    assert len(data) <= MAX_BYTES
    functions = tuple((f"{i}f" * 999, "p" * 9999, 1, 5, {"x" * 999: 3}) for i in range(100))
    assert len(encode_detail(RankDetail("job", 1, 1, functions))) <= MAX_DETAIL_BYTES


def test_details_and_requests_come_back_as_they_were():
    detail = RankDetail("job", 3, 9, (("f", "a.py", 3, 1500, {"time.sleep": 1400}),))
    assert decode_detail(encode_detail(detail)) == detail
    request = Request("job", 9, 100, 200, (3, 0, 1))
    assert decode_request(encode_request(request)) == request


def packed(value):
    return zlib.compress(json.dumps(value).encode())


def fields():
    return json.loads(zlib.decompress(encode(window())))


HOSTILE = {
    "empty": b"",
    "noise": bytes(range(256)),
    "cut": encode(window())[:-5],
    "too long": b"x" * 4096,
    "bomb": zlib.compress(b"[" * 10**7),
    "deep": zlib.compress(b"[" * 60_000),
    "not a dict": packed([1, 2]),
    "no text": zlib.compress(b"\xff\xfe"),
    "huge number": zlib.compress(b'{"v":1,"rank":' + b"9" * 5000 + b"}"),
    "infinite": zlib.compress(b'{"v":1,"rank":Infinity}'),
    "other version": packed({**fields(), "v": 2}),
}
for name, value in {
    "rank": -1, "of": 0, "beat": True, "steps": 1.5, "size": 3, "host": 7, "job": "j" * 500,
    "columns": ["cpu"], "sections": ["a"] * 2, "starts": [8, 0], "times": [[1]], "waiting": [],
    "between": {"outside": -1}, "phase": None,
}.items():  # fmt: skip
    HOSTILE[f"field {name}"] = packed({**fields(), name: value})


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_values_are_ignored_and_counted(what):
    with pytest.raises(ValueError, match="not a value that fastprof wrote"):
        decode(HOSTILE[what])
    judge = Judge("0123abcd", 8)
    judge.hear(7, HOSTILE[what], 1.0)
    assert sum(judge.ignored.values()) == 1
    assert judge.windows == {}
    assert judge.look(2.0) == []


def test_values_of_other_jobs_and_ranks_are_ignored():
    judge = Judge("0123abcd", 8)
    judge.hear(6, encode(window()), 1.0)
    judge.hear(7, encode(window(job="other")), 1.0)
    judge.hear(9, encode(window(rank=9)), 1.0)
    assert judge.ignored == {"of another job or rank": 3}
    assert judge.windows == {}


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_value_or_a_valueerror(data):
    for read in (decode, decode_detail, decode_request):
        with pytest.raises(ValueError):
            read(zlib.compress(data))


def test_blocks_are_joined_only_where_they_are_complete():
    rows = {0: (10,), 8: (20,), 16: (30,), 32: (1,), 40: (3,)}
    assert joined(rows, 8, 16) == {0: (15,), 32: (2,)}
    assert joined(rows, 8, 8) == rows


def test_means_are_of_the_steps_that_were_measured():
    ns = [1000, 3000, 5000, 7000]
    assert means([ns], [4, 5, 7, 8], 4) == {4: (3,), 8: (7,)}
    assert [block_size(n) for n in (1, 32, 33, 200, 10_000)] == [1, 1, 2, 8, 512]
