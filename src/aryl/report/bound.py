"""How well any scheduler could do: a lower bound on the mean job completion time (algorithms, section 6).

Job j comes at a_j, has the work W_j (GPU-seconds at base demand on the reference type, which is what it takes
at least) and can't be done in less than p_j. So its work is done at a rate of at most R_j = W_j / p_j. C(t)
is what training can use at t. Let preemption cost nothing and GPUs be divisible.

1. Let r_j(t) be the rate at which j is worked on, and M_j = integral of t r_j(t) / W_j, the mean time at
   which its work is done. Since r_j / W_j never exceeds 1 / p_j, the work can't end earlier than
   M_j + p_j / 2: that is how far the end of a uniform density of width p_j lies behind its mean, and any
   other density with this limit reaches further. So the sum of all completion times is at least the sum of
   M_j + p_j / 2.
2. The least sum of M_j under sum of r_j(t) <= C(t), r_j <= R_j and r_j = 0 before a_j is a linear programme.
   Any scheduler's rates are feasible in it, so its optimum is below what any scheduler reaches.
3. Put a price pi(t) >= 0 on capacity instead of limiting it. For whatever is feasible, adding
   pi(t) (sum of r_j(t) - C(t)) <= 0 makes the sum no larger, and leaving each job free to choose its own
   cheapest times makes it smaller still. So for *every* pi >= 0

       sum over j of min over r_j of [integral of r_j(t) (t / W_j + pi(t)) dt]  -  integral of pi(t) C(t) dt

   is a valid bound. A job's choice is the times at which t / W_j + pi(t) is below some level. For every level
   theta_j (in seconds after a_j, everything multiplied by W_j)

       a_j + theta_j - (1 / p_j) * integral from a_j of (theta_j - (t - a_j) - W_j pi(t))^+ dt

   is no more than that minimum, and equal to it where the times below the level last just p_j. So neither
   prices nor levels have to be optimal for the bound to hold, only to be good.

Prices are constant within slots of at most 900 s and nothing after the last slot. The bound is concave in
them and its gradient is what jobs want in each slot less what there is; it is climbed (`_climb`) from the
prices that a greedy schedule suggests (`_greedy_prices`). At price zero the bound is the mean of p_j.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SLOT_S = 900.0
MOST_SLOTS = 6_000
LEAST_SLOTS = 1_000  # a short trace is cut finer
# So many slots before and after an overload may have a price too.
MARGIN_SLOTS = 12
FIRST_STEP, LEAST_STEP, MOST_STEPS = 2.0, 1e-6, 60
# The climb ends when so many steps together have lifted the bound by less than this share.
PATIENCE, TRIFLE = 5, 5e-5


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs, one entry each: seconds of submission, shortest possible running times, GPU-seconds of work."""

    submit_s: Floats
    shortest_s: Floats
    work_gpu_s: Floats


@dataclass(frozen=True, slots=True)
class Room:
    """GPUs that training can use: `gpus[i]` from `from_s[i]` on, the last for ever, the first from always."""

    from_s: Floats
    gpus: Floats

    def integral(self, edge_s: Floats) -> Floats:
        """GPU-seconds between neighbouring edges; shape (len(edge_s) - 1,)."""
        since_s = np.concatenate([[min(float(self.from_s[0]), float(edge_s[0]))], self.from_s[1:]])
        summed = np.concatenate([[0.0], np.cumsum(np.diff(since_s) * self.gpus[:-1])])
        at = np.maximum(np.searchsorted(since_s, edge_s, side="right") - 1, 0)
        up_to = summed[at] + (edge_s - since_s[at]) * self.gpus[at]
        return np.diff(up_to)


class JobLoad(NamedTuple):
    """One job of a `Load`."""

    submit_s: float
    shortest_s: float
    work_gpu_s: float


class Bound:
    """The bound on the mean JCT of any of these jobs. `room` None: the jobs are never in each other's way."""

    def __init__(self, jobs: Mapping[str, JobLoad], room: Room | None) -> None:
        self.jobs, self.room = jobs, room
        self._last: tuple[tuple[str, ...], float] = ((), math.nan)

    def mean_jct_s(self, job_ids: Sequence[str]) -> float:
        """No scheduler's mean JCT of these jobs is below this; NaN where there are none.

        Raises KeyError for a job that isn't known. The last answer is kept: policies that run the same jobs
        have the same bound.
        """
        asked = tuple(sorted(job_ids))
        if asked != self._last[0]:
            table = np.array([self.jobs[job_id] for job_id in asked], dtype=np.float64)
            load = Load(*(np.ascontiguousarray(column) for column in table.T))
            bound_s = (
                float(load.shortest_s.mean()) if self.room is None else mean_jct_bound_s(load, self.room)
            )
            self._last = asked, bound_s
        return self._last[1]


def mean_jct_bound_s(load: Load, room: Room) -> float:
    """No scheduler's mean JCT of these jobs is below this; NaN without jobs.

    Source: algorithms, section 6 (ours).
    """
    if len(load.submit_s) == 0:
        return math.nan
    busy = load.work_gpu_s > 0.0
    shortest_s = float(load.shortest_s.sum())
    if not busy.any():
        return shortest_s / len(load.submit_s)
    working = Load(load.submit_s[busy], load.shortest_s[busy], load.work_gpu_s[busy])
    edge_s = _edges(working, room)
    prices = _greedy_prices(working, edge_s, room.integral(edge_s))
    if not prices.any():
        return shortest_s / len(load.submit_s)
    priced = np.convolve(prices > 0.0, np.ones(2 * MARGIN_SLOTS + 1), mode="same") > 0.5
    # Slots that stay without a price are as good as one.
    kept = np.append(priced, False) | np.insert(priced, 0, False)
    kept[0] = kept[-1] = True
    edge_s, priced, prices = edge_s[kept], priced[kept[:-1]], prices[kept[:-1]]
    dual = _Dual(_touched(working, edge_s, priced), edge_s, room.integral(edge_s), priced)
    return (shortest_s + _climb(dual, prices, shortest_s)) / len(load.submit_s)


def _touched(load: Load, edge_s: Floats, priced: npt.NDArray[np.bool_]) -> Load:
    """The jobs that meet a price if they run at once; the others do that, and gain nothing by any price."""
    before = np.concatenate([[0], np.cumsum(priced), [int(priced.sum())]])  # priced slots before each slot
    first = np.searchsorted(edge_s, load.submit_s, side="right") - 1
    last = np.searchsorted(edge_s, load.submit_s + load.shortest_s, side="left")
    meets = before[last] > before[first]
    return Load(load.submit_s[meets], load.shortest_s[meets], load.work_gpu_s[meets])


def _edges(load: Load, room: Room) -> Floats:
    """The borders of the slots: from the first submission until all could be done."""
    first_s, last_s = float(load.submit_s.min()), float(load.submit_s.max())
    usual = float(np.median(room.gpus))
    span_s = last_s - first_s
    if usual > 0.0:
        span_s = max(span_s, float(load.work_gpu_s.sum()) / usual)
    span_s += min(float(load.shortest_s.max()), span_s) + 1.0
    slot_s = max(min(SLOT_S, span_s / LEAST_SLOTS), span_s / MOST_SLOTS)
    return first_s + slot_s * np.arange(math.ceil(span_s / slot_s) + 1, dtype=np.float64)


def _greedy_prices(load: Load, edge_s: Floats, room_gpu_s: Floats) -> Floats:
    """Prices with which the job that only just gets its turn is as well off a little later: shape (slots,).

    At each slot the smallest jobs are worked on first, each as fast as it can be. Who comes last there, of
    work W, would lose 1 / W a second by waiting; so along an overload the price falls by that, down to
    nothing at its end.
    """
    slot_s = float(edge_s[1] - edge_s[0])
    order = np.argsort(load.submit_s, kind="stable")
    comes = np.searchsorted(edge_s, load.submit_s[order], side="right") - 1
    bounds = np.searchsorted(comes, np.arange(len(room_gpu_s) + 1), side="left")
    most = load.work_gpu_s / load.shortest_s * slot_s  # GPU-seconds a slot
    slope = np.zeros(len(room_gpu_s))
    waiting = np.empty(0, dtype=np.int64)
    left = load.work_gpu_s.copy()
    for slot, room in enumerate(room_gpu_s.tolist()):
        new = order[bounds[slot] : bounds[slot + 1]]
        if len(new):
            waiting = np.concatenate([waiting, new])
            waiting = waiting[np.argsort(load.work_gpu_s[waiting], kind="stable")]
        wants = np.minimum(most[waiting], left[waiting])
        if len(new):
            # Those that come within the slot can't use all of it.
            rest = np.isin(waiting, new)
            late = edge_s[slot + 1] - load.submit_s[waiting[rest]]
            wants[rest] = np.minimum(wants[rest], most[waiting[rest]] * late / slot_s)
        summed = np.cumsum(wants)
        served = np.clip(room - (summed - wants), 0.0, wants)
        if len(summed) and summed[-1] >= room * (1.0 - 1e-9):
            last = min(int(np.searchsorted(summed, room)), len(summed) - 1)
            slope[slot] = slot_s / load.work_gpu_s[waiting[last]]
        left[waiting] -= served
        waiting = waiting[left[waiting] > 1e-9 * load.work_gpu_s[waiting]]
    prices, price = np.zeros(len(slope)), 0.0
    for slot in range(len(slope) - 1, -1, -1):
        price = price + slope[slot] if slope[slot] > 0.0 else 0.0
        prices[slot] = price - 0.5 * slope[slot]
    return prices


class _Dual:
    """The bound as a function of prices: what each job gains over running at once, and what it wants when.

    For each job a row of slots is kept, from its submission on, as far as its level reaches; all rows lie
    behind one another in flat arrays.
    """

    def __init__(self, load: Load, edge_s: Floats, room_gpu_s: Floats, priced: npt.NDArray[np.bool_]) -> None:
        self.load, self.edge_s, self.room_gpu_s, self.priced = load, edge_s, room_gpu_s, priced
        self.slots = len(room_gpu_s)
        self._first = np.searchsorted(edge_s, load.submit_s, side="right") - 1
        self._level_s = load.shortest_s.copy()
        self._reach_s = 1.25 * load.shortest_s + SLOT_S
        self._lay_out()

    def _lay_out(self) -> None:
        """The rows, each long enough for its job's reach."""
        submit_s, count = self.load.submit_s, len(self.load.submit_s)
        last = np.searchsorted(self.edge_s, submit_s + self._reach_s, side="right") - 1
        lengths = last - self._first + 1
        ends = np.cumsum(lengths)
        self._row = ends - lengths
        self._job = np.repeat(np.arange(count), lengths)
        self._slot = np.arange(ends[-1]) - np.repeat(self._row - self._first, lengths)
        starts_s, stops_s = self.edge_s, np.append(self.edge_s[1:], np.inf)
        self._begin_s = np.maximum(starts_s[self._slot] - submit_s[self._job], 0.0)
        self._length_s = stops_s[self._slot] - submit_s[self._job] - self._begin_s

    def at(self, prices: Floats, rounds: int) -> tuple[float, Floats]:
        """The bound's gain over price zero, summed over jobs, in seconds; and GPU-seconds wanted by slot:
        less what there is, that is its gradient. `rounds` of looking for the levels.
        """
        load = self.load
        while True:
            offset_s = self._begin_s + np.append(prices, 0.0)[self._slot] * load.work_gpu_s[self._job]
            self._find_levels(offset_s, rounds)
            short = self._level_s > self._reach_s
            if not short.any():
                break
            self._reach_s[short] = 1.5 * self._level_s[short]
            self._lay_out()
        filled_s = np.clip(self._level_s[self._job] - offset_s, 0.0, self._length_s)
        saved = filled_s * (self._level_s[self._job] - offset_s) - 0.5 * filled_s * filled_s
        gain_s = self._level_s - np.add.reduceat(saved, self._row) / load.shortest_s - 0.5 * load.shortest_s
        value_s = float(gain_s.sum()) - float((prices * self.room_gpu_s).sum())
        rate = (load.work_gpu_s / load.shortest_s)[self._job]
        wanted = np.asarray(np.bincount(self._slot, filled_s * rate, self.slots + 1), dtype=np.float64)[:-1]
        return value_s, wanted

    def _find_levels(self, offset_s: Floats, rounds: int) -> None:
        """Levels below which the times last just as long as the jobs: Newton's method between brackets."""
        shortest_s = self.load.shortest_s
        low_s = shortest_s.copy()
        first = self._begin_s < shortest_s[self._job]
        through_s = np.minimum(self._length_s, shortest_s[self._job] - self._begin_s) + offset_s
        high_s = np.maximum.reduceat(np.where(first, through_s, 0.0), self._row)
        level_s = np.clip(self._level_s, low_s, high_s)
        for _ in range(rounds):
            filled_s = level_s[self._job] - offset_s
            inside = (filled_s > 0.0) & (filled_s < self._length_s)
            lasts_s = np.add.reduceat(np.clip(filled_s, 0.0, self._length_s), self._row)
            slope = np.add.reduceat(inside.astype(np.float64), self._row)
            above = lasts_s >= shortest_s
            high_s = np.where(above, level_s, high_s)
            low_s = np.where(above, low_s, level_s)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton_s = level_s + (shortest_s - lasts_s) / slope
            good = (newton_s >= low_s) & (newton_s <= high_s)
            level_s = np.where(good, newton_s, 0.5 * (low_s + high_s))
        self._level_s = level_s


def _climb(dual: _Dual, prices: Floats, shortest_s: float) -> float:
    """The best gain that is found from these prices on, in seconds, summed over jobs; at least 0.

    Accelerated projected gradient steps (Beck and Teboulle, 2009; O'Donoghue and Candes, 2015, for starting
    afresh when the push goes the wrong way). A price moves by the share by which a slot is wanted too much,
    and the more the higher it is. `shortest_s`: the sum at price zero, by which gains are measured.
    """
    room = np.where(dual.priced, dual.room_gpu_s, 0.0)
    priced = room > 0.0
    if not priced.any():
        return 0.0
    scale = np.where(priced, prices + prices[priced].mean(), 0.0)
    ahead, (ahead_s, wanted) = prices, dual.at(prices, rounds=10)
    best_s, marks = max(ahead_s, 0.0), [0.0]
    momentum, size = 1.0, FIRST_STEP
    for _ in range(MOST_STEPS):
        excess = np.where(priced, wanted - room, 0.0)
        while True:
            moved = np.maximum(ahead + size * scale * excess / np.where(priced, room, 1.0), 0.0)
            moved_s, moved_wanted = dual.at(moved, rounds=3)
            step = moved - ahead
            curve = float((room * step * step / np.where(priced, scale, 1.0)).sum())
            if moved_s >= ahead_s + float((excess * step).sum()) - 0.5 * curve / size or size < LEAST_STEP:
                break
            size *= 0.5
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
        push = (momentum - 1.0) / following
        if float(((ahead - moved) * (moved - prices)).sum()) > 0.0:
            following, push = 1.0, 0.0
        ahead, ahead_s, wanted = moved, moved_s, moved_wanted
        if push > 0.0:
            ahead = np.maximum(moved + push * (moved - prices), 0.0)
            ahead_s, wanted = dual.at(ahead, rounds=3)
        prices, momentum, size = moved, following, 1.2 * size
        best_s = max(best_s, moved_s, ahead_s)
        marks.append(best_s)
        if len(marks) > PATIENCE and best_s - marks[-1 - PATIENCE] < TRIFLE * (shortest_s + best_s):
            break
    return best_s
