"""A loop that stands still is told by `/readyz` within two intervals (scenario X5)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.live.cluster import eventually

from aryl.core.cluster import Cluster
from aryl.live.api.app import make_app
from aryl.live.api.serving import ApiServer
from aryl.live.api.settings import Settings
from aryl.live.config import ServeConfig
from aryl.live.controlling import LiveControl
from aryl.live.driver import TURN_S
from aryl.live.lead import Lead
from aryl.live.store import Store
from aryl.policies.catalogue import parse_policy

# A loop with nothing to do comes by once in TURN_S.
INTERVAL_S = 1.5 * TURN_S


@contextmanager
def leading(folder: Path) -> Iterator[tuple[Lead, str]]:
    """A lead whose loop turns in this process, and the address of its API."""
    config = ServeConfig.model_validate(
        {
            "cluster": {"training": {"servers": 1, "gpus_per_server": 1}, "inference": {"servers": 1}},
            "state": str(folder / "state"),
            "store": f"sqlite:///{folder}/aryl.db",
            "workdirs": [str(folder)],
        }
    )
    store = Store.open(config.store)
    token = store.take("test", store.observe())
    assert token is not None
    policy = parse_policy(config.policy)
    lead = Lead(config, store, policy, token, interval_s=INTERVAL_S)
    control = LiveControl(config, store, policy, None)
    api = ApiServer(make_app(control, store, Settings(open=True)), "127.0.0.1", 0)
    api.start()
    try:
        lead.start()
        control.lead = lead
        yield lead, api.url
    finally:
        supervisor = lead.backend.supervisor_pid
        lead.stop()
        api.stop()
        store.close()
        if supervisor is not None:
            os.kill(supervisor, signal.SIGKILL)


def test_a_loop_that_stands_still_is_not_ready_until_it_goes_on(tmp_path: Path) -> None:
    with leading(tmp_path) as (lead, url), httpx.Client(base_url=url, trust_env=False) as client:
        eventually(lambda: client.get("/readyz").status_code == 200, "it is never ready")
        go_on, stands = threading.Event(), threading.Event()

        def stand(_cluster: Cluster) -> float:
            stands.set()
            go_on.wait()
            return lead.driver.last_turn_s

        answers: list[float] = []
        asking = threading.Thread(target=lambda: answers.append(lead.driver.inbox.ask(stand)))
        asking.start()
        try:
            assert stands.wait(60)
            told = eventually(
                lambda: answer if (answer := client.get("/readyz")).status_code == 503 else None,
                "nobody notices",
            )
            assert told.json()["status"] == "stalled"
            # What doesn't need the loop is still answered.
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/jobs").status_code == 200
            assert "aryl_ready 0" in client.get("/metrics").text
        finally:
            go_on.set()
            asking.join()
        eventually(lambda: client.get("/readyz").status_code == 200, "it is never ready again")
        assert len(answers) == 1


def test_a_lead_is_ready_for_two_intervals_after_its_loop_was_there_and_no_longer(tmp_path: Path) -> None:
    with leading(tmp_path) as (lead, _):
        go_on, stands = threading.Event(), threading.Event()

        def stand(_cluster: Cluster) -> bool:
            stands.set()
            return go_on.wait()

        asking = threading.Thread(target=lambda: lead.driver.inbox.ask(stand))
        asking.start()
        try:
            assert stands.wait(60)
            was_there_s = lead.driver.last_turn_s
            lead.driver.last_turn_s = was_there_s + 3600.0
            assert lead.ready
            lead.driver.last_turn_s = was_there_s - 2 * INTERVAL_S
            assert not lead.ready
        finally:
            go_on.set()
            asking.join()
