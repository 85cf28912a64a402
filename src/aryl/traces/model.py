"""What a trace of jobs and a curve of demand are, once read.

A `TraceJob` holds what the trace says and None where it says nothing, so that a scenario can fill in exactly
that. Times are seconds from the start of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One row of the canonical table.

    `duration_s` is the true running time at base demand on the reference GPU type.
    What the scheduler is told: `estimate_s`; the true duration where that is None; nothing at all where
    `estimate_known` is False.
    """

    job_id: str
    submit_s: float
    gpus: int
    duration_s: float
    min_workers: int | None = None
    max_workers: int | None = None
    gpus_per_worker: int | None = None
    sizes: tuple[int, ...] | None = None
    user: str | None = None
    project: str | None = None
    priority: int | None = None
    model: str | None = None
    gpu_types: tuple[tuple[str, float], ...] | None = None
    fungible: bool | None = None
    heterogeneous: bool | None = None
    estimate_s: float | None = None
    checkpoint_s: float | None = None
    estimate_known: bool = True


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of (submission, position in the source); `source` is the name or path they came from."""

    name: str
    source: str
    jobs: tuple[TraceJob, ...]


@dataclass(frozen=True, slots=True)
class DemandCurve:
    """Inference demand as a step function: `busy[i]` holds from `time_s[i]` until `time_s[i + 1]`.

    `unit` is 'servers', 'gpus' or 'share', or None for a curve without a unit (it has to be scaled first).
    """

    name: str
    source: str
    time_s: npt.NDArray[np.float64] = field(repr=False)
    busy: npt.NDArray[np.float64] = field(repr=False)
    unit: str | None = None

    @property
    def end_s(self) -> float:
        """When the curve stops saying anything: its last value is taken to hold for a median step.

        A single point says how much is busy, not for how long, so it holds for ever (`inf`).
        """
        if len(self.time_s) < 2:
            return float("inf")
        return float(self.time_s[-1] + np.median(np.diff(self.time_s)))
