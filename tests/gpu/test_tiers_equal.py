"""Both ways of correlation give equal tables of a program, also of random programs."""

from __future__ import annotations

import children
import pytest
from fake_handles import FakeGpu

pytest.importorskip("hypothesis")

# Runs in a child, both tiers one after another for each example.
CHILD = """
from hypothesis import given, settings, strategies as st

EXAMPLES, FUNCTIONS = int(sys.argv[1]), sys.argv[2] == "functions"
engine = fakegpu.Engine()

class Wrong(Exception):
    pass

def plain(body): run(body)
def recursive(body, depth=2):
    if depth: recursive(body, depth - 1)
    else: run(body)
def generator(body):
    for op in body:
        yield run([op])
CALLS = [plain, recursive, lambda body: run(body), lambda body: list(generator(body)),
         lambda body: sorted([1, 2], key=lambda _: run(body) or 0)]

def run(ops):
    for kind, *rest in ops:
        if kind == "launch":
            fakegpu.launch(*rest[:2], **rest[2])
        elif kind == "copy":
            fakegpu.memcpy(*rest[:2], **rest[2])
        elif kind == "set":
            fakegpu.memset(*rest)
        elif kind == "item":
            fakegpu.item()
        elif kind == "wait":
            fakegpu.synchronize(rest[0])
        elif kind == "backward":
            engine.run_backward(*rest)
        elif kind == "section":
            with profile_section(rest[0]):
                run(rest[1])
        elif kind == "call":
            CALLS[rest[0]](rest[1])
        elif kind == "raise":
            try:
                with profile_section("raising"):
                    run(rest[0])
                    raise Wrong
            except Wrong:
                fakegpu.launch("handler")
        elif kind == "thread":
            in_thread(lambda: warmed_up(rest[0]))

# A thread owns others' work from its first launch on.
def warmed_up(ops): run([("launch", "first", 100, {}), *ops])

names = st.sampled_from(["gemm", "relu", "ncclAllReduce"])
ns = st.integers(0, 5000)
where = st.fixed_dictionaries({"stream": st.integers(7, 9), "device": st.integers(0, 1)})
launch = st.tuples(st.just("launch"), names, ns, st.fixed_dictionaries(
    {"stream": st.integers(7, 9), "device": st.integers(0, 1), "driver_only": st.booleans(),
     "count": st.integers(1, 3)}))
copy = st.tuples(st.just("copy"), st.sampled_from(["HtoD", "DtoH", "DtoD", "PtoP"]),
                 st.integers(0, 1000), st.fixed_dictionaries({"duration_ns": ns,
                                                              "wait": st.booleans()}))
leaf = st.one_of(
    launch, copy,
    st.tuples(st.just("set"), st.integers(0, 1000), ns),
    st.tuples(st.just("item")),
    st.tuples(st.just("wait"), st.sampled_from(["device", "stream", "event"])),
    st.tuples(st.just("backward"), st.lists(names, max_size=4), st.integers(1, 3)),
)
def bodies(inner):
    ops = st.lists(inner, max_size=4)
    return st.one_of(
        st.tuples(st.just("section"), st.sampled_from(["a", "b", "c"]), ops),
        st.tuples(st.just("call"), st.integers(0, len(CALLS) - 1), ops),
        st.tuples(st.just("raise"), ops),
        st.tuples(st.just("thread"), ops),
    )
programs = st.lists(st.recursive(leaf, bodies, max_leaves=12), min_size=1, max_size=5)

@settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES < 100)
@given(programs)
def same(program):
    tables = {}
    for tier in ("callbacks", "external"):
        with recorded(tier, functions=FUNCTIONS, period_s=0.5) as it:
            warmed_up(program)
        t = it.tables
        assert t.gpu["tier"] == tier
        assert UNKNOWN not in t.hows(), t.activity
        assert t.counters["launches"] == it.delivered["launches"]
        tables[tier] = t
    one, two = tables.values()
    assert one.activity == two.activity, (one.activity, two.activity)
    assert one.host == two.host, (one.host, two.host)
    for name in ("kernels", "copies", "memsets", "launches", "syncs", "graph_launches"):
        assert one.counters[name] == two.counters[name], name

same()
"""


def run(fake_gpu: FakeGpu, examples: int, what: str, timeout: float) -> None:
    children.ok(
        fake_gpu,
        CHILD,
        str(examples),
        what,
        timeout=timeout,
        FAKE_CUDA_DEVICES="2",
        # A start before the launch would be a fault of the fake.
        FAKE_CUPTI_SET="launch_latency_ns=20000",
    )


@pytest.mark.parametrize("what", ["functions", "sections"])
def test_equal_tables_of_random_programs(fake_gpu: FakeGpu, what: str) -> None:
    run(fake_gpu, 25, what, 240)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["functions", "sections"])
def test_equal_tables_of_many_random_programs(fake_gpu: FakeGpu, what: str) -> None:
    run(fake_gpu, 300, what, 600)
