"""Loops whose steps no optimizer shows, or more than one; each prints what is true."""

PROGRAMS = {
    "inference": """
import time, torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 2).eval()
with torch.no_grad():
    for (x,) in DataLoader(TensorDataset(torch.ones(80, 4)), batch_size=2):
        net(x)
        time.sleep(0.002)
""",
    "inference_in_thread": """
import threading, time, torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 2).eval()
net(torch.ones(1, 4))  # a check before

def score():
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(torch.ones(80, 4)), batch_size=2):
            net(x)
            time.sleep(0.002)

thread = threading.Thread(target=score)
thread.start()
thread.join()
""",
    "prefetched_inference": """
import queue, threading, torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 2).eval()
batches = queue.Queue(2)

def fetch():
    for (x,) in DataLoader(TensorDataset(torch.ones(80, 4)), batch_size=2):
        batches.put(x)
    batches.put(None)

threading.Thread(target=fetch).start()
with torch.no_grad():
    while (x := batches.get()) is not None:
        net(x)
""",
    "compiled": """
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
weight, bias = net.parameters()

@torch.compile(backend="aot_eager")
def step(x):
    loss = lambda w, b: (x @ w.T + b).square().mean()
    w, b = torch.func.grad(loss, argnums=(0, 1))(weight, bias)
    with torch.no_grad():
        weight.sub_(w, alpha=0.1)
        bias.sub_(b, alpha=0.1)

for (x,) in DataLoader(TensorDataset(torch.ones(80, 4)), batch_size=2):
    step(x)
""",
    "maml": """
import copy, torch

net = torch.nn.Linear(8, 1)
meta = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(25):
    meta.zero_grad()
    for task in range(2):
        fast = copy.deepcopy(net)
        inner = torch.optim.SGD(fast.parameters(), lr=0.01)
        for _ in range(3 + task):
            inner.zero_grad()
            fast(torch.ones(4, 8)).square().mean().backward()
            inner.step()
        fast(torch.ones(4, 8)).square().mean().backward()
        for slow, quick in zip(net.parameters(), fast.parameters()):
            slow.grad = quick.grad.clone()
    meta.step()
""",
    "list": """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, i):
        time.sleep(0.003)
        return torch.ones(4)

batches = list(DataLoader(Slow(), batch_size=2))
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for x in batches:
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "stages": """
import time, torch
from torch.utils.data import DataLoader, TensorDataset

def stage(kind, batches, size, ms):
    net = torch.nn.Linear(size, 2)
    optimizer = kind(net.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(2 * batches, size)), batch_size=2):
        net(x).square().mean().backward()
        time.sleep(ms / 1e3)
        optimizer.step()
        optimizer.zero_grad()

stage(torch.optim.SGD, 40, 4, 0)
stage(torch.optim.Adam, 25, 8, 60)
""",
    "workers": """
import time, torch
from torch.utils.data import DataLoader, IterableDataset

def parse_slowly(i):
    time.sleep(0.004)
    return torch.full((4,), float(i))

class Clicks(IterableDataset):
    def __iter__(self):
        for i in range(40):
            yield parse_slowly(i)

net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for x in DataLoader(Clicks(), batch_size=2, num_workers=2):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "rollouts": """
import time, torch

policy, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
actor = torch.optim.Adam(policy.parameters(), lr=1e-3)
judge = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _ in range(12):
    states, chosen = [], []
    state = torch.ones(1, 4)
    for _ in range(5):
        scores = policy(state)
        chosen.append(scores.log_softmax(-1)[0, 0])
        states.append(state)
        time.sleep(0.001)  # the environment
        state = torch.ones(1, 4)
    values = critic(torch.cat(states))
    judge.zero_grad()
    (values - 1).square().mean().backward()
    judge.step()
    actor.zero_grad()
    (-torch.stack(chosen) * (1 - values.detach().squeeze())).sum().backward()
    actor.step()
""",
}
