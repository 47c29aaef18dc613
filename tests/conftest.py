"""Fixtures of the whole suite; plain functions are in helpers.py."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import network
import pytest
from helpers import BACKENDS, examples, sanitized, wait_for_sleeping_threads

try:
    import hypothesis
except ImportError:
    hypothesis = None
else:
    # No deadline: a test must not depend on the speed of the machine.  CI uses the same examples in
    # every run, so that a failure means a change in the branch.
    hypothesis.settings.register_profile(
        "fastprof",
        deadline=None,
        max_examples=examples(100),
        derandomize=bool(os.environ.get("CI")),
        database=None,
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.function_scoped_fixture,
        ],
    )
    hypothesis.settings.load_profile("fastprof")


# A shell that starts the suite in the background may ignore Ctrl-C and Ctrl-\, and every child
# would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


if sanitized():
    os.register_at_fork(before=wait_for_sleeping_threads)


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> None:
    """Promise P6: no test may use the network."""
    network.forbid()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return each hook backend of this interpreter: "setprofile", and "monitoring" on 3.12+."""
    return request.param


def pytest_collection_finish() -> None:
    """Keep what pytest and the test files made out of the garbage collector.

    Otherwise every collection of a test visits thousands of tests and their modules.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = os.environ.get("FASTPROF_GPU_REQUIRED", "") not in ("", "0")
    if required or Path("/dev/nvidiactl").exists():
        return
    no_gpu = pytest.mark.skip(reason="no NVIDIA driver on this machine")
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(no_gpu)
