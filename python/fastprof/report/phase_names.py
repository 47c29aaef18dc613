"""The names of the phases of a step: fastprof's and the ones that trainers use."""

from collections.abc import Mapping

DATA = ("data", "data_loading")
FORWARD = ("forward", "forward_pass")
BACKWARD = ("backward", "backward_pass")
OPTIMIZER = ("optimizer", "optimizer_step")

#: The other name of each.
ALIASES: Mapping[str, str] = {
    name: other
    for short, long in (DATA, FORWARD, BACKWARD, OPTIMIZER)
    for name, other in ((short, long), (long, short))
}
