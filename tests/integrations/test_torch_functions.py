"""torch's C functions in the table of functions."""

from __future__ import annotations

import pytest
from fastprof import Profiler

torch = pytest.importorskip("torch")


def test_functions_of_torch_have_the_names_that_users_write() -> None:
    # Both are methods of the type torch._C._VariableFunctionsClass.
    with Profiler(functions=True) as profiler:
        torch.relu(torch.stack([torch.ones(2)]))
    names = {row.qualname for row in profiler.report().functions}
    assert {"torch.stack", "torch.relu"} <= names
    assert not any("VariableFunctions" in name for name in names)
