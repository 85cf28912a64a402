"""What jobs run, as the backend wants it, read from the store when it is needed.

A watcher of the loop: it sees a plan before its orders are given, and reads what all of it starts in one go,
since each question to the store holds the loop up. Programs of jobs that wait are not kept: there may be
thousands, each with a large environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from aryl.backends.port import Program
from aryl.core.cluster import Cluster
from aryl.core.events import Event, PlanCommitted
from aryl.core.plan import Launch
from aryl.errors import NotFoundError
from aryl.live.config import ServeConfig
from aryl.live.store import Store
from aryl.live.submission import to_program
from aryl.wire.job_file import JobFile


class Programs:
    """The programs of the jobs that run. Used by the loop's thread alone."""

    def __init__(self, store: Store, config: ServeConfig, cluster: Cluster) -> None:
        self._store, self._cluster = store, cluster
        self._state, self._kill_wait_s = Path(config.state), config.kill_wait
        self._known: dict[str, Program] = {}
        self._expected: tuple[str, ...] = ()

    def saw(self, event: Event, _cluster: Cluster) -> None:
        """Note what a plan starts."""
        if isinstance(event, PlanCommitted):
            self.expect(step.job_id for step in event.plan.steps if isinstance(step, Launch))

    def expect(self, job_ids: Iterable[str]) -> None:
        """These will be asked for."""
        self._expected = tuple(job_ids)

    def of(self, job_id: str) -> Program:
        """What a job runs. Raises NotFoundError."""
        if job_id not in self._known:
            self._read({job_id, *self._expected} - self._known.keys())
        if job_id not in self._known:
            raise NotFoundError(f"there is no job {job_id}")
        return self._known[job_id]

    def _read(self, job_ids: Iterable[str]) -> None:
        for ended in [known for known in self._known if known in self._cluster.ended]:
            del self._known[ended]
        for job_id, body in self._store.bodies(job_ids).items():
            job = JobFile.model_validate_json(body)
            program = to_program(job, job_id, self._state, self._kill_wait_s)
            self._known[job_id] = replace(program, max_failures=job.max_failures)
