"""Many clients that submit at once and don't give up, and the account that has to come out in the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from tests.live.cluster import PATIENCE_S, LiveCluster, eventually
from tests.live.witness import assert_journal_is_whole, living_workers

from aryl.client import ArylClient
from aryl.core.cluster import Cluster
from aryl.core.model import JobState
from aryl.errors import UnreachableError
from aryl.live.store import Store
from aryl.live.store.tables import IDEMPOTENCY, JOBS
from aryl.wire.job_file import JobFile

PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Submission:
    """One that was answered. Times are those of `time.monotonic`; `tries` counts the requests."""

    number: int
    job_id: str
    began_s: float
    ended_s: float
    tries: int


class Flood:
    """Threads that submit jobs, each with an idempotency key of its own that is kept until it is answered.

    `per_s` is how many are submitted in a second by all threads together, as long as they keep up; None: as
    many as they can. Those before number `first` are passed over.
    """

    def __init__(
        self,
        url: Callable[[], str],
        jobs: Sequence[JobFile],
        clients: int = 8,
        per_s: float | None = None,
        first: int = 0,
    ) -> None:
        self.answered: list[Submission] = []
        self.began_s = 0.0
        self._url, self._jobs, self._per_s = url, jobs, per_s
        self._lock = threading.Lock()
        self._first = self._next = first
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def start(self) -> None:
        """Begin."""
        self.began_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int, within_s: float = PATIENCE_S) -> None:
        """Wait until so many are answered. Raises what a client couldn't bear."""

        def there() -> bool:
            if self._errors:
                raise self._errors[0]
            return len(self.answered) >= count

        eventually(there, f"{count} submissions aren't answered", within_s=within_s)

    def close(self) -> None:
        """Let all threads end."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        client, url = None, ""
        try:
            while (number := self._take()) is not None:
                began_s, tries = time.monotonic(), 0
                while not self._over.is_set():
                    tries += 1
                    if client is None or url != self._url():
                        url = self._url()
                        client = ArylClient(url, retries=0)
                    try:
                        view = client.submit(self._jobs[number], f"key-{number}")
                    except UnreachableError:
                        time.sleep(PAUSE_S)
                        continue
                    ended_s = time.monotonic()
                    self.answered.append(Submission(number, view.job_id, began_s, ended_s, tries))
                    break
        except BaseException as error:
            self._errors.append(error)
        finally:
            if client is not None:
                client.close()

    def _take(self) -> int | None:
        """The next job to submit, when it is its turn."""
        with self._lock:
            number = self._next
            if number >= len(self._jobs):
                return None
            self._next += 1
        if self._per_s is not None:
            wait_s = self.began_s + (number - self._first) / self._per_s - time.monotonic()
            if wait_s > 0 and self._over.wait(wait_s):
                return None
        return None if self._over.is_set() else number


def assert_all_accounted_for(
    cluster: LiveCluster, answered: Sequence[Submission], count: int
) -> Counter[JobState]:
    """Each submission is one job, each job one submission, and the API lists them all. How many are in which
    state.
    """
    ids = {one.job_id for one in answered}
    assert len(answered) == len(ids) == count
    assert {one.number for one in answered} == set(range(count))
    listed = list(cluster.client.jobs())
    assert {view.job_id for view in listed} == ids
    assert len(listed) == count
    return Counter(view.state for view in listed)


def assert_gpus_are_held_by_the_living(cluster: LiveCluster) -> None:
    """Wait until each server has as many GPUs in use as the workers that live there were given."""

    def agrees() -> bool:
        live: Counter[str] = Counter()
        for environment in living_workers(cluster).values():
            if "RANK" in environment:
                live[environment["ARYL_SERVER_ID"]] += len(environment["CUDA_VISIBLE_DEVICES"].split(","))
        used = {server.server: server.used_gpus for server in cluster.client.servers()}
        return all(live[name] == gpus for name, gpus in used.items()) and live.keys() <= used.keys()

    eventually(agrees, "what is allocated isn't what lives", cluster.said)


def assert_store_is_whole(url: str, answered: Sequence[Submission]) -> Cluster:
    """The journal has no gap, folds to what the tables say, and each key made the job that its client was
    told of. No daemon may write meanwhile.
    """
    state = assert_journal_is_whole(url)
    store = Store.open(url)
    try:
        with store.reading() as connection:
            found = connection.execute(
                select(IDEMPOTENCY.c.idempotency_key, JOBS.c.job_id).join(
                    JOBS, JOBS.c.sequence == IDEMPOTENCY.c.job
                )
            )
            made = {row.idempotency_key: row.job_id for row in found}
    finally:
        store.close()
    assert made == {f"key-{one.number}": one.job_id for one in answered}
    return state
