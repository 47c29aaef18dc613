"""The well-known names of sections: fastprof's and the ones that trainers use."""

from collections.abc import Mapping
from functools import lru_cache

DATA = ("data", "data_loading")
FORWARD = ("forward", "forward_pass")
BACKWARD = ("backward", "backward_pass")
OPTIMIZER = ("optimizer", "optimizer_step")
#: In the order of a step.
IN_A_STEP = (DATA, FORWARD, BACKWARD, OPTIMIZER)
H2D = ("h2d",)
LOGGING = ("logging", "callbacks", "log", "metrics", "metrics_computation")
CHECKPOINT = ("checkpoint", "checkpointing", "save_checkpoint", "save")
COMMUNICATION = ("communication", "synchronization", "all_reduce", "grad_sync")

#: Sections in which a rank waits for others, as letters and digits only.
_WAITS = ("synchronization", "sync", "communication", "allreduce", "gradientsync", "barrier")

#: The phases of a step, by their names in rules.
PHASES: Mapping[str, frozenset[str]] = {
    names[0]: frozenset(names)
    for names in (
        *IN_A_STEP,
        *(H2D, LOGGING, CHECKPOINT, COMMUNICATION),
    )
}

#: The other name of each.
ALIASES: Mapping[str, str] = {
    name: other for short, long in IN_A_STEP for name, other in ((short, long), (long, short))
}


@lru_cache(maxsize=256)
def is_communication(section: str) -> bool:
    """Return whether a section's name says that it waits for other ranks."""
    return "".join(c for c in section.lower() if c.isalnum()) in _WAITS
