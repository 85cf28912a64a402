"""On any small cluster with any jobs, no mean JCT is below the bound, unless inference pays for it."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.strategies import EVERY_POLICY

from aryl.sim.experiment_file import experiment_from_mapping
from aryl.sim.run import run


@st.composite
def jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        per_worker, least = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 4))
        job: dict[str, Any] = {
            "id": f"J{number}",
            "submit": draw(st.integers(0, 900)),
            "workers": [least, least * draw(st.integers(1, 3))],
            "gpus_per_worker": per_worker,
            "duration": draw(st.integers(10, 4000)),
            "fungible": draw(st.booleans()),
        }
        if draw(st.booleans()):
            job["speedup"] = {"amdahl": draw(st.sampled_from([0.1, 0.5]))}
        found.append(job)
    return found


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    inference = draw(st.integers(0, 3))
    mapping: dict[str, Any] = {
        "cluster": {
            "training": {"servers": draw(st.integers(2, 4)), "gpu_type": "V100"},
            "accounting": draw(st.sampled_from(["more-gpus", "slower"])),
        },
        "jobs": draw(jobs()),
        "simulation": {
            "restart_s": draw(st.sampled_from([0, 60])),
            "resize_s": draw(st.sampled_from([0, 10])),
        },
    }
    if inference:
        speed = draw(st.sampled_from([0.33, 0.5, 1.0, 2.0]))
        mapping["cluster"]["inference"] = {"servers": inference, "gpu_type": "T4", "speed": speed}
        times = draw(st.lists(st.integers(1, 6000), max_size=4, unique=True).map(sorted))
        needs = [draw(st.integers(0, inference)) for _ in range(len(times) + 1)]
        points = [[at, need] for at, need in zip([0, *times], needs, strict=True)]
        mapping["inference"] = {"points": points, "forecast": "oracle", "lead": "10m"}
    return mapping


@settings(max_examples=200)
@given(mapping=experiments(), name=st.sampled_from(EVERY_POLICY))
def test_no_policy_beats_the_bound(mapping: dict[str, Any], name: str) -> None:
    summary = run(experiment_from_mapping(mapping), name).summary
    assume(summary["finished"] and not summary["inference_shortfall_server_s"])
    assert summary["jct_s"]["mean"] >= summary["jct_bound_s"] * (1 - 1e-9)
