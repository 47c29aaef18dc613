"""The optimizers of a run, known by their functions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastprof.findings.function_groups import OPTIMIZER_FILES
from fastprof.snapshot import Key

#: The files of torch's optimizers, and the prefixes of the functions that update parameters.
_IN_TORCH_OPTIM = re.compile(OPTIMIZER_FILES + r"\w+\.py$")
_MODES = {"_fused_": "fused", "_multi_tensor_": "foreach", "_single_tensor_": "single"}


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Classes of torch's optimizers that stepped, and their modes: fused, foreach, single.

    ``or_adamw``: the Adam among them may be an AdamW, because it was made before the recording.
    """

    classes: tuple[str, ...]
    modes: frozenset[str]
    or_adamw: bool = False


def optimizers(stepped: Iterable[Key], keys: Sequence[Key]) -> Optimizer:
    """Return the optimizers of torch's that stepped.

    Args:
        stepped: the functions in the steps of optimizers.
    """
    classes: set[str] = set()
    modes: set[str] = set()
    for key in stepped:
        at = _IN_TORCH_OPTIM.search(key.file.replace("\\", "/"))
        if key.kind != "python" or at is None:
            continue
        name, _, method = key.qualname.rpartition(".")
        if method == "step" and name:
            classes.add(name)
        modes.update(mode for prefix, mode in _MODES.items() if key.name.startswith(prefix))
    known = {
        name
        for key in keys
        if key.name == "__init__" and _IN_TORCH_OPTIM.search(key.file.replace("\\", "/"))
        for name in (key.qualname.partition(".")[0],)
    }
    if "Adam" in classes and "AdamW" in known:  # AdamW is an Adam and inherits its step
        classes.add("AdamW")
        # An AdamW's __init__ calls Adam's, so __init__ alone proves no Adam.
        classes.discard("Adam")
    unsure = "Adam" in classes and "Adam" not in known
    return Optimizer(tuple(sorted(classes)), frozenset(modes), unsure)
