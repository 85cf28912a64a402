"""PyTorch under the launcher `torchft`: workers join and leave while the others go on.

    aryl submit torch_torchft.yaml        or, by itself, as a single worker:  python torch_torchft.py

A newcomer copies the model from a worker that has it. One that is told to leave finishes its step, stops
taking part and saves; one that is killed costs the others the step they were at, which they do again. Each
batch is learned from once, whatever the number of workers: batches are numbered, and a step takes the next
`size` of them. More workers don't do more steps in a second but more batches, so it is batches that are
counted: in what Aryl is told, and in the names of checkpoints.

BATCHES and STEP_S (seconds that a step takes) say how long it runs. Each worker writes the steps that it took
part in to steps.jsonl in the checkpoint folder.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from aryl import train  # before torch, so that a notice is remembered from the start

import torch  # isort: skip
from torch import nn  # isort: skip

BATCHES = int(os.environ.get("BATCHES", "300"))
STEP_S = float(os.environ.get("STEP_S", "0.1"))
SAVE_EVERY_STEPS = 100
BATCH = 16


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of this number."""
    inputs = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(number))
    return inputs, inputs.sum(dim=1, keepdim=True)


def read(path: Path) -> dict[str, Any]:
    """What a checkpoint holds."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def main() -> None:
    """All steps from the last checkpoint, or from where the others are, on."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def save(step: int, batches: int) -> None:
        train.save(batches, lambda path: torch.save(state() | {"step": step}, path))

    done, saved = train.load_latest(read) or (0, {"step": 0})
    if done:
        load(saved)
    record = train.checkpoint_dir() / "steps.jsonl"
    record.parent.mkdir(parents=True, exist_ok=True)
    with (
        record.open("ab", buffering=0) as lines,  # one write a line: workers share the file
        train.Replica(state, load, step=saved["step"], batches=done) as replica,
    ):
        while replica.first_batch < BATCHES and not train.noticed():
            try:
                replica.begin()
            except TimeoutError:  # the lighthouse is gone: Aryl starts the job again, from here
                save(replica.step, replica.first_batch)
                raise
            first, rank, size = replica.first_batch, replica.rank, replica.size
            inputs, targets = batch_of(first + rank)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            time.sleep(STEP_S)  # stands for a larger model
            loss.backward()
            replica.average(model.parameters())
            if not replica.commit():
                continue
            optimizer.step()
            weights = sum(parameter.double().sum().item() for parameter in model.parameters())
            said = {
                "step": replica.step,
                "batch": first + rank,
                "size": size,
                "weights": weights,
            }
            lines.write(json.dumps(said | {"worker": train.worker(), "at": time.time()}).encode() + b"\n")
            train.report(replica.first_batch, BATCHES, workers=size, rank=rank)
            if rank == 0 and (replica.step % SAVE_EVERY_STEPS == 0 or replica.first_batch >= BATCHES):
                save(replica.step, replica.first_batch)
    if replica.first_batch < BATCHES:
        # The others go on already. If all were told to leave, the last of them saves the last step.
        save(replica.step, replica.first_batch)
        train.exit_saved()
    print(f"worker {train.worker()}: {BATCHES} batches done", flush=True)
    train.finish()


if __name__ == "__main__":
    main()
