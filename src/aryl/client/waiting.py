"""Waiting for jobs by asking again and again: seldom for a job that takes long, and across restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from aryl.client.patience import Patience, WaitTimeoutError, delays
from aryl.core.model import FINAL_STATES, JobState
from aryl.errors import UnreachableError
from aryl.wire.views import JobView


def wait_for(
    look: Callable[[str], JobView],
    job_ids: Sequence[str],
    timeout_s: float | None,
    until: Collection[JobState],
    on_change: Callable[[JobView], None] | None,
    patience: Patience,
) -> list[JobView]:
    """Look at the jobs until each is in one of the states `until`, or over. Raises WaitTimeoutError."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    seen: dict[str, JobView] = {}
    pauses = delays(0.1, 2.0)
    while True:
        try:
            for job_id in dict.fromkeys(job_ids):
                before = seen.get(job_id)
                if before is not None and _done(before, until):
                    continue
                seen[job_id] = job = look(job_id)
                patience.answered()
                if on_change is not None and (before is None or before.state is not job.state):
                    on_change(job)
        except UnreachableError as error:
            patience.lost(error, until_s=end_s)
        missing = [job_id for job_id in job_ids if job_id not in seen or not _done(seen[job_id], until)]
        if not missing:
            return [seen[job_id] for job_id in job_ids]
        left_s = None if end_s is None else end_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise WaitTimeoutError(_told(missing, seen, timeout_s))
        pause_s = next(pauses)
        time.sleep(pause_s if left_s is None else min(pause_s, left_s))


def _done(job: JobView, until: Collection[JobState]) -> bool:
    return job.state in until or job.state in FINAL_STATES


def _told(missing: Sequence[str], seen: dict[str, JobView], timeout_s: float | None) -> str:
    words = [f"{job_id} ({seen[job_id].state.value})" if job_id in seen else job_id for job_id in missing]
    return f"timed out after {timeout_s:g} s; still waiting for {', '.join(words)}"
