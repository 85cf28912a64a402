"""A small cluster with a recorder, moved by hand: no policy, no driver; all can be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aryl.core import events as ev
from aryl.core.cluster import Cluster
from aryl.core.evolve import evolve
from aryl.core.model import Accounting, JobSpec, Pool, ServerSpec, Slot
from aryl.core.plan import Cause, Launch, Loan, Plan, Reclaim, Resize, Return, Step, Stop
from aryl.report.bound import Bound, JobLoad
from aryl.report.outcome import Outcome
from aryl.report.recorder import Recorder


class Drive:
    """Training servers T1.. and inference servers I1.. of 8 GPUs each; inference GPUs have half the speed."""

    def __init__(self, training: int, inference: int = 0, *, schedule: bool = True) -> None:
        self.cluster = Cluster(lambda job, now_s: (job.spec.submit_s,))
        self.recorder = Recorder(schedule=schedule)
        self.now_s = 0.0
        self.sequence = 0
        servers = [ServerSpec(f"T{n + 1}", Pool.TRAINING, "V100", 8) for n in range(training)]
        servers += [ServerSpec(f"I{n + 1}", Pool.INFERENCE, "T4", 8, 0.5) for n in range(inference)]
        self.happens(ev.ClusterDeclared(0.0, tuple(servers), Accounting.MORE_GPUS))

    def happens(self, event: ev.Event) -> None:
        evolve(self.cluster, event)
        self.recorder.saw(event, self.cluster)

    def plan(self, *steps: Step) -> None:
        self.happens(ev.PlanCommitted(self.now_s, Plan(steps)))

    def submit(self, job_id: str, least: int, most: int | None = None, *, fungible: bool = False) -> None:
        spec = JobSpec(job_id, self.sequence, self.now_s, least, most or least, fungible=fungible)
        self.sequence += 1
        self.happens(ev.Submitted(self.now_s, spec))

    def launch(self, job_id: str, *slots: Slot, up: bool = True) -> None:
        attempt = self.cluster.jobs[job_id].attempt + 1
        self.plan(Launch(job_id, attempt, slots))
        if up:
            self.happens(ev.Launched(self.now_s, job_id, attempt))

    def resize(
        self,
        job_id: str,
        *,
        add: tuple[Slot, ...] = (),
        remove: tuple[Slot, ...] = (),
        cause: Cause = Cause.GROWTH,
    ) -> None:
        job = self.cluster.jobs[job_id]
        self.plan(Resize(job_id, job.attempt, job.revision + 1, add, remove, cause))

    def resized(self, job_id: str) -> None:
        job = self.cluster.jobs[job_id]
        self.happens(ev.Resized(self.now_s, job_id, job.attempt, job.revision))

    def vacated(self, job_id: str, *slots: Slot) -> None:
        self.happens(ev.Vacated(self.now_s, job_id, self.cluster.jobs[job_id].attempt, slots))

    def stop(self, job_id: str, cause: Cause, *, collateral_gpus: int = 0) -> None:
        attempt = self.cluster.jobs[job_id].attempt
        self.plan(Stop(job_id, attempt, cause, False, "somebody", collateral_gpus=collateral_gpus))

    def stopped(self, job_id: str, kept_s: float = 0.0) -> None:
        self.happens(ev.Stopped(self.now_s, job_id, self.cluster.jobs[job_id].attempt, kept_s))

    def finish(self, job_id: str) -> None:
        self.happens(ev.Finished(self.now_s, job_id, self.cluster.jobs[job_id].attempt))

    def need(self, servers: float, forecast: float | None = None) -> None:
        self.happens(ev.DemandReported(self.now_s, servers, servers if forecast is None else forecast))

    def outcome(
        self,
        *,
        policy: str = "by-hand",
        shortest_s: Mapping[str, float] | None = None,
        refused: Mapping[str, JobSpec] | None = None,
        end_s: float | None = None,
    ) -> Outcome:
        names = [*self.cluster.jobs, *self.cluster.ended]
        shortest = shortest_s or dict.fromkeys(names, 50.0)
        return self.recorder.outcome(
            policy=policy,
            trace="paper",
            seed=1,
            durations_s=dict.fromkeys(names, 100.0),
            bound=Bound({name: JobLoad(0.0, alone_s, 1.0) for name, alone_s in shortest.items()}, None),
            refused=refused,
            end_s=end_s,
        )


def tell_story(drive: Drive) -> None:
    """Four jobs on T1 and two inference servers; one is preempted by a reclaim, one is resized twice."""
    drive.need(1)
    drive.submit("A", 4, 8)
    drive.launch("A", Slot("T1", 4, 0, 1))
    drive.now_s = 10.0
    drive.submit("B", 8)
    drive.submit("C", 4, fungible=True)
    drive.plan(Loan("I2"), Launch("C", 1, (Slot("I2", 4, 0, 2),)))
    drive.happens(ev.Launched(10.0, "C", 1))
    drive.now_s = 20.0
    drive.resize("A", add=(Slot("T1", 0, 4, 1),))
    drive.resized("A")
    drive.now_s = 50.0
    drive.resize("A", remove=(Slot("T1", 0, 4, 1),), cause=Cause.BASE_DEMAND)
    drive.now_s = 55.0
    drive.vacated("A", Slot("T1", 0, 4, 1))
    drive.now_s = 60.0
    drive.resized("A")
    drive.need(2)
    drive.plan(Reclaim("I2", 90.0))
    drive.stop("C", Cause.RECLAIM, collateral_gpus=3)
    drive.now_s = 70.0
    drive.stopped("C")
    drive.plan(Return("I2"))
    drive.now_s = 80.0
    drive.finish("A")
    drive.launch("B", Slot("T1", 8, 0, 1))
    drive.now_s = 100.0
    drive.finish("B")
    drive.launch("C", Slot("T1", 4, 0, 1), up=False)
    drive.now_s = 110.0
    drive.happens(ev.Launched(110.0, "C", 2))
    drive.now_s = 150.0
    drive.submit("D", 1)
    drive.launch("D", Slot("T1", 1, 0, 1))
    drive.now_s = 160.0
    drive.finish("C")
    drive.now_s = 170.0
    drive.finish("D")


@pytest.fixture
def new_drive() -> Callable[..., Drive]:
    return Drive


@pytest.fixture
def told() -> Drive:
    """A drive in which the story has been told."""
    drive = Drive(1, 2)
    tell_story(drive)
    return drive


@pytest.fixture
def tell() -> Callable[[Drive], None]:
    return tell_story
