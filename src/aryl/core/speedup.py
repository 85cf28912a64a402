"""How much faster a job gets with more workers.

A curve gives the speed with `workers` workers relative to one worker. Only ratios matter to the engine: a
job's `duration_s` is its running time at base demand, so its rate with w workers is `speedup(w) /
speedup(min_workers)`. Linear is the paper's model; any concave, non-decreasing curve may stand in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """Speed grows with the number of workers: T(w) = T(w_min) * w_min / w (the paper, section 3)."""

    def __call__(self, workers: int) -> float:
        """Speed relative to one worker."""
        return float(workers)


@dataclass(frozen=True, slots=True)
class Amdahl:
    """A share `serial` (0..1) of the work does not get faster: speed = 1 / (serial + (1 - serial) / w)."""

    serial: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.serial <= 1.0:
            raise ValueError(f"the serial share of the work must be within 0..1, not {self.serial}")

    def __call__(self, workers: int) -> float:
        """Speed relative to one worker."""
        return 1.0 / (self.serial + (1.0 - self.serial) / workers)


@dataclass(frozen=True, slots=True)
class Points:
    """Measured speeds at some worker counts, straight lines between them, flat beyond the last.

    Raises ValueError unless the points ascend and the curve through the origin and all of them is concave.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        slope, previous = float("inf"), (0, 0.0)
        if not self.points:
            raise ValueError("a speed-up curve needs at least one point")
        for workers, speed in self.points:
            if workers <= previous[0] or speed < previous[1]:
                raise ValueError(f"speed-up points must ascend: ({workers}, {speed}) follows {previous}")
            step = (speed - previous[1]) / (workers - previous[0])
            if step > slope * (1 + 1e-9):
                raise ValueError(
                    f"a speed-up curve must be concave: it bends upwards before {workers} workers"
                )
            slope, previous = step, (workers, speed)

    def __call__(self, workers: int) -> float:
        """Speed relative to the curve's own unit."""
        at = bisect_right(self.points, (workers, float("inf")))
        if at == len(self.points):
            return self.points[-1][1]
        low_workers, low_speed = self.points[at - 1] if at else (0, 0.0)
        high_workers, high_speed = self.points[at]
        share = (workers - low_workers) / (high_workers - low_workers)
        return low_speed + share * (high_speed - low_speed)


Speedup = Linear | Amdahl | Points
LINEAR = Linear()
