"""Moments, durations and names as people read them."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.client.stand_in import server

from aryl.cli.live_output import clock, from_now, loan_account, names, server_state, span
from aryl.wire.views import LoanList

NOON = datetime(2026, 5, 17, 12, 0, 0).timestamp()


def test_a_moment_has_its_date_unless_it_is_today() -> None:
    assert clock(NOON - 3600, NOON) == "11:00:00"
    assert clock(NOON - 86400, NOON) == "2026-05-16 12:00"
    assert clock(None) == "-"


@pytest.mark.parametrize(
    ("ahead_s", "text"),
    [(720.0, "in 12 min"), (-90.0, "90 s ago"), (0.4, "now"), (-0.4, "now"), (3 * 86400.0, "in 3 d")],
)
def test_a_moment_is_told_from_now(ahead_s: float, text: str) -> None:
    assert from_now(NOON + ahead_s, NOON) == text


def test_what_is_not_known_is_a_dash() -> None:
    assert (from_now(None), span(None), span(5400.0)) == ("-", "-", "90 min")


def test_jobs_of_others_are_counted_and_not_named() -> None:
    assert names(["a-1", "b-2"]) == "a-1, b-2"
    assert names([None]) == "one of another project"
    assert names([None, "a-1", None]) == "a-1, 2 of other projects"
    assert names([]) == ""


def test_a_server_is_described_in_a_few_words() -> None:
    assert server_state(server("T1")) == "up"
    assert server_state(server("T1", up=False, health="quarantined", draining=True)) == (
        "down, quarantined, draining"
    )
    assert server_state(server("I1", handing_over=True)) == "up, handing over"


def test_the_account_of_the_inference_side_is_told_in_sentences() -> None:
    account = LoanList(
        loans=[],
        inference_servers=4,
        on_loan=2,
        need_servers=2.5,
        forecast_servers=3.0,
        reported=None,
        degraded=True,
        shortfall_servers=0.5,
    )
    assert loan_account(account) == (
        "2 of 4 inference servers are on loan. Inference needs 2.5 now and at most 3 soon. "
        "It is short of 0.5. Its reports have stopped, so nothing more is lent."
    )
