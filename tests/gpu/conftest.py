"""Fixtures of the GPU tests: the fake driver, libcupti and NVML, built once per session.

``fake_gpu``    paths, the environment of a child process, variants (fake_handles.FakeGpu)
``fake_cupti``  the fake libcupti in this process, reset for the test (fake_handles.Control)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# For build_fake and fake_handles, which the tests import, too.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_fake
from fake_handles import Control, FakeGpu


@pytest.fixture(scope="session")
def fake_gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    directory = tmp_path_factory.mktemp("fake_gpu")
    build_fake.build_module(directory)
    return FakeGpu(
        directory,
        build_fake.build_cupti(directory),
        build_fake.build_cuda(directory),
        build_fake.build_nvml(directory),
    )


@pytest.fixture
def fake_cupti(fake_gpu: FakeGpu) -> Iterator[Control]:
    control = Control(fake_gpu.cupti)
    control.reset()
    yield control
    control.reset()
