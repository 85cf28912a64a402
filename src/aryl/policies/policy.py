"""What a policy is: an order of the queue, a decision, and an answer to "why does it wait?"."""

from __future__ import annotations

from typing import Protocol

from aryl.core.cluster import Cluster, Job
from aryl.core.decision import Decision
from aryl.core.model import JobSpec
from aryl.core.pending import QueueKey
from aryl.policies.reasons import WaitReason


class Policy(Protocol):
    """Pure: no clock, no I/O, no memory between calls. The same state always gives the same decision."""

    @property
    def name(self) -> str:
        """The spelling that makes this policy again."""

    def could_ever_start(self, cluster: Cluster, spec: JobSpec) -> bool:
        """Whether a gang would start if nothing else were there; one that never could isn't accepted."""

    def order(self, job: Job, now_s: float) -> QueueKey:
        """The place of a waiting job in the queue; must not change while it waits."""

    def decide(self, cluster: Cluster) -> Decision:
        """What is to change now; the cluster is left as it was."""

    def explain(self, cluster: Cluster, job_id: str) -> WaitReason:
        """Why a job waits, with the numbers behind it."""
