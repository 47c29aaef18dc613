"""The windows that ranks of a running job publish, for engines that join them themselves.

Each rank publishes a window of its last steps, at most 2 KiB, every few seconds. :func:`merge`
joins two such values, or results of joins, along any tree: it is associative and commutative.
"""

from fastprof.ranks.blocks import HeardRank, add_blocks
from fastprof.ranks.groups.summary import RankGroup, group_of
from fastprof.ranks.groups.summary import merge as _merge
from fastprof.ranks.groups.wire import decode_group, encode_group
from fastprof.ranks.live.window import decode

__all__ = ["merge"]


def merge(a: bytes, b: bytes) -> bytes:
    """Return two published values, joined.

    Args:
        a: a published value, or a result of this function.
        b: another one, with no rank in common.

    Returns:
        At most 64 KiB.

    Raises:
        ValueError: a value is damaged, of another version of fastprof, or of another job.
    """
    return encode_group(_merge(_group(a), _group(b)))


def _group(value: bytes) -> RankGroup:
    try:
        window = decode(value)
    except ValueError:
        return decode_group(value)
    rank = HeardRank(window, 0.0, 0.0, lives=True)
    add_blocks(rank, window)
    patience_s = silent_s = 1.0  # its heartbeat is new
    return group_of(window.job, window.world_size, {window.rank: rank}, 0.0, silent_s, patience_s)
