"""What a journal says of each job and each change, on the experiment's clock; live and simulated alike.

A job's time is counted from when the file says that it is submitted. Delays are those between an order and
its report: they are what a simulation has to be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aryl.core import events as ev
from aryl.core.plan import Launch, Loan, Reclaim, Resize, Stop


@dataclass(slots=True)
class JobTimes:
    """Seconds since the experiment began. `up_s`: of the last attempt; `queued_s`: all of its waiting."""

    submit_s: float
    first_start_s: float = float("nan")
    up_s: float = float("nan")
    finish_s: float = float("nan")
    queued_s: float = 0.0
    preemptions: int = 0
    resizes: int = 0
    waits_since_s: float = 0.0

    @property
    def jct_s(self) -> float:
        """Finish minus submission."""
        return self.finish_s - self.submit_s


@dataclass(frozen=True, slots=True)
class Delay:
    """From an order for a job's `workers` to its report, in cluster seconds."""

    job_id: str
    workers: int
    seconds: float


@dataclass(slots=True)
class Folded:
    """One run. Delays by kind: `launch` is that of first attempts, `restart` that of later ones."""

    jobs: dict[str, JobTimes] = field(default_factory=dict)
    launch: list[Delay] = field(default_factory=list)
    restart: list[Delay] = field(default_factory=list)
    resize: list[Delay] = field(default_factory=list)
    vacate: list[Delay] = field(default_factory=list)
    loans: int = 0
    reclaims: int = 0

    @property
    def mean_jct_s(self) -> float:
        """Over all jobs."""
        return sum(job.jct_s for job in self.jobs.values()) / len(self.jobs)

    @property
    def mean_queued_s(self) -> float:
        """Over all jobs."""
        return sum(job.queued_s for job in self.jobs.values()) / len(self.jobs)

    @property
    def preemptions(self) -> int:
        """Of all jobs."""
        return sum(job.preemptions for job in self.jobs.values())

    @property
    def resizes(self) -> int:
        """Of all jobs."""
        return sum(job.resizes for job in self.jobs.values())


def fold(
    events: Iterable[ev.Event],
    submitted_s: Mapping[str, float],
    *,
    zero_s: float = 0.0,
    names: Mapping[str, str] | None = None,
) -> Folded:
    """`submitted_s`: when the file submits each job; `names`: the file's name of each of the journal's."""
    return _Folding(submitted_s, zero_s, names).all(events)


class _Folding:
    def __init__(
        self, submitted_s: Mapping[str, float], zero_s: float, names: Mapping[str, str] | None
    ) -> None:
        self._submitted_s, self._zero_s, self._names = submitted_s, zero_s, names
        self._run = Folded()
        self._workers: dict[str, int] = {}
        self._ordered: dict[tuple[str, int, str], float] = {}

    def all(self, events: Iterable[ev.Event]) -> Folded:
        for event in events:
            self._saw(event)
        return self._run

    def _saw(self, event: ev.Event) -> None:
        now_s = event.at - self._zero_s
        match event:
            case ev.Submitted():
                name = self._name(event.job.job_id)
                submit_s = self._submitted_s[name]
                self._run.jobs[name] = JobTimes(submit_s, waits_since_s=submit_s)
            case ev.PlanCommitted():
                for step in event.plan.steps:
                    self._ordered_now(step, now_s)
            case ev.Launched():
                job_id, attempt = event.job_id, event.attempt
                delays = self._run.launch if attempt == 1 else self._run.restart
                self._answered(delays, job_id, attempt, "launch", now_s)
                self._job(job_id).up_s = now_s
            case ev.Resized():
                self._answered(
                    self._run.resize, event.job_id, event.attempt, f"resize{event.revision}", now_s
                )
            case ev.Vacated():
                self._answered(self._run.vacate, event.job_id, event.attempt, "vacate", now_s)
            case ev.Stopped() | ev.Crashed():
                self._answered(self._run.vacate, event.job_id, event.attempt, "stop", now_s)
                self._job(event.job_id).waits_since_s = now_s
            case ev.Finished():
                self._job(event.job_id).finish_s = now_s
            case _:
                pass

    def _ordered_now(self, step: object, now_s: float) -> None:
        match step:
            case Launch():
                job = self._job(step.job_id)
                if step.attempt == 1:
                    job.first_start_s = now_s
                job.queued_s += now_s - job.waits_since_s
                self._workers[step.job_id] = sum(slot.base + slot.flexible for slot in step.slots)
                self._ordered[step.job_id, step.attempt, "launch"] = now_s
            case Resize():
                self._job(step.job_id).resizes += 1
                self._workers[step.job_id] += sum(slot.base + slot.flexible for slot in step.add)
                self._workers[step.job_id] -= sum(slot.base + slot.flexible for slot in step.remove)
                self._ordered[step.job_id, step.attempt, f"resize{step.revision}"] = now_s
                if step.remove:
                    self._ordered[step.job_id, step.attempt, "vacate"] = now_s
            case Stop():
                self._job(step.job_id).preemptions += 1
                self._ordered[step.job_id, step.attempt, "stop"] = now_s
            case Loan():
                self._run.loans += 1
            case Reclaim():
                self._run.reclaims += 1
            case _:
                pass

    def _answered(self, delays: list[Delay], job_id: str, attempt: int, what: str, now_s: float) -> None:
        ordered_s = self._ordered.pop((job_id, attempt, what), None)
        if ordered_s is not None:
            delays.append(Delay(self._name(job_id), self._workers[job_id], now_s - ordered_s))

    def _job(self, job_id: str) -> JobTimes:
        return self._run.jobs[self._name(job_id)]

    def _name(self, job_id: str) -> str:
        return job_id if self._names is None else self._names[job_id]
