"""The PyTorch example whose workers join and leave while the others go on.

Prints how long the others paused at each change; machines differ too much to assert it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from tests.train.gangs import EXAMPLES, Stage, stage, wait_until

SETTLED_STEPS = 10


class Elastic:
    """A torchft job on a stage, with its lighthouse."""

    def __init__(self, job: Stage) -> None:
        self._job = job
        self._numbers = count()
        self._lighthouse: subprocess.Popen[bytes] | None = None
        self._address = job.folder / "lighthouse"
        self.changes: list[tuple[str, int]] = []

    def __enter__(self) -> Elastic:
        command = [sys.executable, "-m", "aryl.train.lighthouse", "--port-file", str(self._address)]
        self._lighthouse = subprocess.Popen(command)
        wait_until(self._address.exists, "the lighthouse")
        return self

    def __exit__(self, *_: object) -> None:
        if self._lighthouse is not None:
            self._lighthouse.send_signal(signal.SIGTERM)
            assert self._lighthouse.wait(timeout=30) == 0

    def kill_lighthouse(self) -> None:
        assert self._lighthouse is not None
        self._lighthouse.kill()
        self._lighthouse.wait()
        self._lighthouse = None

    def grow(self, workers: int, **env: str) -> list[int]:
        """Start this many more; returns their numbers."""
        numbers = [next(self._numbers) for _ in range(workers)]
        for number in numbers:
            place = {
                "ARYL_RANK": str(number),
                "RANK": "0",
                "WORLD_SIZE": "1",
                "LOCAL_RANK": "0",
                "REPLICA_GROUP_ID": str(number),
                "TORCHFT_LIGHTHOUSE": self._address.read_text(encoding="ascii"),
                "BATCHES": "1000000",
                "STEP_S": "0.03",
            }
            self._job.start([sys.executable, str(EXAMPLES / "torch_torchft.py")], place | env)
        return numbers

    def settle(self, size: int, change: str) -> None:
        """Wait until `size` workers have trained together for a while; note the change that led to it."""

        def settled() -> bool:
            last = self._job.steps()[-SETTLED_STEPS * size :]
            return len(last) == SETTLED_STEPS * size and all(said["size"] == size for said in last)

        before = max((said["step"] for said in self._job.steps()), default=0)
        self._job.wait_until(
            lambda: settled() and self._job.steps()[-1]["step"] > before + SETTLED_STEPS,
            f"{size} workers after {change}",
        )
        self.changes.append((change, before))


def test_workers_join_leave_and_die_and_no_step_is_lost_or_done_twice(tmp_path: Path) -> None:
    with stage(tmp_path) as job, Elastic(job) as elastic:
        a, b = elastic.grow(2)
        elastic.settle(2, "start")
        c, d = elastic.grow(2)
        elastic.settle(4, "2 -> 4")
        job.give_notice(a, b, c)
        elastic.settle(1, "4 -> 1")
        assert job.exit_codes(a, b, c) == [75, 75, 75]
        e, f = elastic.grow(2)
        elastic.settle(3, "1 -> 3")
        os.kill(job.workers[e].pid, signal.SIGKILL)
        elastic.settle(2, "killed")
        job.give_notice(d, f)
        assert job.exit_codes(d, f) == [75, 75]
        steps = job.steps()
        saved = max(int(path.name.removeprefix("step-")) for path in job.checkpoint_dir.glob("step-*"))
    _print_pauses(steps, elastic.changes)
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for said in steps:
        by_step[said["step"]].append(said)
    # None lost.
    assert sorted(by_step) == list(range(1, len(by_step) + 1))
    # None done twice: whoever did a step did it with the same others, and came to the same model.
    for together in by_step.values():
        assert len({one["worker"] for one in together}) == len(together) <= together[0]["size"]
        assert len({(one["size"], one["weights"]) for one in together}) == 1
    # No batch is learned from twice, or left out.
    first = 0
    for step in sorted(by_step):
        size = by_step[step][0]["size"]
        assert {one["batch"] for one in by_step[step]} <= set(range(first, first + size))
        first += size
    # The last one is saved.
    assert saved == first


def _print_pauses(steps: list[dict[str, Any]], changes: list[tuple[str, int]]) -> None:
    done: dict[int, float] = {}
    for said in steps:
        done[said["step"]] = min(said["at"], done.get(said["step"], said["at"]))
    bounds = [*(step for _, step in changes), max(done) + 1]
    for (change, _), (begin, end) in zip(changes, pairwise(bounds), strict=True):
        longest_s = max(done[k + 1] - done[k] for k in range(max(1, begin), end - 1))
        print(f"{change}: the longest pause is {longest_s:.3f} s")


def test_a_worker_whose_lighthouse_is_gone_saves_the_last_step_and_fails(tmp_path: Path) -> None:
    with stage(tmp_path) as job, Elastic(job) as elastic:
        elastic.grow(1, TORCHFT_QUORUM_TIMEOUT_SEC="1")
        elastic.settle(1, "start")
        elastic.kill_lighthouse()
        assert job.exit_codes() == [1]
        last = job.steps()[-1]["batch"] + 1
        assert (job.checkpoint_dir / f"step-{last:010d}").exists()


def test_the_example_runs_by_itself(tmp_path: Path) -> None:
    alone = {"ARYL_RANK": "0", "BATCHES": "5", "STEP_S": "0"}
    with stage(tmp_path) as job:
        job.start([sys.executable, str(EXAMPLES / "torch_torchft.py")], alone)
        assert job.exit_codes() == [0]
        assert [said["step"] for said in job.steps()] == [1, 2, 3, 4, 5]
