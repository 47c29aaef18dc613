"""The origin of a function: the program, a library or Python."""

from __future__ import annotations

from pathlib import Path

import fastprof
import pytest
from fastprof.report.origin import is_own, is_users, shown_name
from fastprof.snapshot import Key

SOURCES = Path(fastprof.__file__).parent


def _key(file: str) -> Key:
    return Key("python", file, 1, "f", "f")


def test_the_package_s_code_is_never_the_program_s() -> None:
    files = [path for path in SOURCES.rglob("*/*.py") if not path.name.startswith("demo")]
    assert len(files) > 200
    assert [str(path) for path in files if not is_own(_key(f"/a/fastprof/{_below(path)}"))] == []


def _below(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix()


@pytest.mark.parametrize("folder", ["/a", "/a/lib/python3.12/site-packages"])
def test_the_demo_s_network_is_a_program(folder: str) -> None:
    assert is_users(_key(f"{folder}/fastprof/cli/demo_pure.py"))


@pytest.mark.parametrize("file", ["/home/u/fastprof/train.py", "/home/u/fastprof/models/unet.py"])
def test_a_program_may_lie_in_a_folder_of_that_name(file: str) -> None:
    assert is_users(_key(file))


def test_what_torch_compile_writes_is_not_the_program_s() -> None:
    made = "/tmp/torchinductor_root/uz/cuzvpq7fsd72jofhce3djm6jqz5p2mv3bbmkt6ufk4wk3jnyjdb6.py"
    assert not is_users(Key("python", made, 402, "call", "Runner.call"))


@pytest.mark.parametrize(
    ("file", "qualname", "shown"),
    [
        ("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper",
         "Optimizer.profile_hook_step"),
        ("accelerate/operations.py", "slice_tensors.<locals>._slice_tensor", "slice_tensors"),
        ("torch/nn/modules/module.py", "Module._call_impl", "Module._call_impl"),
    ],
)  # fmt: skip
def test_a_function_that_a_library_s_decorator_made_has_the_decorator_s_name(
    file: str, qualname: str, shown: str
) -> None:
    library = f"/a/lib/python3.12/site-packages/{file}"
    assert shown_name(Key("python", library, 1, qualname.split(".")[-1], qualname)) == shown
    mine = Key("python", "/home/u/train.py", 1, "wrapper", "timed.<locals>.wrapper")
    assert shown_name(mine) == "wrapper"
