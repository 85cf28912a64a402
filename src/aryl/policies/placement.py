"""Where workers stand: best-fit decreasing (the paper in outline; algorithms, section 4).

A gang takes the fewest servers. If one server can hold it, the fullest that can; otherwise whole empty
servers for its full multiples and best fit for the rest; where that fails it is scattered over what is free,
most first. On loaned servers, base and flexible workers avoid each other's servers as long as there is a
choice, so that a reclaim finds servers that it can empty by scaling in.

The functions take places on the index that they are given (a fork of the cluster's), so that the decisions of
one pass see each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from aryl.core.cluster import Cluster, Job, Stand
from aryl.core.free_index import LANES_PER_SHELF, Content, FreeIndex, lowest
from aryl.core.model import JobSpec, Slot

Places = dict[int, int]  # workers by the server's place


class Scatter(Enum):
    """Whether a gang that can't have whole servers may be scattered."""

    ALLOWED = "allowed"
    NEVER = "never"


# Which lanes of a shelf to look at first, by the kind of workers to be placed.
_LANES = {
    Content.BASE: (Content.BASE, Content.EMPTY, Content.FLEXIBLE),
    Content.FLEXIBLE: (Content.FLEXIBLE, Content.EMPTY, Content.BASE),
}


def lanes(index: FreeIndex, shelf: int, content: Content) -> tuple[int, ...]:
    """The lanes of a shelf in the order of preference for these workers."""
    first = shelf * LANES_PER_SHELF
    if not index.shelves[shelf].loaned:
        return (first,)
    return tuple(first + kind for kind in _LANES[content])


def place_base(
    index: FreeIndex,
    cluster: Cluster,
    spec: JobSpec,
    workers: int,
    scatter: Scatter,
    stands: Sequence[Stand] | None = None,
) -> tuple[Slot, ...] | None:
    """A place for a gang, taken on `index`: training shelves first, loaned ones next, mixed types last.

    None, and nothing taken, if it doesn't fit.
    """
    stands = cluster.stands(spec) if stands is None else stands
    for stand in stands:
        found = place_on_shelf(index, stand, workers, Content.BASE, scatter)
        if found is not None:
            return as_slots(cluster, {stand: found}, base=True)
    kinds: dict[str, list[Stand]] = {}
    for stand in stands:
        kinds.setdefault(index.shelves[stand.shelf].gpu_type, []).append(stand)
    if scatter is Scatter.ALLOWED:
        # Shelves of one GPU type (owned and loaned) may be combined by anybody, types only by heterogeneous
        # jobs.
        groups = [group for group in kinds.values() if len(group) > 1]
        if spec.heterogeneous and len(kinds) > 1:
            groups.append(list(stands))
        for group in groups:
            spread = _spread_over(index, group, workers, Content.BASE)
            if spread is not None:
                return as_slots(cluster, spread, base=True)
    return None


def place_on_shelf(
    index: FreeIndex, stand: Stand, workers: int, content: Content, scatter: Scatter
) -> Places | None:
    """A place on one shelf for all these workers, taken on `index`; None, and nothing taken, if they don't
    fit.
    """
    shelf, per_worker, _ = stand
    if index.shelf_free(shelf) < workers * per_worker:
        return None
    order = lanes(index, shelf, content)
    whole = index.shelves[shelf].gpus_per_server // per_worker  # workers on an empty server
    places: Places | None = None
    if workers <= whole:
        place = _best_fit(index, order, workers * per_worker)
        if place is not None:
            places = {place: workers}
    else:
        places = _whole_servers(index, order, stand, workers, whole)
    if places is None:
        if scatter is Scatter.NEVER or index.shelf_slots(shelf, per_worker) < workers:
            return None
        places = _scattered(index, order, per_worker, workers)
    take_all(index, places, per_worker, content)
    return places


def place_some(index: FreeIndex, stand: Stand, workers: int, content: Content) -> Places:
    """A place on one shelf for as many of these workers as fit, taken on `index`."""
    fitting = min(workers, index.shelf_slots(stand.shelf, stand.gpus_per_worker))
    if fitting <= 0:
        return {}
    found = place_on_shelf(index, stand, fitting, content, Scatter.ALLOWED)
    return found or {}


def take_all(index: FreeIndex, places: Places, gpus_per_worker: int, content: Content) -> None:
    """Take these places on the index."""
    for place, workers in places.items():
        index.take(place, workers * gpus_per_worker, content)


def as_slots(cluster: Cluster, found: dict[Stand, Places], *, base: bool) -> tuple[Slot, ...]:
    """Places as slots of base or flexible workers."""
    return tuple(
        Slot(
            cluster.servers[place].spec.server_id,
            workers if base else 0,
            0 if base else workers,
            stand.gpus_per_worker,
        )
        for stand, places in found.items()
        for place, workers in places.items()
    )


def fits_when_empty(
    cluster: Cluster,
    spec: JobSpec,
    *,
    lends: bool,
    scatter: Scatter = Scatter.ALLOWED,
    stands: Sequence[Stand] | None = None,
) -> bool:
    """Whether the gang would fit if nothing else were there (and, with `lends`, every inference server were
    on loan). `stands` restricts the shelves.
    """
    empty = FreeIndex(cluster.free.shelves, len(cluster.servers))
    for server in cluster.servers:
        if lends or not empty.shelves[server.shelf].loaned:
            empty.put(server.place, server.shelf * LANES_PER_SHELF, server.spec.gpus)
    return place_base(empty, cluster, spec, spec.min_workers, scatter, stands) is not None


def _best_fit(index: FreeIndex, order: Sequence[int], gpus: int) -> int | None:
    """The fullest server that still has this many free; among equals the first."""
    for lane in order:
        if index.lane_free[lane] >= gpus:
            bucket = index.buckets[lane]
            for free in range(gpus, len(bucket)):
                if bucket[free]:
                    return lowest(bucket[free])
    return None


def _whole_servers(
    index: FreeIndex, order: Sequence[int], stand: Stand, workers: int, whole: int
) -> Places | None:
    size = index.shelves[stand.shelf].gpus_per_server
    servers, rest = divmod(workers, whole)
    places: Places = {}
    for lane in order:
        for place in _members(index.buckets[lane][size]):
            if len(places) == servers:
                break
            places[place] = whole
    if len(places) < servers:
        return None
    if rest:
        trial = index.fork()
        take_all(trial, places, stand.gpus_per_worker, Content.BASE)
        last = _best_fit(trial, order, rest * stand.gpus_per_worker)
        if last is None:
            return None
        places[last] = rest
    return places


def _scattered(index: FreeIndex, order: Sequence[int], per_worker: int, workers: int) -> Places:
    """The servers with most free GPUs first, so that the gang spans few of them; the last one by best fit."""
    places: Places = {}
    size = len(index.buckets[order[0]]) - 1
    for free in range(size, per_worker - 1, -1):
        room = free // per_worker
        for lane in order:
            for place in _members(index.buckets[lane][free]):
                if workers <= room:
                    return places | _last_of_scattered(index, order, per_worker, workers, places)
                places[place] = room
                workers -= room
    raise AssertionError("more workers than slots")


def _last_of_scattered(
    index: FreeIndex, order: Sequence[int], per_worker: int, workers: int, taken: Places
) -> Places:
    for free in range(workers * per_worker, len(index.buckets[order[0]])):
        for lane in order:
            for place in _members(index.buckets[lane][free]):
                if place not in taken:
                    return {place: workers}
    raise AssertionError("the caller has seen a server with room")


def _spread_over(
    index: FreeIndex, group: Sequence[Stand], workers: int, content: Content
) -> dict[Stand, Places] | None:
    """As many workers as fit on each shelf in turn; None, and nothing taken, unless all find a place."""
    fitting = [index.shelf_slots(stand.shelf, stand.gpus_per_worker) for stand in group]
    if sum(fitting) < workers:
        return None
    spread: dict[Stand, Places] = {}
    for stand in group:
        found = place_some(index, stand, workers, content)
        if found:
            spread[stand] = found
            workers -= sum(found.values())
    return spread if workers == 0 else None


def _members(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


__all__ = [
    "Job",
    "Places",
    "Scatter",
    "as_slots",
    "fits_when_empty",
    "place_base",
    "place_on_shelf",
    "place_some",
    "take_all",
]
