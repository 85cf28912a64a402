"""Workers that join and leave while the others go on: a thin layer over torchft.

Each worker is a replica group of one. Before every step the workers that are there agree on who takes part (a
quorum, kept by the lighthouse that Aryl starts beside the job); a newcomer copies the state of one that is up
to date; a step whose gradients could not be averaged is committed by nobody and done again. The number of a
step is that of steps committed, so none is lost and none is done twice.

How long the others wait:

* for a newcomer: as long as it takes to connect and to copy the state;
* for a worker that is gone, killed or not: until the lighthouse misses its heartbeats. They come every 50 ms,
  and the lighthouse that `aryl.train.lighthouse` starts misses them after 500 ms;
* for one that hangs but still sends heartbeats: `timeout_s` in the middle of a step, the lighthouse's join
  timeout between two.

torch and torchft are imported only when a `Replica` is made.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from aryl.train.environment import Environment, read_environment

if TYPE_CHECKING:
    import torch

HEARTBEAT_S = 0.05
LINGER_S = 0.3  # a leaver's connections stay so long, so that the others surely finish its last step

State = dict[str, Any]


class Replica:
    """One worker of an elastic PyTorch job.

    `state` returns all that a newcomer needs (model, optimizer, whatever else), `load_state` takes it over.
    Make it right before the training loop, when everything slow has been done: from then on the others count
    on it.

    A step is::

        replica.begin()                    # who takes part? a newcomer has its state after this
        loss(model(batch(replica.first_batch + replica.rank))).backward()
        replica.average(model.parameters())
        if replica.commit():               # False: somebody was lost, the step is done again
            optimizer.step()

    Where there is no lighthouse (TORCHFT_LIGHTHOUSE unset) it starts one of its own, so that a script runs by
    itself as a single worker.
    """

    def __init__(
        self,
        state: Callable[[], State],
        load_state: Callable[[State], None],
        *,
        step: int = 0,
        batches: int = 0,
        min_workers: int = 1,
        timeout_s: float = 30.0,
        quorum_timeout_s: float = 60.0,
        process_group: Any = None,
        environment: Environment | None = None,
    ) -> None:
        """`step` and `batches` are where a checkpoint left off. `quorum_timeout_s` has to be longer than the
        lighthouse's join timeout. `process_group` is torchft's, by default NCCL where there is a GPU and Gloo
        where there is none.
        """
        os.environ.setdefault("RUST_LOG", "error")  # by default torchft writes several lines a step

        import torch

        distributed: Any = import_module("torch.distributed")
        torchft: Any = import_module("torchft")  # neither says what its types are

        place = environment or read_environment()
        self._own_lighthouse: Any = None
        lighthouse = os.environ.get("TORCHFT_LIGHTHOUSE", "")
        if not lighthouse:
            from aryl.train.lighthouse import start_lighthouse

            self._own_lighthouse, lighthouse = start_lighthouse()
        here = _address_towards(lighthouse)
        timeout = timedelta(seconds=timeout_s)
        self._store: Any = distributed.TCPStore(here, 0, is_master=True, wait_for_workers=False)
        if process_group is None:
            gpus = torch.cuda.is_available()
            process_group = (torchft.ProcessGroupNCCL if gpus else torchft.ProcessGroupGloo)(timeout=timeout)
        self._process_group: Any = process_group
        self._manager: Any = torchft.Manager(
            pg=self._process_group,
            load_state_dict=load_state,
            state_dict=state,
            min_replica_size=min_workers,
            # The quorum is awaited before the forward pass: a newcomer then takes part in its first step, and
            # who takes part is known when the batches are chosen.
            use_async_quorum=False,
            timeout=timeout,
            quorum_timeout=timedelta(seconds=quorum_timeout_s),
            connect_timeout=timedelta(seconds=10),
            rank=0,
            world_size=1,
            store_addr=here,
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"{os.environ.get('REPLICA_GROUP_ID') or place.worker}",
            hostname=here,
            heartbeat_interval=timedelta(seconds=HEARTBEAT_S),
            # A lighthouse that was started anew counts quorums from one again, and workers that still have
            # their connections from one of the same number never come together. So nobody looks for it again.
            quorum_retries=0,
        )
        if step:
            self._manager.load_state_dict({"step": step, "batches_committed": batches})

    @property
    def step(self) -> int:
        """Steps committed so far, by all workers together."""
        step: int = self._manager.current_step()
        return step

    @property
    def first_batch(self) -> int:
        """The number of the first batch of this step: batches committed so far. Those of the step are this
        one and the `size - 1` after it.
        """
        batches: int = self._manager.batches_committed()
        return batches

    @property
    def rank(self) -> int:
        """This worker's place among those of the step, from 0."""
        rank: int | None = self._manager.participating_rank()
        return rank or 0

    @property
    def size(self) -> int:
        """How many workers take part in the step."""
        size: int = self._manager.num_participants()
        return size

    def begin(self) -> None:
        """Agree on who takes part in the next step.

        Raises TimeoutError if that doesn't come about in `quorum_timeout_s`, most likely as the lighthouse is
        gone. The state is that after `step` then: save it and end.
        """
        self._manager.start_quorum()

    def average(self, parameters: Iterable[torch.Tensor]) -> None:
        """Average the gradients of `parameters` over the workers of the step; an error is kept for
        `commit`.
        """
        import torch

        gradients: list[torch.Tensor] = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        # One message for each type of number: a message for each tensor costs a round trip each.
        for kind in {gradient.dtype for gradient in gradients}:
            alike = [gradient for gradient in gradients if gradient.dtype == kind]
            flat = torch.cat([gradient.reshape(-1) for gradient in alike])
            self._manager.allreduce(flat).wait()
            for gradient, part in zip(alike, torch.split(flat, [g.numel() for g in alike]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def commit(self) -> bool:
        """Whether the step counts. False: leave the model as it is and begin the step again."""
        counts: bool = self._manager.should_commit()
        return counts

    def leave(self) -> None:
        """Leave between two steps; the others go on without this worker. Safe to call twice."""
        if self._store is None:
            return
        # Heartbeats stop first, so that the others stop waiting soonest; the connections stay a moment
        # longer, as one that closes while another worker still reads from it would cost that worker the step.
        self._manager.shutdown(wait=False)
        time.sleep(LINGER_S)
        self._process_group.abort(errored=False)
        self._store = None
        if self._own_lighthouse is not None:
            self._own_lighthouse.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def _address_towards(url: str) -> str:
    """This machine's address on the way to another one: what others reach it by, whatever names resolve to
    there. Nothing is sent.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
