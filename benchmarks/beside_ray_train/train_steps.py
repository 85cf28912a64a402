"""Ray Train's elastic mode with the model of `examples/train/torch_process.py`.

    python -m benchmarks.beside_ray_train.train_steps SETTINGS

SETTINGS is JSON: `address` of the cluster, `folder` for what it writes, `workers` (least, most),
`cpus_per_worker`, `steps`, `step_s` (seconds that a step takes one worker), and `waits`: the workers load
torch, say so, and do nothing. Rank 0 writes each step done to steps.jsonl, as the examples of Aryl do; here
`fit` writes down when it was called, in fit.json. A checkpoint is made every `SAVE_EVERY_STEPS`, and when a
server is about to be taken away, as Ray Train recommends it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SAVE_EVERY_STEPS = 20
BATCH = 64
# Ray Train's own value is 60 s.
LOOK_EVERY_S = 1.0


def train(settings: Mapping[str, Any]) -> None:
    """What each worker does. It is sent to the workers by value: all that it needs is imported here."""
    import json
    import tempfile
    import time
    from pathlib import Path

    import torch
    from ray.train.torch import prepare_model
    from torch import nn

    from ray import train as ray_train

    folder = Path(settings["folder"])
    context = ray_train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    if settings["waits"]:
        (folder / f"waits-{rank}").touch()
        time.sleep(3600)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: Any = prepare_model(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    plain = model.module if size > 1 else model
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    done = 0
    if (checkpoint := ray_train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as saved:
            state = torch.load(Path(saved) / "state", weights_only=True)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    warned = False

    def save(step: int) -> None:
        if rank:
            ray_train.report({"step": step})
            return
        state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        with tempfile.TemporaryDirectory() as at:
            torch.save(state, Path(at) / "state")
            ray_train.report({"step": step}, checkpoint=ray_train.Checkpoint.from_directory(at))

    for step in range(done + 1, settings["steps"] + 1):
        inputs = torch.randn(settings["batch"], 16, generator=torch.Generator().manual_seed(step))[rank::size]
        optimizer.zero_grad()
        loss: Any = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        time.sleep(settings["step_s"] / size)  # stands for a larger model
        loss.backward()
        optimizer.step()
        if rank == 0:
            with (folder / "steps.jsonl").open("a", encoding="utf-8") as lines:
                said = {"step": step, "workers": size, "loss": loss.item(), "at": time.time()}
                print(json.dumps(said), file=lines)
        if step % settings["save_every"] == 0:
            first_warning = ray_train.get_preemption_info() is not None and not warned
            warned = warned or first_warning
            if first_warning:
                (folder / "warned").touch()
            save(step)


def main() -> None:
    """Connect, and train until all steps are done or this process is ended."""
    from ray.train.torch import TorchConfig, TorchTrainer

    import ray
    from ray import train as loaded

    ray_train: Any = loaded  # the types that are declared are those of its first version
    settings = json.loads(sys.argv[1]) | {"save_every": SAVE_EVERY_STEPS, "batch": BATCH}
    folder = Path(settings["folder"])
    ray.init(address=settings["address"], log_to_driver=True, logging_level=logging.INFO)
    trainer = TorchTrainer(
        train,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray_train.ScalingConfig(
            num_workers=tuple(settings["workers"]),
            elastic_resize_monitor_interval_s=LOOK_EVERY_S,
            # With declared GPUs it would call CUDA, which isn't there: a worker takes a server's processors.
            resources_per_worker={"CPU": settings["cpus_per_worker"]},
        ),
        run_config=ray_train.RunConfig(
            name="steps",
            storage_path=str(folder / "storage"),
            failure_config=ray_train.FailureConfig(max_failures=-1),
            checkpoint_config=ray_train.CheckpointConfig(num_to_keep=2),
        ),
    )
    (folder / "fit.json").write_text(json.dumps({"at": time.time()}), encoding="utf-8")
    trainer.fit()


if __name__ == "__main__":
    main()
