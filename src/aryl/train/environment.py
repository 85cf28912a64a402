"""What a worker is told about itself, read once from its environment.

Outside of Aryl, where ARYL_JOB_ID is absent, the same script runs as a single worker, or as torchrun set it
up. A variable that can't be read counts as absent: a training script must not die of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A worker's place in its job.

    `rank` and `size` are those of the collective; under torchft, where each worker is a group of its own,
    they are 0 and 1. `worker` tells the workers of an attempt apart under every launcher. `generation` counts
    the starts of the gang within an attempt. Folders are None where there are none.
    """

    job_id: str = ""
    attempt: int = 0
    generation: int = 0
    rank: int = 0
    local_rank: int = 0
    size: int = 1
    worker: int = 0
    run_dir: Path | None = None
    checkpoint_dir: Path | None = None
    notice_signal: str = ""
    grace_s: float = 0.0
    report_socket: str = ""
    torchelastic: bool = False

    @property
    def inside(self) -> bool:
        """Whether Aryl started this process."""
        return self.job_id != ""


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read `variables`, or the process's own environment."""
    env = os.environ if variables is None else variables
    rank = _integer(env, "RANK", 0)
    return Environment(
        job_id=env.get("ARYL_JOB_ID", ""),
        attempt=_integer(env, "ARYL_ATTEMPT", 0),
        generation=_integer(env, "ARYL_GENERATION", 0),
        rank=rank,
        local_rank=_integer(env, "LOCAL_RANK", 0),
        size=max(1, _integer(env, "WORLD_SIZE", 1)),
        # torchrun's agent has one worker number for all its workers, so theirs is their rank.
        worker=rank if "TORCHELASTIC_RUN_ID" in env else _integer(env, "ARYL_RANK", rank),
        run_dir=_folder(env, "ARYL_RUN_DIR"),
        checkpoint_dir=_folder(env, "ARYL_CHECKPOINT_DIR"),
        notice_signal=env.get("ARYL_NOTICE_SIGNAL", ""),
        grace_s=_number(env, "ARYL_GRACE_S", 0.0),
        report_socket=env.get("ARYL_REPORT", ""),
        torchelastic="TORCHELASTIC_RUN_ID" in env,
    )


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(env.get(name, default))
    except ValueError:
        return default


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(env.get(name, default))
    except ValueError:
        return default


def _folder(env: Mapping[str, str], name: str) -> Path | None:
    path = env.get(name, "")
    return Path(path) if path else None
