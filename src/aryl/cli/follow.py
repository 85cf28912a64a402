"""Following jobs: their logs, attempt after attempt, and their states until they are over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aryl.cli.live_output import span, workers_text
from aryl.cli.output import note
from aryl.cli.watch import QuietEndError, until_interrupted

if TYPE_CHECKING:
    from aryl.client import ArylClient
    from aryl.wire.views import JobView

# How long a job may take to leave its next log before it is looked at again.
LOOK_S = 0.5


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    with until_interrupted():
        for line in lines:
            print(line)
            sys.stdout.flush()


def follow_job(
    client: ArylClient, job_id: str, *, rank: int | None = None, tail: int | None = None
) -> JobView:
    """Print the log of a job until the job is over, which it is returned as.

    It begins with the last attempt, of which `tail` lines are printed, and goes on with those to come.
    """
    from aryl.client.patience import Patience
    from aryl.core.model import FINAL_STATES
    from aryl.errors import UnreachableError

    patience, last = Patience(), -1
    first, told = True, False
    with until_interrupted():
        while True:
            try:
                # In this order: a job that is over leaves no further log.
                job = client.job(job_id)
                places = client.attempts(job_id)
            except UnreachableError as error:
                patience.lost(error)
                continue
            patience.answered()
            coming = [
                place.attempt for place in places if place.attempt > last and rank in (None, place.rank)
            ]
            if coming:
                last = max(coming) if first else min(coming)
                if not first:
                    note(f"{job_id}: attempt {last}")
                print_lines(
                    client.logs(job_id, attempt=last, rank=rank, tail=tail if first else None, follow=True)
                )
                first = False
            elif job.state in FINAL_STATES:
                return job
            else:
                if first and not told:
                    note(f"{state_line(job)}; nothing is printed yet")
                    told = True
                time.sleep(LOOK_S)


def wait_for_end(client: ArylClient, job_ids: Sequence[str], timeout_s: float | None) -> list[JobView]:
    """Wait until jobs are over, and say how they do meanwhile. Raises WaitTimeoutError."""
    with until_interrupted():
        return client.wait(list(job_ids), timeout_s, on_change=lambda job: note(state_line(job)))


def state_line(job: JobView) -> str:
    """How a job does, on one line."""
    from aryl.core.model import LIVE_STATES

    text = f"{job.job_id}: {job.state.value}"
    if job.state in LIVE_STATES:
        text += f", {workers_text(job)} workers"
    if job.finished is not None and job.started is not None:
        text += f" after {span(job.finished - job.started)}"
    return f"{text}: {job.message}" if job.message else text


def exit_with_success(jobs: Sequence[JobView]) -> None:
    """End the command with exit code 1 unless all jobs succeeded."""
    from aryl.core.model import JobState

    if any(job.state is not JobState.SUCCEEDED for job in jobs):
        raise QuietEndError(1)
