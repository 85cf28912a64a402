"""The examples that train, run by a real daemon, and what they wrote down of each step."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.live.cluster import ROOT, LiveCluster, environment_of, eventually

from aryl.wire.job_file import load_job_file

EXAMPLES = ROOT / "examples" / "train"
SETTLED_STEPS = 10
# Loading torch takes seconds on an idle machine, and many more where several do so.
LOADING_S = 180.0


def submit_example(cluster: LiveCluster, file: str, settings: Mapping[str, str]) -> str:
    """Submit an example with other settings than its file's; its id."""
    overrides = [f"{name}={value}" for name, value in settings.items()]
    return cluster.client.submit(load_job_file(EXAMPLES / file, overrides)).job_id


def steps_file(cluster: LiveCluster, job_id: str) -> Path:
    return cluster.state / "jobs" / job_id / "checkpoint" / "steps.jsonl"


def steps_of(cluster: LiveCluster, job_id: str) -> list[dict[str, Any]]:
    """What the workers wrote down, in that order; a line that isn't whole yet is left out."""
    path = steps_file(cluster, job_id)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def last_step(cluster: LiveCluster, job_id: str) -> int:
    return max((said["step"] for said in steps_of(cluster, job_id)), default=0)


def settle(cluster: LiveCluster, job_id: str, size: int, more_steps: int = SETTLED_STEPS) -> int:
    """Wait until a torchft job has trained with `size` workers for a while; the step it was at before."""
    before = last_step(cluster, job_id)

    def settled() -> bool:
        last = steps_of(cluster, job_id)[-more_steps * size :]
        return (
            len(last) == more_steps * size
            and all(said["size"] == size for said in last)
            and last[-1]["step"] > before + more_steps
        )

    eventually(
        settled,
        f"{job_id} never trains with {size} workers",
        lambda: f"{steps_of(cluster, job_id)[-4:]}\n{cluster.logs(job_id)[-6000:]}\n{cluster.said()}",
        within_s=LOADING_S,
    )
    return before


def worker_pids(cluster: LiveCluster, job_id: str) -> dict[int, int]:
    """The workers of a torchft job that live: their pids, by the numbers that they know themselves by."""
    found = {}
    for pid in cluster.worker_pids(job_id):
        environment = dict(entry.partition("=")[::2] for entry in environment_of(pid))
        found[int(environment["ARYL_RANK"])] = pid
    return found


def check_each_step_once(steps: Iterable[dict[str, Any]]) -> int:
    """No step of a torchft job is lost, none done twice, and no batch learned from twice. How many steps."""
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for said in steps:
        by_step[said["step"]].append(said)
    assert sorted(by_step) == list(range(1, len(by_step) + 1))
    first = 0
    for step in range(1, len(by_step) + 1):
        together = by_step[step]
        size = together[0]["size"]
        # Whoever did a step did it with the same others, and came to the same model.
        assert len({one["worker"] for one in together}) == len(together) <= size
        assert len({(one["size"], one["weights"]) for one in together}) == 1
        assert {one["batch"] for one in together} <= set(range(first, first + size))
        first += size
    return len(by_step)


def longest_pauses(steps: Iterable[dict[str, Any]], changes: Sequence[int]) -> list[float]:
    """From each of these steps to the next, the longest time between two steps, in seconds."""
    done: dict[int, float] = {}
    for said in steps:
        done[said["step"]] = min(said["at"], done.get(said["step"], said["at"]))
    ends = [*changes[1:], max(done)]
    return [
        max(done[step + 1] - done[step] for step in range(max(1, begin), end))
        for begin, end in zip(changes, ends, strict=True)
    ]
