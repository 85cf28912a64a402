"""Moments, durations and names as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

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
    assert server_state(server("I1", restoring=True)) == "up, loading"


def account(**other: Any) -> LoanList:
    """Two of four servers lent, and a need of 2.5."""
    plain: dict[str, Any] = {
        "loans": [],
        "inference_servers": 4,
        "on_loan": 2,
        "need_servers": 2.5,
        "forecast_servers": 3.0,
        "reported": None,
        "degraded": False,
        "shortfall_servers": 0.0,
        "serving_servers": 2,
        "restoring_servers": 0,
        "headroom_servers": 0.0,
        "lending_cap": 4,
    }
    return LoanList(**{**plain, **other})


def test_the_account_of_the_inference_side_is_told_in_sentences() -> None:
    assert loan_account(account(degraded=True, shortfall_servers=0.5)) == (
        "2 of 4 inference servers are on loan. Inference needs 2.5 now and at most 3 soon. "
        "It is short of 0.5. Its reports have stopped, so nothing more is lent."
    )


def test_servers_that_load_are_told_where_there_are_any() -> None:
    lent = "2 of 4 inference servers are on loan."
    assert loan_account(account(need_servers=None, forecast_servers=None)) == lent
    loading = account(need_servers=None, serving_servers=1, restoring_servers=1)
    assert loan_account(loading) == f"{lent} 1 serves, 1 still loads."
    more = account(need_servers=None, serving_servers=0, restoring_servers=2)
    assert loan_account(more) == f"{lent} 0 serve, 2 still load."


def test_a_headroom_is_told_where_it_is_eaten_into() -> None:
    lent = "2 of 4 inference servers are on loan. Inference needs 2.5 now and at most 3 soon."
    assert loan_account(account(serving_servers=4, headroom_servers=1.5)) == lent
    assert loan_account(account(serving_servers=3, headroom_servers=1.5)) == (
        f"{lent} Of its headroom of 1.5 only 0.5 is left."
    )
    short = account(serving_servers=2, headroom_servers=1.5, shortfall_servers=0.5)
    assert loan_account(short) == f"{lent} It is short of 0.5."


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("calendar", "The calendar lets at most 2 be lent at this time."),
        ("max_lent", "At most 2 may be lent (max_lent)."),
        ("min_servers", "At most 2 may be lent, since the others have to stay (min_servers)."),
    ],
)
def test_a_limit_is_told_once_it_is_reached(limit: str, says: str) -> None:
    lent = "2 of 4 inference servers are on loan."
    assert loan_account(account(need_servers=None, limit=limit, lending_cap=3)) == lent
    for cap in (2, 1):  # it may have been lowered under what is lent
        told = account(need_servers=None, limit=limit, lending_cap=cap)
        assert loan_account(told) == f"{lent} {says.replace('2', str(cap))}"
