"""Which gangs are accepted, and that those that are do start."""

from __future__ import annotations

from typing import Any

import pytest

from aryl.testing import run_scenario

# 4 + 4 training GPUs, 4 inference GPUs of the same type, all lent from the start.
CLUSTER: dict[str, Any] = {
    "cluster": {
        "training": {"servers": 2, "gpus_per_server": 4},
        "inference": {"servers": 1, "gpus_per_server": 4, "gpu_type": "V100", "speed": 1.0},
    },
    "inference": {"points": [[0, 0]], "headroom": 0},
    "simulation": {"check": True},
}


def outcome(policy: str, **job: Any) -> dict[str, Any]:
    small = {"id": "small", "submit": "1m", "workers": 2, "duration": "10m"}
    wide = {"id": "wide", "duration": "10m", "fungible": True, **job}
    return run_scenario({**CLUSTER, "jobs": [wide, small]}, policy).outcome.summary()


@pytest.mark.parametrize(
    ("policy", "workers", "finished", "rejected"),
    [
        ("fifo", 8, 2, 0),
        ("fifo", 12, 1, 1),
        ("aryl", 12, 2, 0),
        ("aryl:scaling", 12, 1, 1),
        ("aryl:scatter=never", 8, 2, 0),
        ("aryl:scatter=never", 12, 1, 1),
        ("opportunistic", 8, 2, 0),
        ("opportunistic", 12, 1, 1),
    ],
)
def test_a_gang_is_accepted_if_the_servers_that_the_policy_may_use_could_hold_it(
    policy: str, workers: int, finished: int, rejected: int
) -> None:
    summary = outcome(policy, workers=workers)
    assert (summary["finished"], summary["rejected"], summary["unfinished"]) == (finished, rejected, 0)


def test_a_gang_for_idle_inference_servers_does_not_block_the_training_queue() -> None:
    # It fits neither into the training servers that are free, nor ever into one inference server.
    record = run_scenario(
        {
            **CLUSTER,
            "jobs": [
                {"id": "first", "workers": 6, "duration": "20m"},
                {"id": "loaned", "submit": "1m", "workers": 4, "duration": "10m", "fungible": True},
                {"id": "last", "submit": "2m", "workers": 2, "duration": "10m"},
            ],
        },
        "opportunistic",
    )
    assert [record.started_at(job) for job in ("first", "loaned", "last")] == [0.0, 60.0, 120.0]
    assert record.workers_of("loaned", "5m") == {"I1": 4}
