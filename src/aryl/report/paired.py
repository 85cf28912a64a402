"""Two policies on the same jobs, job by job: how much do their completion times differ, and how sure is that?

Intervals are bootstrap percentiles of the mean difference. Jobs that wait in one queue at the same time
aren't independent of each other, so whole *blocks* of jobs submitted together are drawn, a day each where
there are enough days (the block bootstrap of Kuensch, 1989, with fixed blocks). Drawing single jobs would
give intervals that are far too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aryl.errors import InputError
from aryl.report.outcome import Floats, JobTable, Outcome

DAY_S = 86_400.0
LEAST_BLOCKS = 20  # a short trace is cut into so many blocks
DRAWS = 4_000
CONFIDENCE = 0.95
# The users with most GPU time are shown by name.
MOST_USERS = 10
OTHERS, NOBODY = "(others)", "(no user)"

# Gangs by size: 1, 2 to 7, one server of eight, more than one, large ones.
SIZES = ((1, 1), (2, 7), (8, 8), (9, 31), (32, math.inf))


@dataclass(frozen=True, slots=True)
class Pairing:
    """Some jobs under two policies: means of both, and the mean difference with its interval, in seconds.

    `better`, `worse`: shares of the jobs whose JCT is shorter or longer by more than a second.
    """

    group: str
    jobs: int
    first_s: float
    second_s: float
    difference_s: float
    low_s: float
    high_s: float
    better: float
    worse: float


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Jobs that finished under both policies, those of all runs behind one another."""

    first_s: Floats
    second_s: Floats
    base_gpus: Floats
    gpu_s: Floats
    user: npt.NDArray[np.str_]
    block: npt.NDArray[np.int64]
    blocks: int


def pair_up(
    first: Sequence[Outcome], second: Sequence[Outcome], *, seed: int = 1
) -> tuple[list[Pairing], list[Pairing], list[Pairing]]:
    """All jobs; by size; by user. Each outcome of `first` has its like in `second`: the same jobs.

    Raises InputError where the jobs aren't the same.
    """
    pairs = _pairs(first, second)
    draws = _draws(pairs.blocks, seed)
    everybody = np.ones(len(pairs.first_s), dtype=np.bool_)
    sizes = [
        _pairing(_size_text(low, high), pairs, (pairs.base_gpus >= low) & (pairs.base_gpus <= high), draws)
        for low, high in SIZES
    ]
    return (
        [_pairing("all", pairs, everybody, draws)],
        [size for size in sizes if size.jobs],
        [_pairing(name, pairs, chosen, draws) for name, chosen in _by_user(pairs)],
    )


def _pairs(first: Sequence[Outcome], second: Sequence[Outcome]) -> _Pairs:
    parts, blocks = [], 0
    for one, other in zip(first, second, strict=True):
        if one.jobs.job_id != other.jobs.job_id:
            raise InputError("only runs of the same jobs can be paired", found=f"{one.trace}, {other.trace}")
        both = one.jobs.finished & other.jobs.finished
        block = _blocks(one.jobs.submit_s) + blocks
        blocks = int(block.max(initial=blocks - 1)) + 1
        parts.append((one.jobs, other.jobs, both, block))

    def joined(read: Callable[[JobTable, JobTable], Floats]) -> Floats:
        return np.concatenate([read(one, other)[both] for one, other, both, _ in parts])

    return _Pairs(
        joined(lambda one, other: one.jct_s),
        joined(lambda one, other: other.jct_s),
        joined(lambda one, other: one.base_gpus),
        joined(lambda one, other: one.base_gpus * one.duration_s),
        np.concatenate([np.array(one.user, dtype=np.str_)[both] for one, _, both, _ in parts]),
        np.concatenate([block[both] for _, _, both, block in parts]),
        blocks,
    )


def _blocks(submit_s: Floats) -> npt.NDArray[np.int64]:
    if len(submit_s) == 0:
        return np.empty(0, dtype=np.int64)
    since_s = submit_s - submit_s.min()
    width_s = min(DAY_S, float(since_s.max()) / LEAST_BLOCKS) or 1.0
    return np.asarray(since_s // width_s, dtype=np.int64)


def _draws(blocks: int, seed: int) -> Floats:
    """How often each block is drawn; shape (DRAWS, blocks)."""
    random = np.random.Generator(np.random.PCG64(seed))
    return random.multinomial(blocks, np.full(blocks, 1.0 / max(blocks, 1)), DRAWS).astype(np.float64)


def _pairing(group: str, pairs: _Pairs, chosen: npt.NDArray[np.bool_], draws: Floats) -> Pairing:
    jobs = int(chosen.sum())
    if jobs == 0:
        return Pairing(group, 0, math.nan, math.nan, math.nan, math.nan, math.nan, 0.0, 0.0)
    first_s, second_s = pairs.first_s[chosen], pairs.second_s[chosen]
    difference_s = second_s - first_s
    sums = np.bincount(pairs.block[chosen], difference_s, pairs.blocks)
    counts = np.bincount(pairs.block[chosen], minlength=pairs.blocks).astype(np.float64)
    drawn = draws @ counts
    means_s = (draws @ sums)[drawn > 0.0] / drawn[drawn > 0.0]
    low_s, high_s = np.quantile(means_s, ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0)).tolist()
    return Pairing(
        group,
        jobs,
        float(first_s.mean()),
        float(second_s.mean()),
        float(difference_s.mean()),
        low_s,
        high_s,
        float((difference_s < -1.0).mean()),
        float((difference_s > 1.0).mean()),
    )


def _size_text(low: float, high: float) -> str:
    if high == low:
        return f"{low:.0f} GPU{'s' if low > 1 else ''}"
    return f"{low:.0f} GPUs or more" if high == math.inf else f"{low:.0f} to {high:.0f} GPUs"


def _by_user(pairs: _Pairs) -> Iterable[tuple[str, npt.NDArray[np.bool_]]]:
    """The users with most GPU time, most first, and the rest together; nothing where all are one user's."""
    names, number = np.unique(pairs.user, return_inverse=True)
    if len(names) < 2:
        return
    held = np.bincount(number, pairs.gpu_s, len(names))
    order = np.argsort(-held, kind="stable")
    for place in order[:MOST_USERS].tolist():
        yield str(names[place]) or NOBODY, number == place
    if len(names) > MOST_USERS:
        yield OTHERS, np.isin(number, order[MOST_USERS:])
