"""The PyTorch example that restarts at each new size, as processes and under torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.train.gangs import EXAMPLES, Stage, free_port, stage, wait_until

SCRIPT = "torch_process.py"
SLOW = {"STEPS": "1000", "STEP_S": "0.2"}


def test_a_pytorch_job_goes_on_at_another_size_with_the_next_step_and_the_same_model(tmp_path: Path) -> None:
    with stage(tmp_path) as job:
        job.start_gang(SCRIPT, 2, SLOW)
        job.wait_for_step(5)
        job.give_notice(0, 1)
        assert job.exit_codes() == [75, 75]
        job.workers.clear()
        left = job.steps()[-1]["step"]
        job.start_gang(SCRIPT, 1, {"STEPS": str(left + 20), "STEP_S": "0"})
        assert job.exit_codes() == [0]
        steps = job.steps()
    assert [said["step"] for said in steps] == list(range(1, left + 21))
    assert [said["workers"] for said in steps] == [2] * left + [1] * 20


def test_under_torchrun_all_workers_leave_after_the_same_step_and_the_agent_ends_well(tmp_path: Path) -> None:
    with stage(tmp_path) as job:
        job.generation = 0
        agent = _start_agent(job, workers=2)
        job.wait_for_step(3)
        # The agent puts its workers into sessions of their own.
        told = _children(agent.pid)
        assert len(told) == 2
        for pid in told:
            os.kill(pid, signal.SIGUSR1)
        assert job.exit_codes() == [0]
        assert (job.run_dir / "saved-0-0").exists()
        steps = [said["step"] for said in job.steps()]
        assert steps == list(range(1, steps[-1] + 1))
        assert (job.checkpoint_dir / f"step-{steps[-1]:010d}").exists()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in told), "the workers to be gone")


def _start_agent(job: Stage, workers: int) -> subprocess.Popen[bytes]:
    place = {
        "ARYL_RANK": "0",
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": str(workers),
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
        "PET_RDZV_BACKEND": "static",
        "PET_MAX_RESTARTS": "0",
    }
    return job.start([sys.executable, "-m", "torch.distributed.run", str(EXAMPLES / SCRIPT)], place | SLOW)


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text(encoding="ascii").split()
    ]
