"""Makes and starts the ``torch.profiler.profile`` of a window."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastprof.session.environment.rank import torch_distributed
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.schedule import NONE, RECORD, RECORD_AND_SAVE, WARMUP


def make_profile(
    torch: Any, options: OperatorProfile, action: Callable[[int], str], count: int, *, cuda: bool
) -> Any:
    """Return a profile whose first step is number ``count``.

    Args:
        action: returns what to do in a step, as :meth:`fastprof.Schedule.action`.
        cuda: whether to record kernels and copies.
    """
    kinds = torch.profiler.ProfilerActivity
    actions = torch.profiler.ProfilerAction
    of_name = {NONE: actions.NONE, WARMUP: actions.WARMUP, RECORD: actions.RECORD}
    of_name[RECORD_AND_SAVE] = actions.RECORD_AND_SAVE

    def torch_action(step: int) -> Any:
        # torch calls it for step 0 before the step number can be set.
        return of_name[action(max(step, count))]

    profile = torch.profiler.profile(
        activities=[
            *([kinds.CPU] if options.enable_cpu_profiling else ()),
            *([kinds.CUDA] if cuda else ()),
        ],
        schedule=torch_action,
        record_shapes=options.record_shapes,
        profile_memory=options.profile_memory,
        with_stack=options.with_stack,
        with_flops=options.with_flops,
        with_modules=options.with_modules,
    )
    profile.step_num = count
    return profile


def start_quietly(profile: Any) -> None:
    """Start the profile; torch writes no lines about itself."""
    with _quiet_kineto(), one_cycle(profile):
        profile.start()


def wait_for_all_ranks() -> None:
    """Call ``torch.distributed.barrier()``, in a distributed program."""
    distributed = torch_distributed()
    if distributed is not None:
        distributed.barrier()


@contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Keep torch's collector from writing lines about itself to ``sys.stderr``.

    It reads the variable at its first use.  A value set by the user stays, and no child of the
    program sees fastprof's.
    """
    name = "KINETO_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = "99"
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextmanager
def one_cycle(profile: Any) -> Iterator[None]:
    """Keep torch from warning that a profile keeps only its last cycle: a window's has one.

    torch 2.10 and 2.11 say so at every start without ``acc_events``.  The profile within must not
    have it: it would make an object of every event when it stops, which takes long.
    """
    profile.acc_events = True
    yield
    profile.profiler.acc_events = False
