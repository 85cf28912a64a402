"""PyTorch under the launchers `process` and `torchrun`: restarted from a checkpoint at each new size.

    aryl submit torch_process.yaml        or, by itself:  python torch_process.py

Aryl sets what `init_process_group` reads. When it gives notice, all workers agree on a step, rank 0 saves,
all leave, and the job goes on with the next step at its new size. The batch of a step is the same at every
size, shared out among the workers.

STEPS and STEP_S (seconds that a step takes one worker) say how long it runs. Each step done is written to
steps.jsonl in the checkpoint folder.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from aryl import train  # before torch, so that a notice is remembered from the start

import torch  # isort: skip
from torch import distributed, nn  # isort: skip
from torch.nn.parallel import DistributedDataParallel  # isort: skip

STEPS = int(os.environ.get("STEPS", "200"))
STEP_S = float(os.environ.get("STEP_S", "0.2"))
BATCH = 64


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This worker's part of the step's batch."""
    inputs = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(step))
    mine = inputs[train.rank() :: train.size()]
    return mine, mine.sum(dim=1, keepdim=True)


def read(path: Path) -> dict[str, Any]:
    """What a checkpoint holds."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def main() -> None:
    """All steps from the last checkpoint on."""
    torch.manual_seed(0)
    if train.size() > 1:
        distributed.init_process_group("gloo")
    plain = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    done, state = train.load_latest(read) or (0, None)
    if state is not None:
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def write(path: Path) -> None:
        torch.save({"model": plain.state_dict(), "optimizer": optimizer.state_dict()}, path)

    model = DistributedDataParallel(plain) if train.size() > 1 else plain
    record = train.checkpoint_dir() / "steps.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    for step in range(done + 1, STEPS + 1):
        inputs, targets = batch_of(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        time.sleep(STEP_S / train.size())  # stands for a larger model
        loss.backward()
        optimizer.step()
        if train.rank() == 0:
            with record.open("a", encoding="utf-8") as lines:
                said = {"step": step, "workers": train.size(), "loss": loss.item(), "at": time.time()}
                print(json.dumps(said), file=lines)
        done = step
        train.report(step, STEPS)
        if train.should_save(step, every_s=30) or step == STEPS:
            if train.rank() == 0:
                train.save(step, write)
            if train.leaving() and step < STEPS:
                break
    if train.size() > 1:
        distributed.destroy_process_group()
    if done < STEPS:
        train.exit_saved()
    print(f"rank {train.rank()}: {STEPS} steps done", flush=True)
    train.finish()


if __name__ == "__main__":
    main()
