"""After a change of daemons: what runs, against what the journal says should run.

The supervisor kept everything; the journal may be a step ahead of it (an order that was never carried out) or
behind it (an end that nobody was there to hear of). For each gang of the journal one of these holds:

* nothing of it is known: its launch was never carried out, or it ran and is lost;
* it runs at the journal's revision: whatever has ended meanwhile is told now;
* it runs at an older revision: the resize is carried out now;
* only a part of it was started: that part ends, and all are started;
* it was to be stopped: it is told again, which changes nothing if it was told before;
* the supervisor itself died, and its workers with it: they count as lost with their servers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from aryl.backends.environment import processes_of
from aryl.backends.gangs.attempt import Attempt, Hands, Stage, Worker, workers_by_server
from aryl.backends.gangs.elastic import LIGHTHOUSE_RANK, ElasticAttempt
from aryl.backends.port import Gang, GangFailed, Launcher, Phase
from aryl.backends.supervisor.protocol import WorkerState, WorkerStatus

NEVER_SEEN = "nothing of it is left, and nobody knows how it ended"


def new_attempt(gang: Gang, hands: Hands) -> Attempt:
    """The attempt of a gang, by the way in which it is resized."""
    elastic = gang.program.launcher is Launcher.TORCHFT
    return ElasticAttempt(gang, hands) if elastic else Attempt(gang, hands)


def adopt(attempt: Attempt, statuses: Sequence[WorkerStatus], *, lost: bool = False) -> None:
    """Bring a new attempt to where it is: tell what the journal doesn't know, and do what was left undone.

    `statuses` are all that the supervisor knows of this attempt. `lost`: a server where it was to stand is
    lost, so that the journal will have it stopped or regrouped; until then nothing is done.
    """
    gang = attempt.gang
    workers = [status for status in statuses if status.key.rank != LIGHTHOUSE_RANK]
    if isinstance(attempt, ElasticAttempt):
        _adopt_lighthouse(attempt, statuses)
    if not workers:
        if not lost:
            _begin_again(attempt)
        return
    attempt.generation = max(status.key.generation for status in workers)
    present = [status for status in workers if status.key.generation == attempt.generation]
    attempt.host, attempt.port = present[0].meta["host"], int(present[0].meta["port"])
    attempt.started_unix_s = min(status.started_unix_s or time.time() for status in present)
    revision = min(int(status.meta["revision"]) for status in present)
    # Those whose supervisor died leave no trace of how they ended; their servers are reported instead.
    known = [status for status in present if status.state is not WorkerState.LOST]
    attempt.lost = len(known) < len(present)
    attempt.workers = {status.key: _worker(status) for status in known}
    if gang.phase is Phase.STOPPING:
        _note_ends(attempt, known)
        attempt.stop(save=True)
    elif lost:
        _note_ends(attempt, known)
    elif isinstance(attempt, ElasticAttempt):
        _settle_elastic(attempt, known)
    elif revision < gang.revision or len(present) < _processes(gang):
        _note_ends(attempt, known)
        _start_anew(attempt)
    else:
        _catch_up(attempt, known)


def _begin_again(attempt: Attempt) -> None:
    gang = attempt.gang
    if gang.phase is Phase.STOPPING:
        attempt.stop(save=False)
    elif gang.launched:
        attempt.over(GangFailed(time.time(), gang.job_id, gang.attempt, (), float("inf"), NEVER_SEEN))
    else:
        attempt.report_gone(_leaving(gang))
        attempt.resizing = gang.revision > 0
        attempt.launch()


def _worker(status: WorkerStatus) -> Worker:
    return Worker(
        status.key,
        status.server_id,
        int(status.meta["workers"]),
        started=status.state is not WorkerState.STARTING,
        leaving=status.told_to_stop,
        told_to_stop=status.told_to_stop,
        started_unix_s=status.started_unix_s or time.time(),
    )


def _leaving(gang: Gang) -> dict[str, int]:
    return {slot.server_id: slot.workers for slot in gang.leaving}


def _note_ends(attempt: Attempt, known: Sequence[WorkerStatus]) -> None:
    """What has ended is gone, whatever becomes of the others."""
    for status in known:
        if status.state.ended:
            worker = attempt.workers[status.key]
            worker.ended, worker.code = True, attempt.hands.exit_code(status)


def _processes(gang: Gang) -> int:
    return processes_of(gang.program, list(workers_by_server(gang).items()))


def _start_anew(attempt: Attempt) -> None:
    """The journal has a later revision than what runs, or not all were started: all leave, and start again as
    the journal says.
    """
    attempt.owed = _leaving(attempt.gang)
    attempt.up, attempt.resizing = attempt.gang.launched, True
    attempt.stage = Stage.RESTARTING
    attempt.tell_to_leave(attempt.alive, notice=True)
    attempt.all_gone()


def _catch_up(attempt: Attempt, known: Sequence[WorkerStatus]) -> None:
    """Tell the journal what it may not know; what it knows already changes nothing."""
    # The present generation began when nobody of the one before was left.
    attempt.report_gone(_leaving(attempt.gang))
    attempt.up = attempt.gang.launched
    attempt.resizing = attempt.gang.revision > 0
    attempt.settle()
    _skip_reported(attempt, known)
    # One that ended badly by itself comes before those that were told to end because of it.
    for status in sorted(known, key=lambda status: status.told_to_stop):
        if status.state.ended:
            attempt.on_exited(status, attempt.hands.exit_code(status))


def _skip_reported(attempt: Attempt, known: Sequence[WorkerStatus]) -> None:
    """The journal counts fewer workers on a server than were started: so many are known to be done."""
    reported = {server_id: -count for server_id, count in workers_by_server(attempt.gang).items()}
    for worker in attempt.workers.values():
        reported[worker.server_id] = reported.get(worker.server_id, 0) + worker.workers
    for status in known:
        worker = attempt.workers[status.key]
        if status.state.ended and status.exit_code == 0 and reported.get(worker.server_id, 0) > 0:
            reported[worker.server_id] -= worker.workers
            worker.reported = True


def _adopt_lighthouse(attempt: ElasticAttempt, statuses: Sequence[WorkerStatus]) -> None:
    ranks = [status.key.rank for status in statuses if status.key.rank != LIGHTHOUSE_RANK]
    attempt.next_rank = max(ranks, default=-1) + 1
    houses = [status for status in statuses if status.key.rank == LIGHTHOUSE_RANK]
    for status in houses:
        attempt.host, attempt.port = status.meta["host"], int(status.meta["port"])
        if not (status.state.ended or status.orphan):
            attempt.lighthouse = status.key


def _settle_elastic(attempt: ElasticAttempt, known: Sequence[WorkerStatus]) -> None:
    gang = attempt.gang
    if attempt.lighthouse is None and any(not status.state.ended for status in known):
        attempt.fail_because("the lighthouse, by which its workers find each other, has ended")
        return
    alive, on_their_way = Counter[str](), Counter[str]()
    for status in known:
        if not status.state.ended:
            (on_their_way if status.told_to_stop else alive)[status.server_id] += 1
    ended = [status for status in known if status.state.ended]
    attempt.finishing = any(status.exit_code == 0 and not status.told_to_stop for status in ended)
    wanted = workers_by_server(gang)
    for server_id, workers in alive.items():
        # These are told to leave now: the journal had not come that far.
        on_their_way[server_id] += max(workers - wanted.get(server_id, 0), 0)
    # The journal waits for some; those of them that aren't here any more are gone.
    gone = {server_id: count - on_their_way[server_id] for server_id, count in _leaving(gang).items()}
    attempt.owed = _leaving(gang)
    attempt.report_gone({server_id: count for server_id, count in gone.items() if count > 0})
    attempt.resizing = gang.revision > 0
    for status in ended:
        if status.told_to_stop:
            attempt.workers[status.key].ended = True
        elif status.exit_code != 0:
            # It was replaced, or is replaced now.
            del attempt.workers[status.key]
        else:
            worker = attempt.workers[status.key]
            worker.ended, worker.code = True, 0
    if attempt.finishing:
        counts = {
            server_id: count - alive[server_id]
            for server_id, count in wanted.items()
            if count > alive[server_id]
        }
        for worker in attempt.workers.values():
            worker.reported = worker.ended
        attempt.tell_done(counts)
        if not attempt.alive:
            attempt.finish()
            return
    attempt.fill_up()
    if gang.launched:
        attempt.up = True
    attempt.settle()
