"""What becomes of workers that were started: heard from their actors, or concluded from their servers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aryl.backends.ray.hands import NODE, Hand
from aryl.backends.ray.places import worker_name
from aryl.backends.ray.worker import WATCH_FOR_S
from aryl.backends.supervisor.protocol import (
    Json,
    StopSchedule,
    WorkerExited,
    WorkerKey,
    WorkerStarted,
    WorkerState,
    WorkerStatus,
    schedule_to_json,
)
from aryl.backends.supervisor.status import event_from_json, status_from_json
from aryl.errors import FencedError

if TYPE_CHECKING:
    from aryl.backends.ray.crew import RayCrew

_log = logging.getLogger(__name__)

_AGAIN_S = 0.3
_FIND_WITHIN_S = 5.0
_SWEEP_WITHIN_S = 60.0
_HEAD = "head"


class Watch:
    """The watches of one crew."""

    def __init__(self, crew: RayCrew) -> None:
        self._crew = crew

    def begin(self, hand: Hand) -> None:
        """Watch a worker until it has ended."""
        if hand.task is None and not hand.ended:
            hand.task = asyncio.get_running_loop().create_task(self._follow(hand))
            if hand.stop is not None:
                self._tell_to_stop(hand)

    def stop(self, keys: Sequence[WorkerKey], schedule: StopSchedule, sent_unix_s: float) -> None:
        """Let workers leave; those that don't run yet never will."""
        for key in keys:
            hand = self._crew.hands.get(key)
            if hand is not None and not hand.ended:
                hand.stop, hand.sent_unix_s = schedule, sent_unix_s
                if hand.task is not None:
                    self._tell_to_stop(hand)

    async def find(self, hand: Hand) -> None:
        """Bring what was written down of a worker to what its actor says, and watch it from there on."""
        crew = self._crew
        try:
            actor = await crew.servers.run(self._actor, hand.key)
        except ValueError:
            await self._without_actor(hand)
            return
        except Exception as error:
            _log.warning("worker %s can't be looked for: %r", hand.key.text, error)
            self.begin(hand)
            return
        hand.actor = actor
        try:
            seen, status = await crew.servers.ask(actor.status, crew.servers.fence, within_s=_FIND_WITHIN_S)
        except FencedError:
            crew.over("another daemon has taken over", fenced=True)
            return
        except Exception:  # in doubt: the watch finds out
            self.begin(hand)
            return
        if status is None:
            crew.kill(hand)
            crew.drop(hand)
            await self._until_gone(hand.key)
            return
        hand.seen, hand.started = seen, True
        hand.take(status_from_json(status))
        if hand.ended:
            crew.keep(hand)
            crew.hands.pop(hand.key, None)
            crew.kill(hand)
        else:
            self.begin(hand)

    async def find_stranger(self, key: WorkerKey) -> None:
        """Take in a worker that nobody has written down."""
        status = WorkerStatus(key, "", (), {NODE: _HEAD}, "", WorkerState.STARTING)
        hand = self._crew.hands[key] = Hand(status)
        await self.find(hand)

    # The inside.

    async def _until_gone(self, key: WorkerKey) -> None:
        """Wait until an actor that is being ended has given back its name: it may be needed again at once."""
        end_s = time.monotonic() + _FIND_WITHIN_S
        while time.monotonic() < end_s:
            try:
                await self._crew.servers.run(self._actor, key)
            except ValueError:
                return
            except Exception as error:
                _log.debug("worker %s can't be looked for: %r", key.text, error)
            await asyncio.sleep(_AGAIN_S / 10)

    async def _follow(self, hand: Hand) -> None:
        crew = self._crew
        while not hand.ended and not crew.gone:
            try:
                actor = hand.actor
                if actor is None:
                    actor = hand.actor = await crew.servers.run(self._actor, hand.key)
                events = await crew.servers.ask(
                    actor.watch, crew.servers.fence, hand.seen, within_s=WATCH_FOR_S + 10.0
                )
            except FencedError as error:
                crew.over(str(error), fenced=True)
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                await self._doubt(hand, error)
                continue
            for event in events:
                hand.seen += 1
                await self._hear(hand, event)

    async def _hear(self, hand: Hand, got: Json) -> None:
        crew, event = self._crew, event_from_json(got)
        if hand.ended:
            return
        if isinstance(event, WorkerStarted):
            hand.take(event.status)
            crew.keep(hand)
            crew.tell(WorkerStarted(event.at_unix_s, hand.status))
        elif isinstance(event, WorkerExited):
            if event.status.state is WorkerState.LOST:
                crew.lost(hand.status.server_id, hand.node)
                return
            blameless = event.status.exit_code in (0, 75) or event.status.told_to_stop
            if not blameless and not await self._all_well(hand):
                if not hand.ended:
                    hand.end(time.time(), WorkerState.LOST, "a server of its gang was lost")
                    crew.ended(hand)
                return
            if not hand.ended:
                hand.take(event.status)
                crew.ended(hand)
        else:
            crew.tell(event)

    async def _all_well(self, hand: Hand) -> bool:
        """Whether all servers of a worker's gang are well, once that is known: one whose peers are cut off
        ends badly, and it isn't to blame.
        """
        crew = self._crew
        key = hand.key
        servers = {
            one.status.server_id: one.node
            for one in crew.hands.values()
            if (one.key.job_id, one.key.attempt) == (key.job_id, key.attempt) and one.status.server_id
        }
        while servers and not crew.gone:
            asked = tuple(servers.items())
            answers = await asyncio.gather(*(self._is_well(*one) for one in asked))
            if not any(answer is False for answer in answers) and all(answers):
                return True
            if any(crew.servers.certainly_gone(*one) for one in asked):
                return False
            await asyncio.sleep(_AGAIN_S)
        return True

    async def _is_well(self, server_id: str, node: str) -> bool:
        here = self._crew.servers.here.get(server_id)
        return here is not None and here.node == node and await self._crew.servers.well(server_id)

    async def _doubt(self, hand: Hand, error: Exception) -> None:
        """A worker can't be reached. Its server decides: it is gone, or it answers and the worker is gone."""
        crew = self._crew
        if crew.gone or hand.ended:
            return
        if not hand.status.server_id:
            if _is_dead(error):
                hand.end(time.time(), WorkerState.EXITED, "its actor died")
                crew.ended(hand)
            await asyncio.sleep(_AGAIN_S)
            return
        if crew.servers.certainly_gone(hand.status.server_id, hand.node):
            crew.lost(hand.status.server_id, hand.node)
            return
        if _is_dead(error) and await self._is_well(hand.status.server_id, hand.node):
            await self._swept(hand, _cause(error))
            return
        await asyncio.sleep(_AGAIN_S)

    async def _without_actor(self, hand: Hand) -> None:
        """Its actor was never made, or is gone."""
        crew = self._crew
        server_id = hand.status.server_id
        if not server_id:
            hand.end(time.time(), WorkerState.EXITED, "its actor died")
        elif crew.servers.certainly_gone(server_id, hand.node):
            hand.end(time.time(), WorkerState.LOST, "its server was lost")
        elif hand.status.state is WorkerState.STARTING and await self._is_well(server_id, hand.node):
            crew.drop(hand)
            return
        else:
            self.begin(hand)
            return
        crew.keep(hand)
        crew.hands.pop(hand.key, None)

    async def _swept(self, hand: Hand, why: str) -> None:
        """End a worker whose actor is gone, once nothing of it is left."""
        crew = self._crew
        keeper = crew.servers.keeper(hand.status.server_id)
        if keeper is None:
            return
        try:
            await crew.servers.ask(keeper.sweep, hand.key, within_s=_SWEEP_WITHIN_S)
        except Exception as error:
            _log.warning("worker %s can't be swept: %r", hand.key.text, error)
            await asyncio.sleep(_AGAIN_S)
            return
        if not hand.ended:
            hand.end(time.time(), WorkerState.EXITED, why)
            crew.ended(hand)

    def _tell_to_stop(self, hand: Hand) -> None:
        asyncio.get_running_loop().create_task(self._say_stop(hand))

    async def _say_stop(self, hand: Hand) -> None:
        crew, said = self._crew, hand.stop
        while not hand.ended and not crew.gone and said is not None and hand.stop is said:
            actor, sent_unix_s, schedule = hand.actor, hand.sent_unix_s, schedule_to_json(said)
            try:
                if actor is not None:
                    await crew.servers.ask(actor.stop, crew.servers.fence, schedule, sent_unix_s)
                    return
            except FencedError as error:
                crew.over(str(error), fenced=True)
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                _log.debug("worker %s can't be told to leave: %r", hand.key.text, error)
            await asyncio.sleep(_AGAIN_S)

    def _actor(self, key: WorkerKey) -> Any:
        servers = self._crew.servers
        return servers.ray.get_actor(worker_name(key), namespace=servers.settings.namespace)


def _is_dead(error: Exception) -> bool:
    """Whether an actor is gone for good, and not only out of reach."""
    from ray.exceptions import ActorDiedError

    return isinstance(error, ActorDiedError | ValueError)  # ValueError: there is no such actor any more


def _cause(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"lost its actor ({said[:200]})" if said else "lost its actor"
