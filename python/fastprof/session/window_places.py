"""The steps of a run at which windows begin, at random and the same on all ranks of a job.

Steps are divided into strata of ``BASE * 2**level`` steps, and each stratum has one window.  The
windows of a level are some of those of the level below: ranks whose cost is different, and with it
the level, still open the same windows, only not all of them.
"""

#: Steps per stratum of level 0, and the highest level.
BASE, MOST_LEVEL = 16, 16


def level_of(period: float) -> int:
    """Return the lowest level whose strata have at least ``period`` steps."""
    level = 0
    while level < MOST_LEVEL and BASE << level < period:
        level += 1
    return level


def place(stratum: int, level: int) -> int:
    """Return the step at which the window of a stratum begins."""
    while level:
        stratum = 2 * stratum + _mixed(stratum, level) % 2
        level -= 1
    return BASE * stratum + _mixed(stratum, 0) % BASE


def next_place(after: int, level: int) -> int:
    """Return the first window's step from ``after`` on."""
    stratum = after // (BASE << level)
    found = place(stratum, level)
    return found if found >= after else place(stratum + 1, level)


def draw(number: int, below: int) -> int:
    """Return a random number from 0 to below ``below``; the same for the same ``number``."""
    return _mixed(number, MOST_LEVEL + 1) % max(1, below)


def _mixed(stratum: int, level: int) -> int:
    """Return random bits; the generator is SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (stratum * 0x9E3779B97F4A7C15 + level * 0xD1B54A32D192ED03 + 1) & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return z ^ z >> 31
