"""``fastprof attach`` to a loop of torch that runs already."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import fastprof
import pytest
from fastprof.cli import main
from fastprof.session.outside import places
from helpers import child_env, time_scale

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

PROGRAM = """
import fastprof, select, sys, time, torch
torch.set_num_threads(1)

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.ones(4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
count = 0
for batch in torch.utils.data.DataLoader(Items(), 2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    count += 1
    if count == 5:
        print("ready", flush=True)
    if count > 5 and select.select([sys.stdin], [], [], 0)[0]:
        break
hooks = [model._forward_hooks, torch.nn.modules.module._global_forward_hooks,
         torch.nn.modules.module._global_forward_pre_hooks]
print(sum(map(len, hooks)), sys.getprofile())
"""


def test_steps_and_sections_of_a_loop_under_way_are_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "processes"))
    (tmp_path / "train.py").write_text(PROGRAM)
    env = child_env({places.VARIABLE: os.environ[places.VARIABLE], "FASTPROF": "standby"})
    child = subprocess.Popen(
        [sys.executable, str(tmp_path / "train.py")], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)
        kept = tmp_path / "kept.fprof"
        assert main(["attach", str(child.pid), "--seconds", "1.5", "-o", str(kept)]) == 0
        out, err = child.communicate("\n", timeout=60 * time_scale())
    finally:
        child.kill()
    assert (out, err) == ("0 None\n", "")
    report = fastprof.load(kept)
    assert report.steps.count > 10
    means = {row.name: row.mean_ms for row in report.sections}
    assert {"data", "forward", "backward", "optimizer"} <= means.keys()
    assert means["data"] >= 2.0  # its sleeps
    assert "data" in capsys.readouterr().out
