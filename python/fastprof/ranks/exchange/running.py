"""Finds the jobs whose ranks run on this machine by the environments of processes."""

import os
from collections.abc import Mapping
from contextlib import suppress

from fastprof.ranks.exchange.channel import SWITCH
from fastprof.ranks.exchange.find import DIRECTORY, STORE, job_mark
from fastprof.session.environment.rank import world_size_of

#: Most bytes read of an environment.
_LONGEST = 1 << 20
#: Index of the start time among the fields of /proc/PID/stat, counted from the state.
_BEGAN = 19


def running_jobs(proc: str = "/proc") -> list[Mapping[str, str]]:
    """Return the environment of a rank of each job that runs here, the newest job first.

    These are jobs of this user with more than one rank, whose launcher set their variables before
    the processes began.  Without a /proc file system the list is empty.
    """
    found: dict[str, tuple[int, Mapping[str, str]]] = {}
    with suppress(OSError):
        for name in os.listdir(proc):
            if not name.isdigit():
                continue
            with suppress(OSError, ValueError, IndexError):
                env = _environment(os.path.join(proc, name))
                size = world_size_of(env)
                places = env.get(DIRECTORY) or all(env.get(name) for name in STORE)
                if size > 1 and places and env.get(SWITCH) != "0":
                    began = _began(os.path.join(proc, name))
                    mark = job_mark(size, env)
                    if mark not in found or found[mark][0] < began:
                        found[mark] = began, env
    return [env for _, env in sorted(found.values(), key=lambda job: -job[0])]


def _environment(process: str) -> Mapping[str, str]:
    with open(os.path.join(process, "environ"), "rb") as stream:
        items = stream.read(_LONGEST).split(b"\0")
    pairs = (os.fsdecode(item).partition("=") for item in items)
    return {name: value for name, _, value in pairs if name}


def _began(process: str) -> int:
    with open(os.path.join(process, "stat"), "rb") as stream:
        # The name before these fields is in parentheses and may contain any character.
        return int(stream.read().rpartition(b")")[2].split()[_BEGAN])
