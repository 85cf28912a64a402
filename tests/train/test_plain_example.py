"""The plain example under the launcher `process`, and with it how a gang agrees on the step to leave
after.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.train.gangs import Stage, stage

SCRIPT = "plain.py"


def notice_at(job: Stage, size: int, step: int, *told: int, env: dict[str, str]) -> None:
    """Run the gang at `size` until after `step`, tell some of its workers, and see all leave."""
    job.start_gang(SCRIPT, size, env)
    job.wait_for_step(step)
    job.give_notice(*told)
    assert job.exit_codes() == [75] * size
    job.workers.clear()


def test_a_job_restarted_at_other_sizes_does_each_step_once_and_ends_with_the_same_result(
    tmp_path: Path,
) -> None:
    alone, resized = tmp_path / "alone", tmp_path / "resized"
    alone.mkdir()
    resized.mkdir()
    quick = {"STEPS": "60", "STEP_S": "0.0"}
    slow = {"STEPS": "60", "STEP_S": "0.1"}
    with stage(alone) as job:
        job.start_gang(SCRIPT, 1, quick)
        assert job.exit_codes() == [0]
        undisturbed = job.steps()
    with stage(resized) as job:
        # One worker is told, any of them: the others learn of it in time.
        notice_at(job, 2, 5, 1, env=slow)
        notice_at(job, 3, 15, 0, 1, 2, env=slow)
        notice_at(job, 1, 25, 0, env=slow)
        job.start_gang(SCRIPT, 2, quick)
        assert job.exit_codes() == [0, 0]
        steps = job.steps()
    assert [said["step"] for said in steps] == list(range(1, 61))
    assert [said["hits"] for said in steps] == [said["hits"] for said in undisturbed]
    sizes = [said["workers"] for said in steps]
    assert [a for a, b in pairwise([*sizes, 0]) if a != b] == [2, 3, 1, 2]


def test_a_gang_leaves_at_most_the_margin_after_the_notice(tmp_path: Path) -> None:
    with stage(tmp_path) as job:
        job.start_gang(SCRIPT, 2, {"STEPS": "1000", "STEP_S": "0.2"})
        job.wait_for_step(3)
        job.give_notice(0)
        told = job.steps()[-1]["step"]
        assert job.exit_codes() == [75, 75]
        # The worker asks at the latest after the step under way, and two more are agreed on from there.
        left = job.steps()[-1]["step"]
        assert left <= told + 3
        assert [path.name for path in job.checkpoint_dir.glob("step-*")] == [f"step-{left:010d}"]
