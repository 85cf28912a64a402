"""Servers that fail and come back at random, from a seed.

Each server is up for an exponentially distributed time and then down for another; servers are independent.
That is the simplest model with a rate, and ours: real failures cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from aryl.core.events import Event, ServerLost, ServerReturned


def random_failures(
    server_ids: Sequence[str], *, every_s: float, lasting_s: float, seed: int, until_s: float
) -> Iterator[Event]:
    """Losses and returns in order of time; a server is lost every `every_s` on average, for `lasting_s` on
    average.

    No server is lost after `until_s`; every lost one returns.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    heap = [(float(rng.exponential(every_s)), place, True) for place in range(len(server_ids))]
    heapify(heap)
    while heap:
        at_s, place, fails = heappop(heap)
        if fails and at_s > until_s:
            continue
        yield ServerLost(at_s, server_ids[place]) if fails else ServerReturned(at_s, server_ids[place])
        next_s = at_s + float(rng.exponential(lasting_s if fails else every_s))
        heappush(heap, (next_s, place, not fails))
