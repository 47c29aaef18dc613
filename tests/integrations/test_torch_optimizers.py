"""Programs with several optimizers: how many steps a run has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastprof.integrations import torch_loop  # noqa: E402

X = torch.ones(4, 8)


def net(width: int = 8) -> Any:
    return torch.nn.Linear(width, 1)


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def batches(number: int) -> Any:
    return torch.utils.data.DataLoader(list(X.repeat(number, 1)), batch_size=4)


def step(model: Any, optimizer: Any, x: Any = X) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def trains(model: Any, optimizer: Any, loader: Iterable[Any]) -> Any:
    for x in loader:
        step(model, optimizer, x)
    return model


def several(number: int = 4) -> list[tuple[Any, Any]]:
    """Return models, each with an optimizer."""
    models = [net() for _ in range(number)]
    return [(model, sgd(model)) for model in models]


def federated(server: Callable[[Any], Any] = lambda model: None, rounds: int = 5) -> None:
    """Four clients of five batches; ``server`` returns an optimizer that steps by differences."""
    model, loaders = net(), [batches(5) for _ in range(4)]
    optimizer = server(model)
    for _ in range(rounds):
        clients = []
        for loader in loaders:
            client = copy.deepcopy(model)
            clients.append(trains(client, sgd(client), loader))
        for i, p in enumerate(model.parameters()):
            p.grad = sum(p.detach() - list(client.parameters())[i].detach() for client in clients)
        if hasattr(optimizer, "step"):
            optimizer.step()


def unused(model: Any) -> Any:
    model.kept = [sgd(model)]


class Client:
    """Keeps its last optimizer."""

    def __init__(self, number: int) -> None:
        self.loader = batches(number)

    def train(self, model: Any) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = sgd(self.model)
        trains(self.model, self.optimizer, self.loader)


def clients_with_state(number: int) -> None:
    model, clients = net(), [Client(number) for _ in range(4)]
    for _ in range(5):
        for client in clients:
            client.train(model)


def maml(tasks: int, loader: Iterable[Any] | None = None, own_backward: bool = True) -> None:
    model = net()
    meta = torch.optim.Adam(model.parameters())
    for x in loader or [X] * 10:
        for task in range(tasks):
            fast = copy.deepcopy(model)
            inner = sgd(fast)
            for _ in range(3 + task % 3):
                step(fast, inner, x)
            if own_backward:
                fast(x).square().mean().backward()
            for slow, quick in zip(model.parameters(), fast.parameters(), strict=True):
                slow.grad = quick.grad.clone() if own_backward else (slow - quick).detach()
        meta.step()


def gan(every: int) -> None:
    painter, judge = net(), net(1)
    paints, judges = sgd(painter), sgd(judge)
    for i, x in enumerate(batches(20)):
        step(judge, judges, painter(x).detach())
        if i % every == every - 1:
            paints.zero_grad()
            judge(painter(x)).mean().backward()
            paints.step()


def accumulation() -> None:
    model = net()
    optimizer = sgd(model)
    for i, x in enumerate(batches(20)):
        model(x).mean().backward()
        if i % 4 == 3:
            optimizer.step()


def reinforcement() -> None:
    """Several epochs on each rollout, which an older copy of the model made."""
    model, older = net(), net()
    optimizer = sgd(model)
    for _ in range(4):
        with torch.no_grad():
            older(X)
        for _ in range(5):
            step(model, optimizer)
        older.load_state_dict(model.state_dict())


def deep_q() -> None:
    model = net()
    target, optimizer = copy.deepcopy(model), sgd(model)
    for _ in range(20):
        with torch.no_grad():
            wanted = target(X)
        optimizer.zero_grad()
        (model(X) - wanted).square().mean().backward()
        optimizer.step()


def lbfgs() -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(X + torch.rand(4, 8)).square().mean()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)


def in_turn(models: list[tuple[Any, Any]], epochs: int = 1) -> None:
    loader = batches(5)
    for _ in range(epochs):
        for model, optimizer in models:
            trains(model, optimizer, loader)


def ensemble_per_batch() -> None:
    models = several()
    for x in batches(20):
        for model, optimizer in models:
            step(model, optimizer, x)


def folds() -> None:
    kept = []
    for _ in range(4):
        [(model, optimizer)] = several(1)
        kept.append((trains(model, optimizer, batches(5)), optimizer))


def folds_first() -> None:
    """The optimizer for all of the data is made before those of the folds."""
    whole, optimizer = several(1)[0]
    folds()
    trains(whole, optimizer, batches(5))


def rebuilt() -> None:
    model = net()
    first = sgd(model)
    trains(model, torch.optim.Adam(model.parameters()), batches(20))
    assert first


def pretrained() -> None:
    """Two stages on one loader."""
    loader = batches(30)
    for model in (net(), torch.nn.Sequential(torch.nn.Linear(8, 16), net(16))):
        trains(model, sgd(model), loader)


def again() -> None:
    """A new optimizer for each pass."""
    model, loader = net(), batches(30)
    for _ in range(3):
        trains(model, sgd(model), loader)


def late_generator() -> None:
    """The discriminator trains alone at first."""
    loader, (d, of_d) = batches(30), several(1)[0]
    trains(d, of_d, loader)
    g = torch.nn.Linear(8, 8)
    of_g = sgd(g)
    for x in loader:
        step(d, of_d, x)
        step(torch.nn.Sequential(g, d), of_g, x)


# The step before a second batch shows that an optimizer is none of an inner loop is lost.
PROGRAMS: dict[str, tuple[Callable[[], Any], int]] = {
    "federated": (federated, 100),
    "federated, an optimizer that is not used": (lambda: federated(unused), 99),
    "federated, the server has an optimizer": (lambda: federated(sgd), 99),
    "federated, clients with state": (lambda: clients_with_state(5), 100),
    "federated, one batch each": (lambda: clients_with_state(1), 20),
    "maml": (lambda: maml(2), 10),
    "maml, a loader of tasks": (lambda: maml(2, batches(10)), 10),
    "maml, many tasks": (lambda: maml(32), 10),
    "reptile": (lambda: maml(2, batches(10), own_backward=False), 63),
    "gan": (lambda: gan(1), 20),
    "gan, several steps of the critic": (lambda: gan(5), 20),
    "accumulation": (accumulation, 5),
    "reinforcement": (reinforcement, 20),
    "deep q": (deep_q, 20),
    "lbfgs": (lbfgs, 10),
    "ensemble": (lambda: in_turn(several()), 20),
    "ensemble, in reverse": (lambda: in_turn(several()[::-1]), 19),
    "ensemble, in turn": (lambda: in_turn(several(), 5), 100),
    "ensemble per batch": (ensemble_per_batch, 20),
    "folds": (folds, 20),
    "folds, the whole first": (folds_first, 24),
    "rebuilt": (rebuilt, 20),
    "pretraining on the same loader": (pretrained, 60),
    "an optimizer for each pass": (again, 90),
    "gan, the generator begins later": (late_generator, 60),
}


STAGES = {"folds": 4, "folds, the whole first": 5, "pretraining on the same loader": 2}


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_of_a_program_with_several_optimizers(name: str) -> None:
    program, steps = PROGRAMS[name]
    loop = torch_loop.attach(functions=False, skip_first=0, log_every=0)
    try:
        program()
        report = loop.report()
    finally:
        loop.detach()
    assert report.steps.count == steps
    assert len(report.stages) == STAGES.get(name, 0)
