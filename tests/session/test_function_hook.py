"""The function hook in a block of fastprof's own work."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from fastprof.session.faults import Faults
from fastprof.session.function_hook import FunctionHook


def test_p9_a_hook_that_exceptions_kept_off_is_set_in_the_next_block_and_noted() -> None:
    recorder, faults = MagicMock(backend="setprofile", steps=0), Faults()
    hook = FunctionHook(recorder, True, None, faults)
    hook.begin()
    recorder.rehook.side_effect = TimeoutError
    hook.take_away()
    hook.put_back()
    with pytest.raises(TimeoutError), hook.aside():
        pass
    assert len(faults.notes) == 1
    assert "TimeoutError" in faults.notes[0]
    recorder.rehook.side_effect = None
    with hook.aside():
        pass
    with hook.aside():
        pass
    assert recorder.rehook.call_count == 2
