"""How the workers of a gang start begin: all actors first, then, when each has its GPUs, all programs.

An actor that Ray can't place in time is a refusal of the whole start, unless its server is in doubt: then the
others begin, and what becomes of that one is known when it is known what became of its server.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import aryl
from aryl.backends.ray.hands import Hand, with_real_gpus
from aryl.backends.ray.places import HEAD_RESOURCE, Place, worker_name
from aryl.backends.ray.worker import RayWorker
from aryl.backends.supervisor.protocol import StartRefused, WorkerSpec, WorkerState, spec_to_json
from aryl.errors import FencedError

if TYPE_CHECKING:
    from aryl.backends.ray.crew import RayCrew

_log = logging.getLogger(__name__)

START_WITHIN_S = 60.0
_HEAD = "head"


class Starts:
    """The starts of one crew."""

    def __init__(self, crew: RayCrew) -> None:
        self._crew = crew
        self._class: Any = None

    async def begin(self, specs: Sequence[WorkerSpec]) -> None:
        """Start workers that aren't known yet."""
        crew = self._crew
        new = [spec for spec in specs if spec.key not in crew.hands and spec.key not in crew.records.kept]
        hands = []
        for spec in new:
            here = crew.servers.here.get(spec.server_id)
            hand = Hand.of(spec, _HEAD if not spec.server_id else here.node if here is not None else "")
            crew.hands[spec.key] = hand
            crew.keep(hand)
            hands.append(hand)
        if not hands:
            return
        answers = await asyncio.gather(
            *(self._place(hand, len(spec.gpus)) for hand, spec in zip(hands, new, strict=True)),
            return_exceptions=True,
        )
        wrong = [answer for answer in answers if isinstance(answer, BaseException)]
        if any(isinstance(each, FencedError) for each in wrong):
            crew.over("another daemon has taken over", fenced=True)
            return
        if wrong and not await self._in_doubt(hands, answers):
            self._refuse(hands, wrong[0])
            return
        given = [[] if isinstance(answer, BaseException) else answer for answer in answers]
        real = with_real_gpus(new, given)
        await asyncio.gather(
            *(
                self._go(hand, spec)
                for hand, spec, answer in zip(hands, real, answers, strict=True)
                if not isinstance(answer, BaseException)
            )
        )
        for hand, answer in zip(hands, answers, strict=True):
            if isinstance(answer, BaseException):
                crew.watch(hand)

    async def _place(self, hand: Hand, gpus: int) -> list[str]:
        """Make the actor. Returns the GPUs that Ray has given to it."""
        servers = self._crew.servers
        hand.actor = await servers.run(self._make, hand, gpus)
        got = await servers.ask(hand.actor.hello, servers.fence, within_s=START_WITHIN_S)
        if got["version"] != aryl.__version__:
            raise RuntimeError(f"the actor has Aryl {got['version']}, the control plane {aryl.__version__}")
        return [str(gpu) for gpu in got["gpus"]]

    async def _go(self, hand: Hand, spec: WorkerSpec) -> None:
        """Let the program begin, unless it is to leave already or was lost meanwhile."""
        crew = self._crew
        if hand.ended:
            return
        if hand.stop is not None:
            reason = "stopped before it was started"
            hand.end(time.time(), WorkerState.EXITED, reason, signal=int(signal.SIGTERM))
            crew.ended(hand)
            return
        hand.started = True
        try:
            servers = crew.servers
            await servers.ask(hand.actor.start, servers.fence, spec_to_json(spec), within_s=START_WITHIN_S)
        except FencedError:
            crew.over("another daemon has taken over", fenced=True)
            return
        except Exception as error:  # whatever Ray raises: the watch finds out what became of it
            _log.warning("worker %s can't be told to start: %r", hand.key.text, error)
        crew.watch(hand)

    async def _in_doubt(self, hands: Sequence[Hand], answers: Sequence[object]) -> bool:
        """Whether each worker that has no actor was to be on a server that doesn't answer."""
        servers = self._crew.servers
        for hand, answer in zip(hands, answers, strict=True):
            if isinstance(answer, BaseException) and not hand.ended:
                server_id = hand.status.server_id
                if not server_id or await servers.well(server_id):
                    return False
        return True

    def _refuse(self, hands: Sequence[Hand], error: BaseException) -> None:
        crew = self._crew
        for hand in hands:
            crew.kill(hand)
            crew.drop(hand)
        where = ", ".join(dict.fromkeys(hand.status.server_id or _HEAD for hand in hands))
        reason = f"Ray doesn't start the workers on {where}: {_said(error)}"
        crew.tell(StartRefused(time.time(), tuple(hand.key for hand in hands), reason))

    def _make(self, hand: Hand, gpus: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        servers = self._crew.servers
        ray, settings = servers.ray, servers.settings
        options: dict[str, Any] = {
            "name": worker_name(hand.key),
            "namespace": settings.namespace,
            "lifetime": "detached",
            "get_if_exists": True,
            "num_cpus": 0,
            "max_restarts": 0,
        }
        lease_s = settings.lease_s
        if hand.node == _HEAD:
            options["resources"], lease_s = {HEAD_RESOURCE: 0.001}, float("inf")
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(hand.node, soft=False)
            if settings.gpu_resource == "GPU":
                options["num_gpus"] = gpus
            else:
                options["resources"] = {settings.gpu_resource: gpus}
        self._class = self._class or ray.remote(RayWorker)
        place = Place(settings.installation, hand.status.server_id or _HEAD, hand.node)
        return self._class.options(**options).remote(
            place, hand.key, lease_s, servers.registry, real_gpus=settings.real_gpus
        )


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"not all have their GPUs after {START_WITHIN_S:g} s; something else may hold them"
    return (str(error).strip().splitlines() or [repr(error)])[0]
