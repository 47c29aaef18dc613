"""Compiled models: the hooks add no graph break and no recompilation."""

from __future__ import annotations

import fastprof
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")

from fastprof.integrations import torch_loop  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def dynamo_counts() -> dict[str, object]:
    counters = torch._dynamo.utils.counters
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": dict(counters["graph_break"]),
        "recompiles": sum(counters["recompiles"].values()) if "recompiles" in counters else 0,
    }


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def compiled_module(backend):
    return torch.compile(network(), backend=backend)


def compiled_in_place(backend):
    model = network()
    model.compile(backend=backend)
    return model


def compiled_function(backend):
    model = network()
    call = torch.compile(lambda x: model(x).square().mean(), backend=backend)
    call.parameters = model.parameters  # type: ignore[attr-defined]
    return call


def compiled_with_gradients(backend):
    """Return a function that calls autograd.grad itself."""
    model = network()

    def penalty(x):
        output = model(x).sum()
        return output + torch.autograd.grad(output, x, create_graph=True)[0].square().sum()

    call = torch.compile(penalty, backend=backend)
    call.parameters = model.parameters  # type: ignore[attr-defined]
    return call


def run(make, backend):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = make(backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4, requires_grad=True)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, dynamo_counts()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make", [compiled_module, compiled_in_place, compiled_function, compiled_with_gradients]
)
def test_compiled_code_is_compiled_as_it_was(make, backend) -> None:
    if make is compiled_with_gradients and backend == "aot_eager":
        pytest.skip("AOTAutograd has no double backward")
    alone = run(make, backend)
    with torch_loop.attach(functions=False) as loop:
        observed = run(make, backend)
    assert observed == alone
    snapshot = loop.profiler.snapshot()
    assert snapshot.counters == {}
    found = {row.name: row.count for row in loop.report().in_phase("all").sections}
    assert found["optimizer"] == 4
    assert found["backward"] >= 4
    assert loop.report().in_phase("all").steps.count == 4
    if make in (compiled_module, compiled_in_place):
        assert found["forward"] == 4


def test_a_model_compiled_in_place_is_left_as_it_was() -> None:
    model = network()
    with torch_loop.attach(functions=False):
        model.compile(backend="eager")
        inside = model._compiled_call_impl
        model(torch.ones(1, 4))
    assert model._compiled_call_impl is inside.__wrapped__
    assert fastprof.session.current.running() is None


def test_torch_compile_looks_through_the_wrapped_copies() -> None:
    def double(x):
        return torch.Tensor.to(x, torch.float64).to(torch.float32) * 2

    with torch_loop.attach(functions=False) as loop:
        loop._hooks._install_copies()
        compiled = torch.compile(double, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
