"""A model behind Ray Serve that only pretends: each request takes its GPU for 50 to 100 ms, and nothing else.

What makes it fit for lending is one line: a replica asks for a unit of `aryl_inference` beside its GPU. Only
inference servers have that resource, and a server that is lent has none left.

Start it with `serve run app:build` in this folder; arguments follow as NAME=VALUE, such as `most=12`.
"""

from __future__ import annotations

import asyncio
import random

from ray.serve import Application
from ray.serve.config import AutoscalingConfig

from ray import serve


class Model:
    """One replica: one request at a time is on its GPU, the others wait."""

    def __init__(self, shortest_ms: float, longest_ms: float) -> None:
        self._between_ms = shortest_ms, longest_ms
        self._gpu = asyncio.Lock()

    async def __call__(self, _request: object) -> dict[str, float]:
        """The answer to a request: how long it took on the GPU."""
        busy_ms = random.uniform(*self._between_ms)
        async with self._gpu:
            await asyncio.sleep(busy_ms / 1000)
        return {"busy_ms": round(busy_ms, 1)}


def build(args: dict[str, str]) -> Application:
    """The application. Arguments: `least` and `most` replicas (1 and 8), `gpus` of each (1), `down` and `up`:
    the seconds until Serve has fewer or more replicas (30 and 5), `shortest` and `longest`: milliseconds.
    """
    gpus = int(args.get("gpus", 1))
    scaling = AutoscalingConfig(
        min_replicas=int(args.get("least", 1)),
        max_replicas=int(args.get("most", 8)),
        target_ongoing_requests=2,
        look_back_period_s=10.5,
        upscale_delay_s=float(args.get("up", 5)),
        downscale_delay_s=float(args.get("down", 30)),
    )
    deployment = serve.deployment(
        name="Model",
        autoscaling_config=scaling,
        max_ongoing_requests=8,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": 0.1, "num_gpus": gpus, "resources": {"aryl_inference": gpus}},
    )
    return deployment(Model).bind(float(args.get("shortest", 50)), float(args.get("longest", 100)))
