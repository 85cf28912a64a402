"""The actor of one worker. It runs in Ray; nothing else imports it for anything but its class.

The actor holds the GPUs in Ray's books. The program runs below a small supervisor of its own, which the actor
starts and whose leash it holds: when the actor is gone, or the server's lease is over, the supervisor ends
everything that the program has started. What happens is kept here, numbered, until the actor ends, so that
any daemon can hear all of it: `watch` answers with what came after a number, or waits a while for more.

Each request carries the fence of the daemon that makes it. Whoever has a lower one than was seen here, or
than the registry knows when the program is to start, is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aryl
from aryl.backends.devices import Nvml
from aryl.backends.environment import INHERITED
from aryl.backends.ray.places import Place
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.places import LOG, make_private
from aryl.backends.supervisor.protocol import (
    Json,
    StopSchedule,
    SupervisorEvent,
    SupervisorGone,
    WorkerExited,
    WorkerKey,
    WorkerState,
    WorkerStatus,
    WorkerStuck,
    schedule_from_json,
    spec_from_json,
)
from aryl.backends.supervisor.status import event_to_json, status_to_json
from aryl.errors import ArylError, FencedError

# How long a question for more waits for an answer.
WATCH_FOR_S = 20.0
_GPU_IDLE_WITHIN_S = 30.0
CUT_OFF = "its server was cut off"


class RayWorker:
    """See the module. `lease_s` is how long the server's lease lasts; `real_gpus` whether a GPU has to be
    seen idle before the end is told.
    """

    def __init__(
        self, place: Place, key: WorkerKey, lease_s: float, registry: Any, *, real_gpus: bool = False
    ) -> None:
        self._place, self._key, self._lease_s = place, key, lease_s
        self._registry, self._real_gpus = registry, real_gpus
        self._fence = 0
        self._told = False
        self._client: SupervisorClient | None = None
        self._leash = -1
        self._status: WorkerStatus | None = None
        self._events: list[Json] = []
        self._changed = asyncio.Event()
        self._stop: StopSchedule | None = None  # that came before the start

    async def hello(self, fence: int) -> dict[str, Any]:
        """What the daemon has to know before the start."""
        self._check(fence)
        return {"gpus": _gpus_of_this_actor(), "version": aryl.__version__}

    async def start(self, fence: int, spec_json: Json) -> None:
        """Start the program. Raises FencedError for a daemon that was replaced, ArylError."""
        self._check(fence)
        if not await self._registry.admit.remote(fence):
            raise FencedError("another daemon has taken over")
        if self._client is not None:
            return
        spec = spec_from_json(spec_json)
        loop = asyncio.get_running_loop()

        def on_event(event: SupervisorEvent) -> None:
            loop.call_soon_threadsafe(self._hear, event)

        self._client = await asyncio.to_thread(self._start_supervisor, on_event)
        env = {**spec.env, "ARYL_REPORT": self._client.report_socket}
        await asyncio.to_thread(self._client.start, [replace(spec, env=env)])

    async def stop(self, fence: int, schedule_json: Json, sent_unix_s: float) -> None:
        """Let the program leave. The clocks of two machines may differ: times count from `sent_unix_s`."""
        self._check(fence)
        self._told = True
        ahead_s = time.time() - sent_unix_s
        asked = schedule_from_json(schedule_json)
        schedule = StopSchedule(
            asked.notice_signal,
            asked.notice_at_unix_s + ahead_s,
            asked.term_at_unix_s + ahead_s,
            asked.kill_at_unix_s + ahead_s,
            asked.stuck_after_s,
        )
        if self._client is not None and not (self._status is not None and self._status.state.ended):
            await asyncio.to_thread(self._client.stop, [self._key], schedule)

    async def status(self, fence: int) -> tuple[int, Json | None]:
        """How many events there were, and the status after them; None before the start."""
        self._check(fence)
        if self._client is None:
            return 0, None
        if self._status is None:
            found = await asyncio.to_thread(self._client.list)
            return len(self._events), status_to_json(found[0]) if found else None
        return len(self._events), status_to_json(self._status)

    async def watch(self, fence: int, seen: int) -> list[Json]:
        """The events after the first `seen`; empty if there are none for a while."""
        self._check(fence)
        end_s = time.monotonic() + WATCH_FOR_S
        while len(self._events) <= seen and (left_s := end_s - time.monotonic()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
            self._check(fence)
        return self._events[seen:]

    def _check(self, fence: int) -> None:
        if fence < self._fence:
            raise FencedError("another daemon has taken over")
        self._fence = fence

    def _hear(self, event: SupervisorEvent) -> None:
        if isinstance(event, WorkerExited):
            if self._real_gpus:
                asyncio.get_running_loop().create_task(self._say_when_idle(event))
                return
            self._say(self._judge(event))
        elif isinstance(event, SupervisorGone):
            self._lost("its supervisor died")
        else:
            if not isinstance(event, WorkerStuck) and hasattr(event, "status"):
                self._status = event.status
            self._say(event)

    def _judge(self, event: WorkerExited) -> WorkerExited:
        """Nobody told it to go: then its lease was over, and nobody is to blame."""
        status = event.status
        if status.told_to_stop and not self._told:
            status = replace(status, state=WorkerState.LOST, reason=CUT_OFF, exit_code=None)
        return WorkerExited(event.at_unix_s, status)

    async def _say_when_idle(self, event: WorkerExited) -> None:
        """A program that is gone may leave its GPUs busy for a moment."""
        gpus = [int(gpu) for gpu in _gpus_of_this_actor() if gpu.isdecimal()]
        end_s = time.monotonic() + _GPU_IDLE_WITHIN_S
        try:
            nvml = Nvml()
            while any(nvml.busy(gpu) for gpu in gpus) and time.monotonic() < end_s:
                await asyncio.sleep(0.1)
        except ArylError:
            pass
        self._say(self._judge(event))

    def _lost(self, why: str) -> None:
        status = self._status
        if status is None or status.state.ended:
            return
        now_s = time.time()
        self._say(
            WorkerExited(now_s, replace(status, state=WorkerState.EXITED, reason=why, ended_unix_s=now_s))
        )

    def _say(self, event: SupervisorEvent) -> None:
        if isinstance(event, WorkerExited):
            self._status = event.status
        self._events.append(event_to_json(event))  # type: ignore[arg-type]
        self._changed.set()

    def _start_supervisor(self, on_event: Any) -> SupervisorClient:
        folder = self._place.worker(self._key)
        make_private(folder)
        leash, self._leash = os.pipe()
        command = [sys.executable, "-P", "-m", "aryl.backends.supervisor", "--dir", str(folder)]
        command += ["--leash", str(leash), "--lease", str(self._place.lease)]
        command += ["--lease-lasts", repr(self._lease_s), "--linger", "86400"]
        # Detached, because Ray kills the children of an actor's process, and those of a killed supervisor
        # would live on.
        with (folder / LOG).open("ab") as log:
            done = subprocess.run(
                [*command, "--detach"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd="/",
                start_new_session=True,
                pass_fds=(leash,),
                check=False,
            )
        os.close(leash)
        if done.returncode:
            raise ArylError(f"the supervisor in {folder} can't be started: exit code {done.returncode}")
        return SupervisorClient.connect(folder, 1, on_event, start=False)


def _environment() -> dict[str, str]:
    """Workers can read their parent's environment, so it has no more than they have themselves."""
    found: Mapping[str, str] = os.environ
    environment = {name: found[name] for name in INHERITED if name in found}
    environment["PYTHONPATH"] = str(Path(aryl.__file__).parent.parent)
    return environment


def _gpus_of_this_actor() -> list[str]:
    import ray

    return [str(gpu) for gpu in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]
