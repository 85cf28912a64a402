"""What the tests of phase 2 share."""

from __future__ import annotations

from aryl.core import events as ev
from aryl.core.model import JobState, ServerSpec
from aryl.core.plan import Plan, Resize
from aryl.testing import Scene, servers

EAGER = "aryl:cooldown=0,min_interval=0"


def sizes(scene: Scene) -> dict[str, int]:
    """Live workers by job."""
    return {job_id: found.workers for job_id, found in scene.cluster.jobs.items()}


def slots(scene: Scene, job_id: str) -> dict[str, int]:
    """Flexible workers of a job by server."""
    return {
        slot.server_id: slot.flexible for slot in scene.cluster.jobs[job_id].slots.values() if slot.flexible
    }


def resized(scene: Scene) -> Scene:
    """The world confirms all resizes."""
    for job_id, found in tuple(scene.cluster.jobs.items()):
        if found.state is JobState.RESIZING:
            scene.happens(ev.Resized(scene.cluster.now, job_id, found.attempt, found.revision))
    return scene


def resizes(plan: Plan) -> list[Resize]:
    """The resizes of a plan."""
    return [step for step in plan.steps if isinstance(step, Resize)]


def t4(count: int, speed: float = 1.0) -> tuple[ServerSpec, ...]:
    """Inference servers with T4s."""
    return servers(count, "I", gpu_type="T4", speed=speed)
