"""Where GPUs are free: servers bucketed by how many they have free.

A *shelf* is a set of servers that are alike for placement: same GPU type, same size, either training servers
or loaned ones. A shelf has a *lane* for each kind of content, so that on loaned servers base and flexible
workers can be kept apart (training servers use one lane). A lane holds, for each number of free GPUs, the set
of servers with that many, as a bit mask over the servers' places in the list.

Why masks: Python integers are immutable, so a `fork` for tentative placement copies a few short lists and
nothing else, the lowest place of a set is one machine operation, and a set of a thousand servers takes 130
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Content(IntEnum):
    """What a loaned server carries. The value is the lane's position within its shelf."""

    EMPTY = 0
    BASE = 1
    FLEXIBLE = 2


LANES_PER_SHELF = len(Content)
OFF_SHELF = -1


class Shelf(NamedTuple):
    """Servers that are alike for placement."""

    loaned: bool
    gpu_type: str
    gpus_per_server: int
    speed: float


def lowest(mask: int) -> int:
    """The lowest place in a non-empty mask."""
    return (mask & -mask).bit_length() - 1


class FreeIndex:
    """Free GPUs by lane. `free[i]` and `lane[i]` belong to the server at place i; lane OFF_SHELF: not to be
    used.

    Lanes are numbered `shelf * LANES_PER_SHELF + content`.
    """

    __slots__ = ("buckets", "free", "lane", "lane_free", "shelves")

    def __init__(self, shelves: tuple[Shelf, ...], servers: int) -> None:
        self.shelves = shelves
        self.free = [0] * servers
        self.lane = [OFF_SHELF] * servers
        self.buckets = [[0] * (shelf.gpus_per_server + 1) for shelf in shelves for _ in Content]
        self.lane_free = [0] * len(self.buckets)

    def fork(self) -> FreeIndex:
        """A copy to try placements on; changes to it don't reach the original."""
        twin = FreeIndex.__new__(FreeIndex)
        twin.shelves = self.shelves
        twin.free = self.free.copy()
        twin.lane = self.lane.copy()
        twin.buckets = [bucket.copy() for bucket in self.buckets]
        twin.lane_free = self.lane_free.copy()
        return twin

    def shelf_number(self, shelf: Shelf) -> int:
        """The number of a shelf, which is put behind the others if there is none like it."""
        if shelf not in self.shelves:
            self.shelves = (*self.shelves, shelf)
            self.buckets += [[0] * (shelf.gpus_per_server + 1) for _ in Content]
            self.lane_free += [0] * LANES_PER_SHELF
        return self.shelves.index(shelf)

    def add_place(self) -> None:
        """Make room for one more server, behind the others; it isn't to be used yet."""
        self.free.append(0)
        self.lane.append(OFF_SHELF)

    def put(self, place: int, lane: int, free: int) -> None:
        """Say where the server at `place` stands now: its lane (or OFF_SHELF) and its free GPUs."""
        old_lane, old_free = self.lane[place], self.free[place]
        if old_lane == lane and old_free == free:
            return
        bit = 1 << place
        if old_lane != OFF_SHELF:
            self.buckets[old_lane][old_free] ^= bit
            self.lane_free[old_lane] -= old_free
        if lane != OFF_SHELF:
            self.buckets[lane][free] |= bit
            self.lane_free[lane] += free
        self.lane[place], self.free[place] = lane, free

    def take(self, place: int, gpus: int, content: Content) -> None:
        """Give out `gpus` GPUs of a server to workers of this kind."""
        self.put(place, self.lane_after(self.lane[place], content), self.free[place] - gpus)

    def give(self, place: int, gpus: int) -> None:
        """Count `gpus` more GPUs of a server as free; its lane stays."""
        self.put(place, self.lane[place], self.free[place] + gpus)

    def lane_after(self, lane: int, content: Content) -> int:
        """The lane of a server once workers of this kind are on it too. Base workers decide on mixed
        servers.
        """
        shelf, old = divmod(lane, LANES_PER_SHELF)
        if not self.shelves[shelf].loaned or old == Content.BASE:
            return lane
        return shelf * LANES_PER_SHELF + content

    def shelf_free(self, shelf: int) -> int:
        """Free GPUs on a shelf."""
        first = shelf * LANES_PER_SHELF
        return sum(self.lane_free[first : first + LANES_PER_SHELF])

    def shelf_slots(self, shelf: int, gpus_per_worker: int) -> int:
        """How many workers of this size fit into the shelf's free GPUs, each on one server."""
        first = shelf * LANES_PER_SHELF
        if gpus_per_worker == 1:
            return sum(self.lane_free[first : first + LANES_PER_SHELF])
        slots = 0
        for lane in range(first, first + LANES_PER_SHELF):
            if self.lane_free[lane] >= gpus_per_worker:
                for free, mask in enumerate(self.buckets[lane]):
                    if mask and free >= gpus_per_worker:
                        slots += (free // gpus_per_worker) * mask.bit_count()
        return slots

    def shelf_filled(self, shelf: int, fillings: Sequence[int]) -> int:
        """How many of the shelf's free GPUs can be filled, if `fillings[n]` of `n` on one server can."""
        first = shelf * LANES_PER_SHELF
        return sum(
            fillings[free] * mask.bit_count()
            for bucket in self.buckets[first : first + LANES_PER_SHELF]
            for free, mask in enumerate(bucket)
            if mask
        )

    def largest_free(self, shelf: int) -> int:
        """The most free GPUs that one server of the shelf has."""
        first = shelf * LANES_PER_SHELF
        best = 0
        for lane in range(first, first + LANES_PER_SHELF):
            bucket = self.buckets[lane]
            for free in range(len(bucket) - 1, best, -1):
                if bucket[free]:
                    best = free
                    break
        return best
