"""What the loop needs from the world, and from a policy. Simulated and real worlds implement the same
ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aryl.core.cluster import Cluster
from aryl.core.events import Event
from aryl.core.plan import Plan


class ClusterDriver(Protocol):
    """The world: facts come out, plans go in."""

    def poll(self, deadline_s: float) -> Sequence[Event] | None:
        """The next facts, all of one instant, in order; nothing if `deadline_s` came first; None if there
        will be no more.
        """

    def apply(self, plan: Plan, cluster: Cluster) -> None:
        """Carry out a plan that has just been committed. `cluster` is the state after it, to be read only."""


class Clock(Protocol):
    """What time it is, in seconds on the cluster's own scale."""

    def now(self) -> float:
        """Seconds since the cluster's zero."""

    def seconds_until(self, at_s: float) -> float:
        """How long to wait for an instant; never negative."""


class Journal(Protocol):
    """Takes every event in order, our own plans among them."""

    def append(self, event: Event) -> None:
        """Write one event behind the others."""

    def flush(self) -> None:
        """Make everything that was appended last through a crash. Comes before a plan is carried out."""


class Watcher(Protocol):
    """Looks at every event right after it has changed the cluster: statistics, checks, progress bars."""

    def saw(self, event: Event, cluster: Cluster) -> None:
        """`cluster` is the state after the event, to be read only."""
