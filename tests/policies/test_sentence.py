"""The paragraph that people read: every reason has one, with its numbers, and names only for those who may
see them.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from aryl.policies.reasons import Wait, WaitReason
from aryl.policies.sentence import sentence

EVERYTHING = {
    wait: WaitReason("me", wait, 16, 12, 6, ("resnet-17", "bert-3", "vit-9"), 4600.0) for wait in Wait
}
SAID = {
    Wait.NEXT_PASS: "It needs 16 GPUs and there is room for it: it starts at the next pass.",
    Wait.NO_MATCHING_GPU: (
        "It needs 16 GPUs, but no server that is up has a GPU type that it accepts and is large enough for "
        "one of its workers."
    ),
    Wait.TOO_LARGE: "Its gang needs 16 GPUs, which would not fit even if nothing else were here.",
    Wait.VACATING: (
        "Its place of 16 GPUs is being vacated by resnet-17, bert-3 and vit-9; it starts as soon as that is "
        "over (expected in about 60 min)."
    ),
    Wait.BEHIND_THE_HEAD: (
        "The queue is strict, and resnet-17, bert-3 and vit-9 has to start first. It needs 16 GPUs; 12 are "
        "free, at most 6 on one server."
    ),
    Wait.NOT_ENOUGH_FREE: (
        "It needs 16 GPUs, but only 12 are free, at most 6 on one server. Once resnet-17, bert-3 and vit-9 "
        "have ended, it is expected to start in about 60 min."
    ),
    Wait.FRAGMENTED: (
        "It needs 16 GPUs and 12 are free, but in pieces too small: the best server has 6. Once resnet-17, "
        "bert-3 and vit-9 have ended, it is expected to start in about 60 min."
    ),
    Wait.RESERVED: (
        "It needs 16 GPUs and 12 are free, but it would delay resnet-17, bert-3 and vit-9, which has waited "
        "long and has a reservation."
    ),
    Wait.VICTIMS_REST: (
        "It needs 16 GPUs, but 12 are free, at most 6 on one server. It may preempt resnet-17, bert-3 and "
        "vit-9 for that, but not before they have run for the minimum time (expected in about 60 min)."
    ),
    Wait.FASTER_LATER: (
        "It needs 16 GPUs and 12 are free, but it is expected to finish sooner if it waits for faster GPUs "
        "(expected in about 60 min)."
    ),
    Wait.NOT_WAITING: "It isn't waiting.",
}


@pytest.mark.parametrize("wait", Wait)
def test_every_reason_is_said_in_plain_words_with_its_numbers(wait: Wait) -> None:
    assert sentence(EVERYTHING[wait], 1000.0) == SAID[wait]


@pytest.mark.parametrize("wait", Wait)
def test_no_other_job_is_named_to_those_who_may_not_see_it(wait: Wait) -> None:
    said = sentence(EVERYTHING[wait], 1000.0, names=False)
    assert not re.search(r"resnet|bert|vit", said)
    assert ("3 other jobs" in said) == ("resnet" in SAID[wait])


@pytest.mark.parametrize("wait", Wait)
def test_a_reason_of_which_nothing_more_is_known_still_reads_well(wait: Wait) -> None:
    said = sentence(WaitReason("me", wait, 1), 1000.0)
    assert re.fullmatch(r"(It|Its|The) [^{}]*[a-z]\.", said)
    assert not re.search(r"None|inf|nan|  | ,|-?\b0 GPUs|1 GPUs", said)


def test_one_job_in_the_way_is_spoken_of_as_one() -> None:
    reason = WaitReason("me", Wait.NOT_ENOUGH_FREE, 8, 1, 1, ("bert-3",), 90.0)
    assert sentence(reason, 0.0) == (
        "It needs 8 GPUs, but only 1 is free, at most 1 on one server. Once bert-3 has ended, it is expected "
        "to start in about 90 s."
    )
    assert "Once another job has ended" in sentence(reason, 0.0, names=False)
    rests = WaitReason("me", Wait.VICTIMS_REST, 8, behind=("bert-3",))
    assert "not before it has run for the minimum time." in sentence(rests, 0.0)


def test_a_start_that_is_due_is_expected_any_moment() -> None:
    reason = WaitReason("me", Wait.FRAGMENTED, 4, 4, 2, (), 50.0)
    assert sentence(reason, 60.0).endswith("the best server has 2. It is expected to start any moment now.")


@pytest.mark.parametrize("starts_s", [None, float("inf")])
def test_without_estimates_no_time_is_promised(starts_s: float | None) -> None:
    assert "expected" not in sentence(replace(EVERYTHING[Wait.VICTIMS_REST], starts_s=starts_s), 0.0)
    reason = WaitReason("me", Wait.NOT_ENOUGH_FREE, 4, starts_s=starts_s)
    assert sentence(reason, 60.0) == (
        "It needs 4 GPUs, but none that it could use is free. When that changes can't be told from the "
        "estimates of the running jobs."
    )
