"""The losses of a run's first steps, and their comparison.

A run keeps the tensors of which gradients are computed, in the hook that sees backward, and reads
their values at its end: no step waits for the GPU.  After the first ones the hook is gone.
"""

import math
from collections.abc import Sequence
from typing import Any

from fastprof.guards import own_errors
from fastprof.session.patching.replaced import Replaced

#: Losses that are compared.
FIRST = 10
#: Sums in another order differ by so much, relative to the largest loss, over the first steps: some
#: hundred units in the last place of float32.
ROUNDING = 2.0**-16
#: Few runs of a program without a seed do not show how much its losses differ at most.
_MORE = 4.0


class Losses:
    """The first losses of one run."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._hook = Replaced()

    def watch(self, torch: Any) -> None:
        """Hook backward, until enough losses are kept."""
        name = "_engine_run_backward"
        original = vars(torch.autograd).get(name)
        if original is None:
            return

        tracing = getattr(getattr(torch, "compiler", None), "is_compiling", bool)

        def kept(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if len(self._kept) < FIRST:
                try:
                    if not tracing():  # which computes gradients of no loss
                        self._keep(tensors)
                except own_errors():
                    self._kept.append(None)
            else:
                self._hook.restore()
            return original(tensors, *args, **kwargs)

        self._hook.put(torch.autograd, name, kept)

    def _keep(self, tensors: Any) -> None:
        single = len(tensors) == 1 and tensors[0].numel() == 1
        self._kept.append(tensors[0].detach().clone() if single else None)

    def values(self) -> list[float | None]:
        """Return the losses as numbers; this waits for the GPU."""
        return [None if kept is None else float(kept) for kept in self._kept]


def difference(a: Sequence[float | None], b: Sequence[float | None]) -> tuple[float, int] | None:
    """Return the largest difference of two runs' losses, and the first that differs (1).

    It is a part of the largest of them: the last digits of a loss near 0 are those of larger terms.
    None: there are none to compare.  Infinity: one is not a number where the other is.
    """
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if x is not None and y is not None]
    if not pairs:
        return None
    scale = max((abs(x) for pair in pairs for x in pair if math.isfinite(x)), default=0.0)
    sizes = [_part(x, y, scale) for x, y in pairs]
    largest = max(sizes)
    return largest, next((i for i, size in enumerate(sizes, 1) if size > 0), 0)


def _part(x: float, y: float, scale: float) -> float:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / scale


def judged(
    baseline: Sequence[Sequence[float | None]], runs: Sequence[Sequence[float | None]]
) -> tuple[bool, str | None]:
    """Return whether the losses of a candidate's runs are those of the baseline, and a sentence.

    They are if they are equal, or differ by no more than rounding, or than some times what the runs
    of the baseline differ from each other.  No sentence: there are none to compare.
    """
    own = [difference(baseline[0], other) for other in baseline[1:]]
    allowed = max([size for size, _ in filter(None, own)], default=0.0)
    found = [difference(baseline[0], run) for run in runs]
    known = [pair for pair in found if pair is not None]
    if not known:
        return True, None
    largest, first = max(known)
    if largest == 0:
        return True, ""
    if largest <= ROUNDING:
        return True, f"losses differ by rounding ({largest:.1g})"
    if largest <= _MORE * allowed and math.isfinite(largest):
        by, own_by = (f"{100 * size:.2g} %" for size in (largest, allowed))
        return True, f"losses differ by up to {by}; the baseline's differ by {own_by}"
    if largest == math.inf:
        return False, f"loss {first} of the first {FIRST} is not a number"
    return False, f"loss {first} of the first {FIRST} differs; by at most {100 * largest:.2g} %"
