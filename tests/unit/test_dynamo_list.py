"""torch.compile's list of exceptions: each function of fastprof is put there once."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

from fastprof.integrations._torch.dynamo import leave_alone

NAME = "fastprof.loaded_later"


def test_each_function_is_put_there_once_also_those_that_are_loaded_later(monkeypatch):
    seen = []
    frames = SimpleNamespace(skip_code=seen.append)
    torch = SimpleNamespace(_C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=frames)))

    def new():
        seen.clear()
        leave_alone(torch)
        return {code.co_name for code in seen}

    monkeypatch.setitem(sys.modules, "fastprof.not_imported", None)
    assert "leave_alone" in new()
    assert not new()
    module = ModuleType(NAME)
    module.__spec__ = SimpleNamespace(_initializing=True)
    monkeypatch.setitem(sys.modules, NAME, module)
    exec("def first(): pass", vars(module))
    assert new() == {"first"}
    exec("def second(): pass", vars(module))  # another thread's import goes on
    module.__spec__ = None
    assert new() == {"first", "second"}
    assert not new()
    monkeypatch.setitem(sys.modules, NAME, again := ModuleType(NAME))
    exec("def third(): pass", vars(again))
    assert new() == {"third"}
