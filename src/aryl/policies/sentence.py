"""Why a job waits, as a paragraph for people: what it needs, what there is, what is in the way, until when.

One function for all who tell it (`aryl why`, dry runs), so that they say the same. Times are relative, since
the reader's clock isn't the cluster's.
"""

from __future__ import annotations

import math
from typing import assert_never

from aryl.files.units import human_seconds
from aryl.policies.reasons import Wait, WaitReason


def sentence(reason: WaitReason, now_s: float, *, names: bool = True) -> str:
    """The reason in plain words, as seen at `now_s`. `names` False: other jobs are counted, not named, for
    readers to whom they are none of their business.
    """
    needed = _gpus(reason.needed_gpus)
    match reason.wait:
        case Wait.NEXT_PASS:
            return f"It needs {needed} and there is room for it: it starts at the next pass."
        case Wait.NO_MATCHING_GPU:
            return (
                f"It needs {needed}, but no server that is up has a GPU type that it accepts and is large "
                "enough for one of its workers."
            )
        case Wait.TOO_LARGE:
            return f"Its gang needs {needed}, which would not fit even if nothing else were here."
        case Wait.VACATING:
            return (
                f"Its place of {needed} is being vacated{_by(reason, names)}; it starts as soon as that is "
                f"over{_until(reason, now_s)}."
            )
        case Wait.BEHIND_THE_HEAD:
            head = _jobs(reason, names) or "the job at the head"
            return f"The queue is strict, and {head} has to start first. It needs {needed}; {_room(reason)}."
        case Wait.NOT_ENOUGH_FREE:
            only = "only " if reason.free_gpus else ""
            return f"It needs {needed}, but {only}{_room(reason)}. {_outlook(reason, now_s, names)}"
        case Wait.FRAGMENTED:
            return (
                f"It needs {needed} and {_are_free(reason)}, but in pieces too small: "
                f"the best server has {reason.best_server_free_gpus}. {_outlook(reason, now_s, names)}"
            )
        case Wait.RESERVED:
            holder = _jobs(reason, names) or "a large gang"
            return (
                f"It needs {needed} and {_are_free(reason)}, but it would delay {holder}, which has waited "
                "long and has a reservation."
            )
        case Wait.VICTIMS_REST:
            victims = _jobs(reason, names) or "others"
            they = "it has" if len(reason.behind) == 1 else "they have"
            return (
                f"It needs {needed}, but {_room(reason)}. It may preempt {victims} for that, but not before "
                f"{they} run for the minimum time{_until(reason, now_s)}."
            )
        case Wait.FASTER_LATER:
            return (
                f"It needs {needed} and {_are_free(reason)}, but it is expected to finish sooner if it waits "
                f"for faster GPUs{_until(reason, now_s)}."
            )
        case Wait.NOT_WAITING:
            return "It isn't waiting."
        case _:
            assert_never(reason.wait)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _are_free(reason: WaitReason) -> str:
    return f"{reason.free_gpus} {'is' if reason.free_gpus == 1 else 'are'} free"


def _room(reason: WaitReason) -> str:
    """How much is free of what it could use."""
    if not reason.free_gpus:
        return "none that it could use is free"
    best = reason.best_server_free_gpus
    return f"{_are_free(reason)}{f', at most {best} on one server' if best else ''}"


def _outlook(reason: WaitReason, now_s: float, names: bool) -> str:
    """What has to end first, and when that is expected."""
    jobs, starts_s = _jobs(reason, names), reason.starts_s
    if starts_s is None or not math.isfinite(starts_s):
        return "When that changes can't be told from the estimates of the running jobs."
    when = "any moment now" if starts_s <= now_s else f"in about {human_seconds(starts_s - now_s)}"
    return f"{f'Once {jobs} {_has(reason)} ended, it' if jobs else 'It'} is expected to start {when}."


def _has(reason: WaitReason) -> str:
    return "has" if len(reason.behind) == 1 else "have"


def _by(reason: WaitReason, names: bool) -> str:
    jobs = _jobs(reason, names)
    return f" by {jobs}" if jobs else ""


def _until(reason: WaitReason, now_s: float) -> str:
    if reason.starts_s is None or not now_s < reason.starts_s < math.inf:
        return ""
    return f" (expected in about {human_seconds(reason.starts_s - now_s)})"


def _jobs(reason: WaitReason, names: bool) -> str:
    """Those in the way, in a list that reads well; empty if nobody is known."""
    behind = reason.behind
    if not behind:
        return ""
    if not names:
        return "another job" if len(behind) == 1 else f"{len(behind)} other jobs"
    *first, last = behind
    return f"{', '.join(first)} and {last}" if first else last
