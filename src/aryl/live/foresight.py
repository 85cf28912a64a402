"""What the daemon needs of whoever can look ahead. The simulator does it; the command line brings the two
together, because the live side doesn't import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aryl.core.cluster import Cluster
from aryl.core.model import JobSpec
from aryl.policies.policy import Policy
from aryl.wire.views import DryRunView, WhatIfOutcome


class Foresight(Protocol):
    """Answers from snapshots of the cluster. Times in cluster seconds. Safe to use from any thread."""

    def snapshot(self, cluster: Cluster) -> bytes:
        """The state as it is now; called by the loop's thread, so it has to be quick."""

    def dry_run(self, blob: bytes, policy: Policy, spec: JobSpec) -> DryRunView:
        """Whether and when a job would start."""

    def compare(self, blob: bytes, policies: Sequence[str]) -> list[WhatIfOutcome]:
        """What each policy would do from here on. Raises InputError for one that doesn't exist."""
