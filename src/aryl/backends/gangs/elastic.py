"""An attempt whose workers come and go while the others go on (`torchft`).

Each worker is a group of its own that finds the others through a lighthouse, a small process that runs beside
the attempt. A resize starts what is missing and gives notice to what is too many. A worker that ends badly is
replaced where it stood, under a new rank, because ranks are names here: the others would take the new one for
the old.
"""

from __future__ import annotations

import time

from aryl.backends.environment import Post
from aryl.backends.gangs.attempt import Attempt, Stage, Worker, workers_by_server
from aryl.backends.port import Fact, Gang, WorkerReplaced
from aryl.backends.supervisor.protocol import StopSchedule, WorkerKey, WorkerStatus
from aryl.errors import ArylError

# The rank under which the lighthouse is known to the supervisor.
LIGHTHOUSE_RANK = 1_000_000
LIGHTHOUSE_ENDS_WITHIN_S = 2.0
# A worker that ends badly so soon would do so again.
TOO_SOON_S = 2.0


class ElasticAttempt(Attempt):
    """See the module."""

    next_rank = 0
    replaced = 0
    lighthouse: WorkerKey | None = None
    finishing = False

    def launch(self) -> None:
        """Start the lighthouse and the gang."""
        if self.lighthouse is None:
            self.host, self.port = self.hands.address(None), self.hands.free_port(None)
            self.start_lighthouse()
        self.fill_up()

    def resize(self, gang: Gang) -> None:
        """Start what is missing and let go what is too many."""
        if self.accept(gang):
            self.fill_up()
            self._report_done_as_gone()
            self.settle()

    def ended_while_up(self, worker: Worker) -> None:
        """A worker has left as it was told, is done, or has to be replaced."""
        if worker.told_to_stop or worker.leaving:
            if worker.server_id in self.owed:
                self.report_gone({worker.server_id: 1})
            if not self.alive:
                self.fail(worker)
            self.settle()
        elif worker.code == 0:
            self.finishing = True
            super().ended_while_up(worker)
        else:
            self._replace(worker)

    def all_gone(self) -> None:
        """As for any gang; workers that left long ago don't say how it ended."""
        if self.stage is Stage.STOPPING:
            self.workers = {
                key: worker
                for key, worker in self.workers.items()
                if not worker.ended or worker.told_to_stop or worker.code == 0
            }
        super().all_gone()

    def on_exited(self, status: WorkerStatus, code: int | None) -> None:
        """A process is gone. Without its lighthouse an attempt can't go on: another one would count from the
        beginning again, and the workers would wait for each other for ever.
        """
        if status.key == self.lighthouse:
            self.lighthouse = None
            if self.stage is Stage.UP:
                self.fail_because("the lighthouse, by which its workers find each other, has ended")
            return
        super().on_exited(status, code)

    def over(self, fact: Fact) -> None:
        """The attempt is over, and nobody needs its lighthouse."""
        if self.lighthouse is not None:
            now_s = time.time()
            key, self.lighthouse = self.lighthouse, None
            self.hands.stop_keys([key], StopSchedule("", now_s, now_s, now_s + LIGHTHOUSE_ENDS_WITHIN_S))
        super().over(fact)

    def start_lighthouse(self) -> None:
        """Start the lighthouse, at the port that the workers know."""
        self.lighthouse = WorkerKey(self.gang.job_id, self.gang.attempt, 0, LIGHTHOUSE_RANK)
        self.hands.start_lighthouse(self.lighthouse, self.gang, self.host, self.port)

    def fill_up(self) -> None:
        """Bring the workers of every server to the number that the gang has there."""
        staying: dict[str, list[Worker]] = {}
        for worker in self.alive:
            if not worker.leaving:
                staying.setdefault(worker.server_id, []).append(worker)
        wanted = workers_by_server(self.gang)
        for server_id, workers in staying.items():
            too_many = len(workers) - wanted.get(server_id, 0)
            if too_many > 0:
                # The youngest go: those that are there longest hold the state that others recover from.
                self.tell_to_leave(workers[-too_many:], notice=True)
        if self.finishing:
            return
        posts: list[Post] = []
        for server_rank, slot in enumerate(self.gang.slots):
            for _ in range(slot.workers - len(staying.get(slot.server_id, ()))):
                gpus = self.hands.take(slot.server_id, slot.gpus_per_worker)
                posts.append(Post(self.next_rank, slot.server_id, server_rank, 0, 1, gpus, gpus))
                self.next_rank += 1
        if posts:
            self.start_posts(posts)

    def _report_done_as_gone(self) -> None:
        """Workers that the resize takes away and that were done already leave nobody to wait for."""
        for server_id, owed in tuple(self.owed.items()):
            here = [worker for worker in self.workers.values() if worker.server_id == server_id]
            missing = owed - sum(worker.leaving and not worker.ended for worker in here)
            done = [worker for worker in here if worker.done and not worker.reported]
            for worker in done[: max(missing, 0)]:
                worker.reported = True
            if missing > 0:
                self.report_gone({server_id: missing})

    def _replace(self, worker: Worker) -> None:
        too_soon = time.time() - worker.started_unix_s < TOO_SOON_S
        self.replaced += 1
        if too_soon or self.finishing or self.replaced >= self.gang.program.max_failures:
            self.fail(worker)
            return
        reason = f"worker {worker.key.rank} on {worker.server_id} {worker.reason}"
        del self.workers[worker.key]
        try:
            self.fill_up()
        except ArylError:
            self.fail(worker)
            return
        self.hands.emit(
            WorkerReplaced(time.time(), self.gang.job_id, self.gang.attempt, worker.server_id, reason)
        )
