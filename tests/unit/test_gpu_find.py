"""The places where fastprof searches libcupti, the driver and NVML, and where not."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import fastprof
import pytest
from fastprof import _core
from fastprof.capture import gpu_find
from fastprof.capture.gpu_find import Candidate, cupti_candidates, soname_major, usable
from helpers import child_env, run_child

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
SONAMES = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"]
Touch = Callable[[str], str]

REAL_CUPTI = Path("/usr/local/cuda-13.0/lib64/libcupti.so.13")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without NVIDIA software; its `cwd` is the working directory."""
    for name in list(os.environ):
        if name.startswith(("FASTPROF_CU", "FASTPROF_NVML", "CUDA", "NSYS", "NV_", "NVTX")):
            monkeypatch.delenv(name)
    (tmp_path / "cwd").mkdir()
    (tmp_path / "maps").write_text("")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "cwd"), str(tmp_path / "site")])
    monkeypatch.setattr(gpu_find, "_MAPS", str(tmp_path / "maps"))
    monkeypatch.setattr(gpu_find, "_TOOLKITS", str(tmp_path / "local" / "cuda*"))
    monkeypatch.setattr(gpu_find, "_warned", set())
    return tmp_path


@pytest.fixture
def touch(machine: Path) -> Touch:
    def make(name: str) -> str:
        path = machine / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        return str(path)

    return make


def set_maps(machine: Path, *paths: str) -> None:
    lines = ["7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", "7f-80 r--p 0 00:00 0  [heap]"]
    for path in paths:
        lines += [f"7f00-7f01 r-xp 00000000 08:01 42                       {path}"] * 3
    (machine / "maps").write_text("\n".join(lines) + "\n")


def paths() -> list[str]:
    return [candidate.path for candidate in cupti_candidates()]


def test_without_any_the_loader_is_asked(machine: Path) -> None:
    assert paths() == SONAMES


def test_the_order_of_the_places(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = touch("own/my-cupti.so")
    mapped = touch("app/libcupti.so.12")
    wheel13 = touch("site/nvidia/cu13/lib/libcupti.so.13")
    wheel12 = touch("site/nvidia/cuda_cupti/lib/libcupti.so.12")
    home = [
        touch("home/extras/CUPTI/lib64/libcupti.so.12"),
        touch("home/lib64/libcupti.so.12"),
        touch("home/lib/libcupti.so.11.8"),
    ]
    toolkits = [
        touch("local/cuda/lib64/libcupti.so.12"),
        touch("local/cuda-13.0/lib64/libcupti.so.13"),
        touch("local/cuda-12.10/lib64/libcupti.so.12"),
        touch("local/cuda-12.4/lib64/libcupti.so.12"),
    ]
    set_maps(machine, "/usr/lib/libc.so.6", mapped)
    monkeypatch.setenv("FASTPROF_CUPTI", named)
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    assert paths() == [named, mapped, wheel13, wheel12, *home, *toolkits, *SONAMES]
    origins = [candidate.origin for candidate in cupti_candidates()]
    assert origins[:5] == [
        "FASTPROF_CUPTI",
        "loaded by the program",
        "installed with pip",
        "installed with pip",
        "CUDA_HOME",
    ]
    assert origins[7] == "CUDA toolkit"
    assert origins[-1] == "the loader's search"


def test_one_library_under_two_names_is_one(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = touch("local/cuda-13.0/lib64/libcupti.so.13")
    (machine / "local" / "cuda").symlink_to(machine / "local" / "cuda-13.0")
    monkeypatch.setenv("CUDA_HOME", str(machine / "local" / "cuda"))
    assert paths() == [str(machine / "local/cuda/lib64/libcupti.so.13"), *SONAMES]
    set_maps(machine, real)
    assert paths() == [real, *SONAMES]


def test_of_two_loaded_copies_torchs_goes_first(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = touch("site/triton/backends/nvidia/lib/cupti/libcupti.so.12")
    torch = touch("site/nvidia/cu13/lib/libcupti.so.13")
    set_maps(machine, triton, torch)
    init = touch("site/torch/__init__.py")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__=init))
    found = cupti_candidates()
    copies = "one of 2 copies loaded by the program"
    assert found[:2] == [Candidate(torch, f"{copies}, torch's"), Candidate(triton, copies)]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__=None))
    assert [c.path for c in cupti_candidates()][:2] == [triton, torch]


def test_a_loaded_file_that_is_gone_is_no_candidate(machine: Path) -> None:
    set_maps(machine, f"{machine}/gone/libcupti.so.12 (deleted)", f"{machine}/x/libcupti.so.12")
    assert paths() == SONAMES
    (machine / "maps").unlink()
    assert paths() == SONAMES


def test_p8_the_working_directory_is_not_looked_into(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "libcupti.so.13",
        "libcupti.so",
        "lib64/libcupti.so.13",
        "nvidia/cu13/lib/libcupti.so.13",
        "nvidia/cuda_cupti/lib/libcupti.so.12",
    ):
        touch(f"cwd/{name}")
    for home in ("", ".", "..", "lib64"):
        monkeypatch.setenv("CUDA_HOME", home)
        assert paths() == SONAMES
    (machine / "link").symlink_to(machine / "cwd")
    monkeypatch.setattr(sys, "path", [str(machine / "link"), ".", "nvidia"])
    assert paths() == SONAMES
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.chdir(machine / "cwd" / "lib64")
    monkeypatch.setenv("CUDA_HOME", str(machine / "cwd"))
    assert paths() == SONAMES


def test_p8_a_library_in_the_working_directory_is_not_loaded(tmp_path: Path) -> None:
    if not REAL_CUPTI.exists():
        pytest.skip("no libcupti on this machine")
    for name in SONAMES:
        shutil.copy(REAL_CUPTI, tmp_path / name)
    code = """
        from pathlib import Path
        from fastprof import _core
        from fastprof.capture import gpu_find
        gpu_find._TOOLKITS = "/nowhere*"
        gpu_find._wheel_folders = list
        found = [c.path for c in gpu_find.cupti_candidates()]
        assert not any("/" in path for path in found), found
        assert _core.gpu_probe(None, [*found, "./libcupti.so.13"], True)["cupti"] == []
        assert "libcupti" not in Path("/proc/self/maps").read_text()
    """
    lines = "\n".join(line[8:] for line in code.splitlines())
    run_child(lines, cwd=tmp_path, env={"PYTHONPATH": SOURCE_PATH, "CUDA_HOME": "."}).check()


VARIABLES = ["FASTPROF_CUPTI", "FASTPROF_CUDA_DRIVER", "FASTPROF_NVML"]
JUNK = ["junk", "./x", "../libcupti.so.13", "lib/x", "/no/such/file", "/", "/" + "x" * 100_000,
        "\udcff\udcfe", "/\udcff", " ", "1"]  # fmt: skip


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("variable", VARIABLES)
def test_f48_junk_is_warned_about_once_and_ignored(
    machine: Path,
    variable: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(variable, value)
    with caplog.at_level(logging.WARNING, logger="fastprof"):
        for _ in range(3):
            assert paths() == SONAMES
            assert gpu_find.driver_path() is None
            assert gpu_find.nvml_path() == "libnvidia-ml.so.1"
    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert text.startswith(f"{variable}=")
    assert text.endswith("is ignored: it must be the absolute path of a file")
    assert text.isascii()
    assert len(text) < 250


@pytest.mark.parametrize("variable", VARIABLES)
def test_f48_an_empty_value_counts_as_unset(
    machine: Path, variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, "")
    assert paths() == SONAMES
    assert gpu_find.driver_path() is None
    assert gpu_find.nvml_path() == "libnvidia-ml.so.1"
    assert not caplog.records


def test_the_driver_is_the_file_that_is_named(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_find.driver_path() is None
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", touch("own/libcuda.so.1"))
    assert gpu_find.driver_path() == str(machine / "own/libcuda.so.1")
    monkeypatch.setenv("FASTPROF_NVML", touch("own/libnvidia-ml.so.1"))
    assert gpu_find.nvml_path() == str(machine / "own/libnvidia-ml.so.1")


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_f48_the_variables_are_not_looked_at_in_an_isolated_run(
    option: str, tmp_path: Path
) -> None:
    for name in ("libcupti.so.13", "libcuda.so.1", "libnvml.so", "home/lib64/libcupti.so.13"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    env = {
        "FASTPROF_CUPTI": str(tmp_path / "libcupti.so.13"),
        "FASTPROF_CUDA_DRIVER": str(tmp_path / "libcuda.so.1"),
        "FASTPROF_NVML": str(tmp_path / "libnvml.so"),
        "CUDA_HOME": str(tmp_path / "home"),
    }
    code = (
        "import sys\n"
        f"sys.path.insert(0, {SOURCE_PATH!r})\n"
        "from fastprof.capture import gpu_find\n"
        "assert gpu_find.driver_path() is None\n"
        "assert gpu_find.nvml_path() == gpu_find.NVML_SONAME\n"
        f"assert not any({str(tmp_path)!r} in c.path for c in gpu_find.cupti_candidates())\n"
    )
    run_child(code, env=env, options=[option], guard=False).check()


def test_what_is_too_new_for_the_driver_is_left_out() -> None:
    candidates = [Candidate(name, "") for name in [*SONAMES, "/x/my-cupti.so"]]
    kept, rejected = usable(candidates, 12080)
    assert [candidate.path for candidate in kept] == [*SONAMES[1:], "/x/my-cupti.so"]
    assert rejected == [(candidates[0], "made for CUDA 13; the driver is of CUDA 12.8")]
    assert usable(candidates, 13000) == (candidates, [])
    assert usable(candidates, None) == (candidates, [])
    assert [c.path for c in usable(candidates, 11080)[0]] == [SONAMES[2], "/x/my-cupti.so"]


def test_a_file_named_after_its_year_is_known_by_what_points_to_it(
    machine: Path, touch: Touch
) -> None:
    real = touch("lib/libcupti.so.2025.3.1")
    assert soname_major(real) is None
    (machine / "lib" / "libcupti.so").symlink_to("libcupti.so.13")
    (machine / "lib" / "libcupti.so.13").symlink_to("libcupti.so.2025.3.1")
    touch("lib/libcupti.so.12")
    assert soname_major(real) == 13
    assert soname_major(str(machine / "lib" / "libcupti.so")) == 13
    assert soname_major("libcupti.so.11.8") == 11
    assert soname_major("libcupti.so") is None


def test_without_a_driver_there_is_nothing_to_try(
    machine: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = touch("site/nvidia/cu13/lib/libcupti.so.13")
    states = []

    def probe(driver: str | None, cupti: tuple[str, ...], initialise: bool) -> object:
        assert (driver, cupti, initialise) == ("/x", (), False)
        return {"driver": {"state": states[-1], "version": 12080}}

    monkeypatch.setattr(_core, "gpu_probe", probe)
    for state, initialise, want in [
        ("none", True, []),
        ("waiting", False, []),
        ("waiting", True, SONAMES[1:]),
        ("ready", False, SONAMES[1:]),
    ]:
        states.append(state)
        assert gpu_find.cupti_paths("/x", initialise=initialise) == want
    monkeypatch.setattr(
        _core, "gpu_probe", lambda *_: {"driver": {"state": "ready", "version": 13000}}
    )
    assert gpu_find.cupti_paths("/x", initialise=False) == [wheel, *SONAMES]


@pytest.mark.parametrize(
    ("variable", "value", "want"),
    [
        ("NSYS_PROFILING_SESSION_ID", "4711", "Nsight Systems"),
        ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "/opt/x", "Nsight Compute"),
        ("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "0", "Nsight Compute"),
        ("NV_SANITIZER_INJECTION_PORT_BASE", "1", "Compute Sanitizer"),
        ("CUDA_INJECTION64_PATH", "/opt/x.so", "a CUDA tool"),
        ("NSYS_PROFILING_SESSION_ID", "", None),
        ("CUDA_INJECTION64_PATH", "none", None),
        # Set by container images and by users.
        ("NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT", "1", None),
        ("NVTX_INJECTION64_PATH", "/opt/x.so", None),
    ],
)
def test_who_is_attached(
    machine: Path, variable: str, value: str, want: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_find.attached_tool() is None
    monkeypatch.setenv(variable, value)
    assert gpu_find.attached_tool() == (want and f"{want} ({variable} is set)")


def test_f49_the_real_libcupti_is_not_touched_without_a_driver() -> None:
    code = (
        "from fastprof import _core\n"
        f"told = _core.gpu_probe('/no/libcuda.so.1', [{str(REAL_CUPTI)!r}], True)\n"
        "assert told['driver']['state'] == 'none'\n"
        "assert '/no/libcuda.so.1' in told['driver']['reason']\n"
        "assert told['cupti'] == []\n"
    )
    run_child(code, env=child_env({"PYTHONPATH": SOURCE_PATH})).check()
