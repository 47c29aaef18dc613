"""What the tests of torch.compile share; they are skipped without a torch that records."""

from collections.abc import Callable, Iterable
from typing import Any

import fastprof
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")
if not hasattr(torch._dynamo.utils, "get_compilation_metrics"):
    pytest.skip("this torch records no compilations", allow_module_level=True)

#: Warnings of torch's own imports and calls become errors in the compiler.
WARNINGS = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def record(steps: Iterable[Callable[[], Any]]) -> Any:
    """Return the report on a run of these steps."""
    torch.manual_seed(0)
    with fastprof.Profiler(skip_first=0, gpu=False) as profiler:
        for step in steps:
            step()
            profiler.step()
    return profiler.report()
