"""The crew on Ray: an actor for each worker, on the server that was chosen for it.

All that waits for Ray happens in one event loop, in a thread of its own; what is heard is handed on from
another thread, one event after the other. What is known of workers is in a file of the state folder, written
before it is told: it outlives their actors, whose GPUs Ray gets back as soon as they are done.

When a worker can't be reached, or ended badly, nothing is concluded before it is known how the servers of its
gang are. A server that is cut off takes its workers with it: they are *lost*, and nobody is blamed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from aryl.backends.gangs.crew import CrewEvent, OnEvent, ServerCame, ServerWent
from aryl.backends.ray.connection import RayAddress, connect, in_thread
from aryl.backends.ray.hands import Hand
from aryl.backends.ray.places import worker_key
from aryl.backends.ray.servers import Here, Servers, Settings
from aryl.backends.ray.starts import Starts
from aryl.backends.ray.watch import Watch
from aryl.backends.supervisor.protocol import (
    StopSchedule,
    SupervisorGone,
    WorkerExited,
    WorkerKey,
    WorkerSpec,
    WorkerState,
    WorkerStatus,
)
from aryl.backends.supervisor.records import Record, Records
from aryl.errors import ArylError, FencedError, UnreachableError

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
# The registry can't be asked for so long: perhaps the cluster is another one by now.
ANEW_AFTER_S = 20.0
ANSWER_WITHIN_S = 60.0


class RayCrew:
    """Implements `Crew`. Made by `take_over`."""

    report_socket = ""  # each worker has one of its own

    def __init__(self, servers: Servers, records: Records, on_event: OnEvent) -> None:
        self.servers, self.records = servers, records
        self.hands: dict[WorkerKey, Hand] = {
            key: Hand(record.status) for key, record in records.kept.items() if not record.status.state.ended
        }
        self._told_gone: dict[str, str] = {}  # by server, the incarnation that was told to be gone
        self.gone = ""  # why nothing gets through any more
        self._fenced = False
        self._on_event = on_event
        self._events: queue.SimpleQueue[CrewEvent | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._starts, self._watch = Starts(self), Watch(self)
        self._looking: asyncio.Task[None] | None = None
        self._threads = (
            threading.Thread(target=self._run, name="ray-crew", daemon=True),
            threading.Thread(target=self._dispatch, name="ray-crew-events", daemon=True),
        )

    @classmethod
    def take_over(
        cls, where: RayAddress, settings: Settings, state: Path, fence: int, on_event: OnEvent
    ) -> RayCrew:
        """Connect, and be the one that leads. `state` is a folder of its own. Raises FencedError,
        ArylError.
        """
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(settings.shared).touch()
        ray = connect(where)
        servers = Servers(ray, settings, fence)
        crew = cls(servers, Records(state), on_event)
        for thread in crew._threads:
            thread.start()
        try:
            crew._do(servers.open())
        except BaseException:
            crew.close()
            raise
        crew._loop.call_soon_threadsafe(crew._begin_looking)
        return crew

    # What the backend asks for.

    @property
    def connected(self) -> bool:
        """Whether orders can get through, as far as is known."""
        return not self.gone

    def start(self, specs: Sequence[WorkerSpec], *, wait: bool = True) -> None:
        """Start workers, all of one gang start. A refusal comes as an event."""
        self._check()
        new = list(specs)
        if wait:
            self._do(self._starts.begin(new))
        else:
            self._later(lambda: self._loop.create_task(self._starts.begin(new)))

    def stop(self, keys: Sequence[WorkerKey], schedule: StopSchedule) -> None:
        """Let workers leave. It is said again until it is heard."""
        self._check()
        which, sent_unix_s = list(keys), time.time()
        self._later(lambda: self._watch.stop(which, schedule, sent_unix_s))

    def list(self) -> Sequence[WorkerStatus]:
        """All workers that live, and those that have ended and aren't forgotten."""
        self._check()
        return self._do(self._list())

    def forget(self, job_id: str, attempt: int, *, wait: bool = True) -> None:
        """Drop what has ended of an attempt."""
        self._check()
        self._later(lambda: self._forget(job_id, attempt))

    def close(self) -> None:
        """Let go. Nothing that runs is touched."""
        self.gone = self.gone or "the crew was let go"
        if self._loop.is_running():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result(5.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._events.put(None)
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(5.0)
        with contextlib.suppress(OSError):
            self.records.close()

    def free_port(self, server_id: str | None) -> int:
        """A port that nobody listens on there. Raises ArylError."""
        self._check()
        return self._do(self._free_port(server_id))

    def address(self, server_id: str | None) -> str:
        """Where a server is reached; None: the head."""
        if server_id is None:
            return self.servers.head_address
        here = self.servers.here.get(server_id)
        return "" if here is None else here.address

    @property
    def doubtful(self) -> frozenset[str]:
        """Servers that aren't here, and on which workers may run all the same."""
        servers = {hand.status.server_id for hand in self.hands.values() if not hand.ended}
        return frozenset(servers - self.servers.here.keys() - {""})

    # What the parts of the crew use, in the loop.

    def tell(self, event: CrewEvent) -> None:
        """Hand on an event."""
        self._events.put(event)

    def keep(self, hand: Hand) -> None:
        """Write down what is known of a worker, before anybody is told."""
        self.records.put(Record(hand.status))
        if not self.records.commit():
            _log.error("the records of workers can't be written; is the disk full?")

    def drop(self, hand: Hand) -> None:
        """Nothing was ever started of a worker."""
        self.hands.pop(hand.key, None)
        self.records.drop(hand.key)
        self.records.commit()

    def ended(self, hand: Hand) -> None:
        """A worker is gone: tell, and give its GPUs back to Ray."""
        self.keep(hand)
        self.hands.pop(hand.key, None)
        self.tell(WorkerExited(hand.status.ended_unix_s or time.time(), hand.status))
        self.kill(hand)

    def watch(self, hand: Hand) -> None:
        """Watch a worker until it has ended."""
        self._watch.begin(hand)

    def kill(self, hand: Hand) -> None:
        """End the actor of a worker."""
        actor, hand.actor = hand.actor, None
        if actor is not None:
            in_thread(self._kill, actor)

    def lost(self, server_id: str, node: str) -> None:
        """All that ran on an incarnation of a server is gone."""
        here = self.servers.here.get(server_id)
        if here is not None and here.node == node:
            del self.servers.here[server_id]
            here = None
        if self._told_gone.get(server_id) != node:
            self._told_gone[server_id] = node
            self.tell(ServerWent(time.time(), server_id))
        for hand in tuple(self.hands.values()):
            if hand.status.server_id == server_id and hand.node == node and not hand.ended:
                hand.end(time.time(), WorkerState.LOST, "its server was lost")
                self.ended(hand)
        if here is not None:
            self.tell(ServerCame(time.time(), here.spec))

    def over(self, why: str, *, fenced: bool = False) -> None:
        """Nothing gets through any more; the backend has to open anew, or to end."""
        if not self.gone:
            self.gone, self._fenced = why, fenced
            self.tell(SupervisorGone(time.time(), fenced))

    # The inside.

    def _check(self) -> None:
        if self._fenced:
            raise FencedError("another daemon has taken over")
        if self.gone:
            raise ArylError(self.gone)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(ANSWER_WITHIN_S)
        except TimeoutError:
            future.cancel()
            raise UnreachableError("the Ray cluster doesn't answer") from None

    def _later(self, work: Any) -> None:
        self._loop.call_soon_threadsafe(work)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _begin_looking(self) -> None:
        self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        """Look around again and again, and keep an eye on who can't be reached."""
        epoch, heard_s = self.servers.epoch, time.monotonic()
        while not self.gone:
            try:
                await self.servers.look(self._came, self._went)
                heard_s = time.monotonic()
            except FencedError as error:
                self.over(str(error), fenced=True)
            except Exception as error:
                silent_s = time.monotonic() - heard_s
                _log.log(
                    logging.WARNING if silent_s > ANEW_AFTER_S / 4 else logging.DEBUG,
                    "the head of the Ray cluster can't be asked: %r",
                    error,
                )
                if silent_s > ANEW_AFTER_S:
                    self.over("the head of the Ray cluster can't be reached")
            if self.servers.epoch != epoch:
                self.over("the head of the Ray cluster has started anew")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _came(self, here: Here) -> None:
        self._told_gone.pop(here.spec.server_id, None)
        self.tell(ServerCame(time.time(), here.spec))

    async def _went(self, here: Here) -> None:
        self.lost(here.spec.server_id, here.node)

    async def _list(self) -> Sequence[WorkerStatus]:
        await asyncio.gather(*(self._watch.find(hand) for hand in tuple(self.hands.values())))
        await asyncio.gather(*(self._watch.find_stranger(key) for key in await self._strangers()))
        living = [hand.status for hand in self.hands.values()]
        ended = [record.status for record in self.records.kept.values() if record.status.state.ended]
        return [*living, *ended]

    async def _strangers(self) -> Iterable[WorkerKey]:
        """Workers whose actors are there and that nobody has written down."""
        from ray.util import list_named_actors

        try:
            names = await self.servers.run(list_named_actors)
        except Exception as error:
            _log.warning("the actors can't be listed: %r", error)
            return ()
        keys = [worker_key(name) for name in names]
        return [key for key in keys if key is not None and key not in self.records.kept]

    def _forget(self, job_id: str, attempt: int) -> None:
        for key in tuple(self.records.kept):
            if (key.job_id, key.attempt) == (job_id, attempt) and key not in self.hands:
                self.records.drop(key)
        self.records.commit()

    async def _free_port(self, server_id: str | None) -> int:
        keeper = self.servers.registry if server_id is None else self.servers.keeper(server_id)
        if keeper is None:
            raise ArylError(f"server {server_id} isn't there")
        try:
            return int(await self.servers.ask(keeper.free_port))
        except Exception as error:
            where = "the head" if server_id is None else f"server {server_id}"
            raise ArylError(f"{where} can't be asked for a port: {error!r}") from None

    def _kill(self, actor: Any) -> None:
        try:
            self.servers.ray.kill(actor, no_restart=True)
        except Exception as error:
            _log.warning("an actor can't be ended: %r", error)

    async def _end_tasks(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dispatch(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._on_event(event)
            except Exception:
                _log.exception("an event of the crew could not be handled")
