"""Orders of the queue, as keys of a waiting job. Ties are broken by (submission, sequence), which the cluster
appends.
"""

from __future__ import annotations

from collections.abc import Callable

from aryl.core.cluster import Job
from aryl.core.pending import QueueKey

Order = Callable[[Job, float], QueueKey]

# A job without an estimate is taken for this long. Half of the jobs in the real traces run for less (ours).
UNKNOWN_ESTIMATE_S = 1800.0


def by_submission(job: Job, now_s: float) -> QueueKey:
    """First come, first served."""
    return ()


def by_remaining_time(job: Job, now_s: float) -> QueueKey:
    """Shortest estimated running time at base demand first; for a job that ran before, what is left of it."""
    remaining_s = job.remaining_s(now_s)
    return (UNKNOWN_ESTIMATE_S if remaining_s is None else remaining_s,)


def by_attained_service(job: Job, now_s: float) -> QueueKey:
    """Least attained service first, in GPU-seconds: needs no estimate (Tiresias, NSDI'19)."""
    return (job.attained_gpu_s(now_s),)


def by_gang_size(job: Job, now_s: float) -> QueueKey:
    """Smallest gang first, in GPUs: needs no estimate."""
    return (job.spec.base_gpus,)


ORDERS: dict[str, Order] = {
    "fifo": by_submission,
    "sjf": by_remaining_time,
    "las": by_attained_service,
    "size": by_gang_size,
}
