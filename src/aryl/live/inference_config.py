"""The section `inference` of a live cluster: who says what is needed, what may be lent, how servers change
hands.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import model_validator

from aryl.files.fields import UNFIT, PositiveSeconds, Section, Share, Text, choice, fault
from aryl.files.inference_fields import ORACLE, LendingFields, Points
from aryl.live.source_config import (
    FileConfig,
    PrometheusConfig,
    RayServeConfig,
    SourceConfig,
    with_absolute_paths,
)
from aryl.wire.job_file_fields import Command, argument_vector

_DEMANDS = ("curve", "points", "prometheus", "file", "ray_serve")


class Hooks(Section):
    """Commands that tell the inference side what becomes of a server; each gets ARYL_SERVER_ID.

    `release` hands a server over, `restore` takes it back into service; a daemon that takes over may run them
    once more. A release that takes longer than `drain_limit` seconds is called off, or forced, as `on_limit`
    says; one that isn't wanted any more is killed.
    """

    release: Command | None = None
    restore: Command | None = None
    drain_limit: PositiveSeconds = 30.0
    on_limit: Annotated[Literal["call-off", "force"], choice("call-off", "force")] = "call-off"

    @property
    def release_command(self) -> tuple[str, ...] | None:
        """The argument vector."""
        return None if self.release is None else argument_vector(self.release)

    @property
    def restore_command(self) -> tuple[str, ...] | None:
        """The argument vector."""
        return None if self.restore is None else argument_vector(self.restore)


class LiveInference(LendingFields):
    """What is known of the inference demand, and what may be lent. Times in seconds.

    A `curve` or `points` are replayed on the clock of the server; `prometheus` or a `file` are asked again
    and again, and so is `ray_serve`, which also hands its servers over, without hooks. Without any of these
    the inference side reports, and until its first word it needs all of its servers. What is older than
    `stale_after` counts for nothing. `ready`: a server that came home serves once its restore hook has ended
    well, or once the inference side has said so.
    """

    curve: Text | None = None
    points: Points | None = None
    prometheus: PrometheusConfig | None = None
    file: FileConfig | None = None
    ray_serve: RayServeConfig | None = None
    interpolate: Annotated[Literal["step", "line"], choice("step", "line")] = "step"
    peak: Share = 0.95
    interval: PositiveSeconds = 300.0
    stale_after: PositiveSeconds = 180.0
    hooks: Hooks = Hooks()
    ready: Annotated[Literal["hook", "report"], choice("hook", "report")] = "hook"

    @model_validator(mode="after")
    def _one_demand(self) -> LiveInference:
        given = [name for name in _DEMANDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise fault(f"give one of {' and '.join(given)}, not both", given[-1])
        return self

    @model_validator(mode="after")
    def _only_a_curve_has_a_future(self) -> LiveInference:
        replayed = self.curve is not None or self.points is not None
        if self.forecast.predictor == ORACLE and not replayed:
            raise fault(
                "an oracle needs a curve to look ahead in",
                "forecast",
                expected="another predictor, or a curve",
            )
        return self

    @model_validator(mode="after")
    def _a_source_is_never_stale_by_itself(self) -> LiveInference:
        source = self.source
        if source is None:
            return self
        longest_s = source.longest_s
        if longest_s >= self.stale_after:
            raise fault(
                "a demand would be too old before the next one is read",
                "stale_after",
                expected=f"more than {longest_s:g} s, the time between two readings",
                found=self.stale_after,
            )
        return self

    @model_validator(mode="after")
    def _ray_serve_hands_its_servers_over(self) -> LiveInference:
        if self.ray_serve is None:
            return self
        for name in ("release", "restore"):
            if getattr(self.hooks, name) is not None:
                raise fault("Ray Serve is emptied without hooks", "hooks", name, expected="no such command")
        if self.hooks.on_limit == "force":
            # A replica that still stands there has the GPUs, so no worker could start.
            raise fault(
                "a server of Ray Serve can't be lent with replicas on it",
                *("hooks", "on_limit"),
                expected="call-off",
                found="force",
            )
        return self

    @property
    def source(self) -> SourceConfig | None:
        """What is polled."""
        return next((found for found in (self.prometheus, self.file, self.ray_serve) if found), None)

    @property
    def confirms_returns(self) -> bool:
        """Whether somebody says when a server that came home serves again."""
        return self.ready == "report" or self.hooks.restore is not None or self.ray_serve is not None


def with_inference_paths(inference: Any, folder: str) -> Any:
    """The section as it was written, with its paths relative to `folder`. A curve is a name in the catalogue,
    unless there is such a file.
    """
    if not isinstance(inference, Mapping):
        return inference
    full = dict(with_absolute_paths(inference, folder))
    curve, forecast = _joined(folder, full.get("curve")), full.get("forecast")
    if curve is not None and os.path.isfile(curve):
        full["curve"] = curve
    model = _joined(folder, forecast.get("model")) if isinstance(forecast, Mapping) else None
    if isinstance(forecast, Mapping) and model is not None:
        full["forecast"] = {**forecast, "model": model}
    return full


def _joined(folder: str, path: object) -> str | None:
    """None for what can't be a path, which is said elsewhere."""
    usable = isinstance(path, str) and path.strip() and not UNFIT.search(path)
    return os.path.join(folder, path) if usable and isinstance(path, str) else None
