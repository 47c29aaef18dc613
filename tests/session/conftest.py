"""Fixtures shared by the tests of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastprof.session import current


@pytest.fixture(autouse=True)
def no_run_is_left_behind() -> Iterator[None]:
    assert current.running() is None
    yield
    run = current.running()
    if run is not None:
        run.stop()
        pytest.fail("the test left a run going on")
