"""Programs of other people's kinds; each prints and writes the same in every run.

With ``FACTS`` in the environment a program writes there what it counted and timed itself.
"""

_BEGIN = """
import json, os, random, sys, threading, time
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
random.seed(0)
facts = {}

def timed(name, ms):
    facts[name] = facts.get(name, 0.0) + ms

def counted(name):
    facts[name] = facts.get(name, 0) + 1

def end(net):
    total = sum(float(p.detach().double().sum()) for p in net.parameters())
    print(f"weights {total:.9f}")
    torch.save(net.state_dict(), "weights.pt")
    if "FACTS" in os.environ:
        with open(os.environ["FACTS"], "w") as file:
            json.dump(facts, file)
"""

PROGRAMS = {
    "recommender": """
import pandas as pd
from torch.utils.data import DataLoader, Dataset

class Ratings(Dataset):
    def __init__(self):
        self.frame = pd.DataFrame({"user": [i % 7 for i in range(120)], "rating": 1.0})
    def __len__(self):
        return len(self.frame)
    def __getitem__(self, i):
        return self.history_of(self.frame["user"][i])
    def history_of(self, user):
        time.sleep(0.006)
        own = self.frame[self.frame["user"] == user]["rating"]
        return torch.tensor([float(user), float(own.mean()), len(own), 1.0])

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
loader = DataLoader(Ratings(), batch_size=4, num_workers=2, persistent_workers=True)
for epoch in range(2):
    began = time.perf_counter()
    batches = iter(loader)
    timed("outside_ms", 1e3 * (time.perf_counter() - began))
    while True:
        began = time.perf_counter()
        x = next(batches, None)
        timed("outside_ms", 1e3 * (time.perf_counter() - began))
        if x is None:
            break
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        counted("steps")
    print("epoch", epoch)
end(net)
""",
    "graph": """
class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.message = torch.nn.Linear(8, 8)
    def forward(self, h):
        began = time.perf_counter()
        out = gather_neighbours(self.message(h), source, target)
        timed("inside_ms", 1e3 * (time.perf_counter() - began))
        return out.relu()

def gather_neighbours(messages, source, target):
    counted("calls")
    rows = []
    for node in range(20):
        chosen = torch.eq(target, node).nonzero().squeeze(1)
        rows.append(messages.index_select(0, source[chosen]).sum(0))
    return torch.stack(rows)

source, target = torch.randint(0, 20, (2, 60))
net = torch.nn.Sequential(Conv(), Conv(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(20, 8)
for step in range(30):
    began = time.perf_counter()
    out = net(x)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    timed("outside_ms", 1e3 * (time.perf_counter() - began))
    optimizer.step()
    counted("steps")
end(net)
""",
    "asyncio": """
import asyncio

async def answer(i):
    began = time.perf_counter()
    await asyncio.sleep(0.02)
    timed("outside_ms", 1e3 * (time.perf_counter() - began))
    return torch.full((4, 4), i / 30)

async def batches():
    for i in range(30):
        yield await answer(i)

async def train(net, optimizer):
    async for x in batches():
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        counted("steps")

net = torch.nn.Linear(4, 2)
asyncio.run(train(net, torch.optim.SGD(net.parameters(), lr=0.1)))
end(net)
""",
    "replay": """
import copy
from collections import deque

class Replay:
    def __init__(self):
        self.memory = deque(maxlen=200)
    def draw_sample(self):
        counted("calls")
        states, rewards = zip(*random.sample(self.memory, 16))
        return torch.tensor(states), torch.tensor(rewards)

net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
target = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
replay = Replay()
for i in range(60):
    replay.memory.append(([random.random() for _ in range(6)], random.random()))
    if i < 20:
        continue
    states, rewards = replay.draw_sample()
    with torch.no_grad():
        best = rewards + 0.9 * target(states).squeeze(1)
    loss = (net(states).squeeze(1) - best).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    counted("steps")
    if i % 20 == 0:
        target.load_state_dict(net.state_dict())
        print(f"{i} {loss.item():.6f}")
end(net)
sys.exit(4)
""",
    "thread": """
def fit(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(30):
        net(torch.ones(4, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        counted("steps")

net = torch.nn.Linear(4, 2)
worker = threading.Thread(target=fit, args=(net,), name="training")
worker.start()
worker.join()
print("joined", file=sys.stderr)
end(net)
""",
    "tee": """
class Tee:
    def __init__(self, stream):
        self.stream, self.file = stream, open("log.txt", "w")
    def write(self, text):
        self.stream.write(text)
        self.file.write(text)
        self.file.flush()
    def flush(self):
        self.stream.flush()

terminal, sys.stdout = sys.stdout, Tee(sys.stdout)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(30):
    loss = net(torch.ones(4, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, f"{loss.item():.6f}")
    counted("steps")
end(net)
sys.stdout = terminal
""",
    "failing": """
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(30):
    if step == 25:
        end(net)
        raise RuntimeError("loss is not finite")
    net(torch.ones(4, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    counted("steps")
""",
    "adapted": """
import copy

net = torch.nn.Linear(4, 1)
meta = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(25):
    meta.zero_grad()
    for task in range(3):
        fast = copy.deepcopy(net)
        inner = torch.optim.SGD(fast.parameters(), lr=0.01)
        for _ in range(2):
            inner.zero_grad()
            fast(torch.ones(4, 4)).square().mean().backward()
            inner.step()
        loss = fast(torch.ones(4, 4)).square().mean()
        grads = torch.autograd.grad(loss, list(fast.parameters()))
        for slow, grad in zip(net.parameters(), grads):
            slow.grad = grad if slow.grad is None else slow.grad + grad
    meta.step()
    counted("steps")
end(net)
""",
}

PROGRAMS = {name: _BEGIN + text for name, text in PROGRAMS.items()}
