"""Compares csrc/gpu's declarations of CUPTI's binary interface to installed real headers.

Checks also that the headers' structs can read the fake's records.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import build_fake
import pytest
import real_cupti
from fake_handles import Control

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
ABI_HEADERS = ("gpu/cupti_abi.h", "gpu/cupti_records.h")
ABI = "\n".join((CSRC / header).read_text(encoding="utf-8") for header in ABI_HEADERS)
HEADERS = real_cupti.include_dirs()

pytestmark = pytest.mark.skipif(
    not HEADERS or real_cupti.cuda_include() is None,
    reason="no CUPTI headers (or no cuda.h) in CUDA_HOME, /usr/local/cuda* or nvidia wheels",
)

# Prefix of FP_AT_*: the struct, and its fields by the rest of the name.
STRUCTS = {
    "KERNEL": "CUpti_ActivityKernel",
    "MEMCPY": "CUpti_ActivityMemcpy",
    "MEMCPY2": "CUpti_ActivityMemcpyPtoP",
    "MEMSET": "CUpti_ActivityMemset",
    "GRAPH": "CUpti_ActivityGraphTrace",
    "API": "CUpti_ActivityAPI",
    "EXTERNAL": "CUpti_ActivityExternalCorrelation",
}
FIELDS = {
    "REGISTERS": "registersPerThread",
    "START": "start",
    "END": "end",
    "DEVICE": "deviceId",
    "STREAM": "streamId",
    "GRID": "gridX",
    "BLOCK": "blockX",
    "STATIC_SHARED": "staticSharedMemory",
    "DYNAMIC_SHARED": "dynamicSharedMemory",
    "CORRELATION": "correlationId",
    "NAME": "name",
    "GRAPH_NODE": "graphNodeId",
    "COPY_KIND": "copyKind",
    "BYTES": "bytes",
    "CBID": "cbid",
    "THREAD": "threadId",
    "KIND": "externalKind",
    "ID": "externalId",
}
# The headers' prefix for our names without FP_CUPTI_, by enum ...
PREFIXES = {
    "CUpti_ActivityKind": "CUPTI_ACTIVITY_KIND_",
    "CUpti_ActivityAttribute": "CUPTI_ACTIVITY_ATTR_",
    "CUptiResult": "CUPTI_ERROR_",
    "CUpti_CallbackDomain": "CUPTI_CB_",
    "CUpti_CallbackIdResource": "CUPTI_CBID_RESOURCE_",
    "CUpti_ApiCallbackSite": "CUPTI_",
    "CUpti_ActivityMemcpyKind": "CUPTI_ACTIVITY_MEMCPY_KIND_",
}
# ... and the names that do not follow this pattern.
VALUES = {
    "FP_CUPTI_SUCCESS": "CUPTI_SUCCESS",
    "FP_CUPTI_MULTIPLE_SUBSCRIBERS": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "FP_CUPTI_DOMAIN_DRIVER": "CUPTI_CB_DOMAIN_DRIVER_API",
    "FP_CUPTI_DOMAIN_RUNTIME": "CUPTI_CB_DOMAIN_RUNTIME_API",
    "FP_CUPTI_FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "FP_CUPTI_EXTERNAL_CUSTOM2": "CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2",
}
# Argument structs of callbacks: our fields and the headers', in the same order.
CALLBACK_STRUCTS = {
    ("fp_cupti_call", "CUpti_CallbackData"): {
        "site": "callbackSite",
        "function_name": "functionName",
        "params": "functionParams",
        "return_value": "functionReturnValue",
        "symbol_name": "symbolName",
        "context": "context",
        "context_uid": "contextUid",
        "shared": "correlationData",
        "correlation": "correlationId",
    },
    ("fp_cupti_resource", "CUpti_ResourceData"): {
        "context": "context",
        "stream": "resourceHandle.stream",
        "descriptor": "resourceDescriptor",
    },
    ("fp_cupti_graph", "CUpti_GraphData"): {
        "graph": "graph",
        "original_graph": "originalGraph",
        "node": "node",
        "original_node": "originalNode",
        "node_type": "nodeType",
        "dependency": "dependency",
        "exec": "graphExec",
    },
}


def name_of(include: Path) -> str:
    return str(real_cupti.header_version(include))


def compile_against(
    include: Path, source: str, folder: Path, sources: list[Path] | None = None
) -> Path:
    path = folder / "check.c"
    path.write_text(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        f"#include <cuda.h>\n#include <cupti_callbacks.h>\n#include <cupti_activity.h>\n{source}",
        encoding="utf-8",
    )
    options = ["-isystem", str(include), "-isystem", str(real_cupti.cuda_include())]
    return build_fake.compile_c(
        [path, *(sources or [])], folder / "check", [*options, "-I", str(CSRC)], shared=False
    )


def constants() -> dict[str, str]:
    """Return each of our constants: its name and the headers' expression for it, or ""."""
    found = {}
    enums = re.findall(r"(?:/\* (\w+)[^*]*\*/\n)?enum \{(?: /\* (\w+) \*/)?(.*?)\n?\};", ABI, re.S)
    enums += re.findall(r"(?:/\* (\w+)[^*]*\*/\n)?enum ()\{ (.*?) \};", ABI)
    for before, inside, body in enums:
        prefix = PREFIXES.get(inside or before, "")
        for name in re.findall(r"\b(FP_\w+) = \d+", body):
            plain_name = re.sub(r"^FP_(CUPTI|COPY)_", "", name)
            found[name] = VALUES.get(name, prefix + plain_name if prefix else "")
    return found


def offset_of(name: str, include: Path) -> str:
    """Return the headers' expression for one of our offsets."""
    if name == "FP_AT_KIND":
        return "offsetof(CUpti_Activity, kind)"
    struct, field = name.removeprefix("FP_AT_").split("_", 1)
    return f"offsetof({real_cupti.newest(STRUCTS[struct], include)}, {FIELDS[field]})"


@pytest.mark.parametrize("include", HEADERS, ids=name_of)
def test_every_number_of_ours_is_the_headers_number(include: Path, tmp_path: Path) -> None:
    lines = [f'#include "{header}"' for header in ABI_HEADERS]
    ours = constants()
    assert len(ours) == len(re.findall(r"\bFP_\w+ = \d+", ABI)) > 70
    offsets = [name for name in ours if name.startswith("FP_AT_")]
    equal = [(name, offset_of(name, include)) for name in offsets]
    equal += [(name, f"(int){theirs}") for name, theirs in ours.items() if name not in offsets]
    for (struct, theirs), fields in CALLBACK_STRUCTS.items():
        pairs = fields.items()
        equal += [(f"offsetof({struct}, {o})", f"offsetof({theirs}, {t})") for o, t in pairs]
    lines += [f'_Static_assert({a} == {b}, "{a} is {b}");' for a, b in equal]
    lines.append("int main(void) { return 0; }")
    compile_against(include, "\n".join(lines), tmp_path)


def our_calls() -> dict[str, dict[int, tuple[str, str]]]:
    """Read csrc/gpu/api_calls.c: {domain: {number: (class, name)}}."""
    text = (CSRC / "gpu" / "api_calls.c").read_text(encoding="utf-8")
    tables = {}
    for domain in ("RUNTIME", "DRIVER"):
        body = text.split(f"#define {domain}_CALLS(X)")[1].split("\n\n")[0]
        rows = re.findall(r"X\((\d+), (\w+), (\w+)\)", body)
        tables[domain.lower()] = {int(n): (kind, name) for n, kind, name in rows}
        assert len(tables[domain.lower()]) == len(rows), "a number is there twice"
    return tables


def plain(name: str) -> str:
    """Return a runtime call's name without the release that introduced it."""
    return re.sub(r"_v\d{4,5}$", "", name)


@pytest.mark.parametrize("domain", ["runtime", "driver"])
@pytest.mark.parametrize("include", HEADERS, ids=name_of)
def test_every_call_has_its_number(include: Path, domain: str) -> None:
    ours = our_calls()[domain]
    theirs = real_cupti.cbids(include, domain)
    assert len(ours) > 80
    known = {n: name for n, (_, name) in ours.items() if n <= max(theirs)}
    assert known == {n: plain(theirs.get(n, "no such call")) for n in known}


# Calls that give the device work or wait for it, by name.
WORK = re.compile(r"(Memcpy|Memset|Synchronize|GraphLaunch|Launch(?!HostFunc))")
# ... but only build or query something, are older than CUDA 4, or exist in a header only.
NOT_WORK = re.compile(
    r"Graph(?!Launch)|Attribute(?!s)|LaunchDevice|^cu64|^cuMemcpy_v2$"
    r"|^cuGraphLaunchWithArguments|^cuSubgridScheduleLaunch"
)


@pytest.mark.parametrize("domain", ["runtime", "driver"])
@pytest.mark.parametrize("include", HEADERS, ids=name_of)
def test_no_call_is_missing(include: Path, domain: str) -> None:
    theirs = real_cupti.cbids(include, domain)
    wanted = {
        n: name for n, name in theirs.items() if WORK.search(name) and not NOT_WORK.search(name)
    }
    assert len(wanted) > 60
    assert {n: name for n, name in wanted.items() if n not in our_calls()[domain]} == {}


def test_the_class_of_a_call_follows_from_its_name() -> None:
    for calls in our_calls().values():
        for number, (kind, name) in calls.items():
            if "Synchronize" in name:
                expected = {"SYNC"}
            elif "GraphLaunch" in name or "Batch" in name or "MultiDevice" in name:
                expected = {"GRAPH"}
            elif "Async" in name or "Launch" in name or "Memset" in name:
                expected = {"LAUNCH"}
            else:
                expected = {"LAUNCH", "COPY_SYNC"}
            assert kind in expected, (number, name)


@pytest.mark.parametrize("include", [real_cupti.cuda_include()], ids=["cuda.h"])
def test_the_drivers_attributes_have_their_numbers(include: Path, tmp_path: Path) -> None:
    names = {
        "WARP_SIZE": "WARP_SIZE",
        "MULTIPROCESSORS": "MULTIPROCESSOR_COUNT",
        "THREADS_PER_MULTIPROCESSOR": "MAX_THREADS_PER_MULTIPROCESSOR",
        "CAPABILITY_MAJOR": "COMPUTE_CAPABILITY_MAJOR",
        "CAPABILITY_MINOR": "COMPUTE_CAPABILITY_MINOR",
        "SHARED_BYTES_PER_MULTIPROCESSOR": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
        "REGISTERS_PER_MULTIPROCESSOR": "MAX_REGISTERS_PER_MULTIPROCESSOR",
        "BLOCKS_PER_MULTIPROCESSOR": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    }
    text = (CSRC / "gpu" / "cuda_driver.c").read_text(encoding="utf-8")
    lines = []
    for ours, theirs in names.items():
        number = re.search(rf"\b{ours} = (\d+),", text)
        assert number is not None, ours
        lines.append(f'_Static_assert(CU_DEVICE_ATTRIBUTE_{theirs} == {number[1]}, "{ours}");')
    source = "#include <cuda.h>\n" + "\n".join(lines) + "\nint main(void) { return 0; }\n"
    path = tmp_path / "check.c"
    path.write_text(source, encoding="utf-8")
    build_fake.compile_c([path], tmp_path / "check", ["-isystem", str(include)], shared=False)


# ---- the fake's records, read with the headers' structs ----

# Kind, struct, and the fields' expected values for the record below.
WRITTEN = {
    10: (
        "CUpti_ActivityKernel",
        (
            "registersPerThread=40 start=1001 end=1002 completed=1002 deviceId=3 contextId=4"
            " streamId=5 gridX=11 gridY=12 gridZ=13 blockX=14 blockY=15 blockZ=16"
            " staticSharedMemory=41 dynamicSharedMemory=42 correlationId=7 graphNodeId=9 graphId=8"
        ),
    ),
    1: (
        "CUpti_ActivityMemcpy",
        (
            "copyKind=2 bytes=6 start=1001 end=1002 deviceId=3 contextId=4 streamId=5"
            " correlationId=7 graphNodeId=9 graphId=8"
        ),
    ),
    22: (
        "CUpti_ActivityMemcpyPtoP",
        (
            "copyKind=2 bytes=6 start=1001 end=1002 deviceId=3 contextId=4 streamId=5 srcDeviceId=3"
            " dstDeviceId=10 correlationId=7 graphNodeId=9 graphId=8"
        ),
    ),
    2: (
        "CUpti_ActivityMemset",
        (
            "bytes=6 start=1001 end=1002 deviceId=3 contextId=4 streamId=5 correlationId=7"
            " graphNodeId=9 graphId=8"
        ),
    ),
    5: ("CUpti_ActivityAPI", "cbid=2 start=1001 end=1002 threadId=17 correlationId=7"),
    39: ("CUpti_ActivityExternalCorrelation", "externalKind=2 externalId=6 correlationId=7"),
    38: (
        "CUpti_ActivitySynchronization",
        "type=2 start=1001 end=1002 correlationId=7 contextId=4 streamId=5",
    ),
    17: ("CUpti_ActivityOverhead", "start=1001 end=1002"),
    51: ("CUpti_ActivityGraphTrace", "correlationId=7 start=1001 end=1002"),
    12: ("CUpti_ActivityMarker", ""),
    36: ("CUpti_ActivityCudaEvent", ""),
    49: ("CUpti_ActivityMemory", ""),
    50: ("CUpti_ActivityMemoryPool", ""),
}
RECORD = (
    "{.type = 2, .start = 1001, .end = 1002, .bytes = 6, .device = 3, .stream = 5,"
    " .to_device = 10, .correlation = 7, .thread = 17, .graph = 8, .graph_node = 9,"
    ' .name = "k", .grid = {11, 12, 13}, .block = {14, 15, 16}, .registers = 40,'
    " .static_shared = 41, .dynamic_shared = 42}"
)


@pytest.mark.parametrize("include", HEADERS, ids=name_of)
def test_the_fake_writes_what_the_headers_read(
    include: Path, fake_cupti: Control, tmp_path: Path
) -> None:
    release = release_of(include, fake_cupti)
    body = []
    for kind, (struct, fields) in WRITTEN.items():
        name = real_cupti.newest(struct, include)
        body.append(f"r.kind = {kind}; fake_cupti_write_record({release}, &r, at.bytes);")
        body.append(
            f'if (sizeof({name}) != fake_cupti_record_size({release}, {kind})) puts("{name}");'
        )
        for pair in fields.split():
            field, value = pair.split("=")
            body.append(
                f"if ((int)(({name} *)at.bytes)->{field} != {value})"
                f' puts("{name}.{field} is not {value}");'
            )
    source = (
        '#include "fake_cupti.h"\n'
        "static union { uint64_t align; uint8_t bytes[512]; } at;\n"
        f"int main(void) {{ fake_record r = {RECORD};\n" + "\n".join(body) + "\nreturn 0; }\n"
    )
    program = compile_against(include, source, tmp_path, [build_fake.SOURCES / "fake_records.c"])
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    assert done.stdout == ""


def release_of(include: Path, fake_cupti: Control) -> int:
    """Return the fake's release with these headers' layouts; 11.8 and 12.1 share a version."""
    version = real_cupti.header_version(include)
    release = fake_cupti.release_of(version)
    if release < 0:
        pytest.skip(f"no layouts are known for CUPTI {version}")
    is_later = real_cupti.newest("CUpti_ActivityKernel", include) != "CUpti_ActivityKernel8"
    return 12010 if release == 11080 and is_later else release
