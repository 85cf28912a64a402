"""How long it takes until a reclaimed server is in service again: as configured, or as was seen."""

from __future__ import annotations

from collections import deque

from aryl.core.cluster import Cluster
from aryl.core.events import BackInService, Event, PlanCommitted, ServerLost
from aryl.core.plan import Loan, Reclaim, Return

KEPT = 20
# A server that nobody could bring back into service for a night says nothing of the next one.
MOST_OVER_S = 3600.0


class GiveBack:
    """A `Watcher`. Measures from the order to come back to the return to service.

    What was configured is the least that is counted on; the longest of the last `KEPT` counts if it was
    longer, but by no more than `MOST_OVER_S`. Servers that are lost on the way don't count.
    """

    def __init__(self, configured_s: float) -> None:
        self._configured_s = configured_s
        self._asked_s: dict[str, float] = {}
        self._took_s: deque[float] = deque(maxlen=KEPT)

    @property
    def longest_s(self) -> float:
        """What is to be counted on, in seconds."""
        return max(self._configured_s, *self._took_s) if self._took_s else self._configured_s

    def saw(self, event: Event, cluster: Cluster) -> None:
        """Take in one event; `cluster` is the state after it."""
        match event:
            case PlanCommitted():
                for step in event.plan.steps:
                    match step:
                        case Reclaim():
                            # One that is called back long before it has to be empty may take its time.
                            last_s = step.deadline_s - cluster.reclaim_within_s
                            self._asked_s[step.server_id] = max(event.at, last_s)
                        case Loan():
                            self._asked_s.pop(step.server_id, None)
                        case Return() if cluster.server_by_id[step.server_id].restoring:
                            # What it still has to load counts, however early it came.
                            if step.server_id in self._asked_s:
                                asked_s = self._asked_s[step.server_id]
                                self._asked_s[step.server_id] = min(asked_s, event.at)
                        case Return():
                            self._note(step.server_id, event.at)
                        case _:
                            pass
            case BackInService():
                self._note(event.server_id, event.at)
            case ServerLost():
                self._asked_s.pop(event.server_id, None)
            case _:
                pass

    def _note(self, server_id: str, at_s: float) -> None:
        asked_s = self._asked_s.pop(server_id, None)
        if asked_s is not None:
            self._took_s.append(min(at_s - asked_s, self._configured_s + MOST_OVER_S))
