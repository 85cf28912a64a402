"""What a job says of its progress: small datagrams to a socket of Aryl's on the same server.

From them the scheduler learns how long the job will still run and how its speed grows with its workers.
Telling is never worth a step: sending doesn't block, and what can't be sent is dropped.
"""

from __future__ import annotations

import json
import socket
import time

from aryl.train.environment import Environment

EVERY_S = 1.0


class Reporter:
    """Sends reports, at most one in `every_s` unless one says that a step was saved or the last one done.

    `steps_per_s` is the mean since the first report at the present number of workers, so a number that mixes
    two sizes is never sent; 0 says that it isn't known yet.
    """

    def __init__(self, place: Environment, every_s: float = EVERY_S) -> None:
        self._place = place
        self._every_s = every_s
        self._socket: socket.socket | None = None
        self._sent_s: float | None = None
        self._workers = 0
        self._since_step = 0
        self._since_s = 0.0

    def report(
        self, step: int, *, total_steps: int | None, saved_step: int | None, workers: int | None, leader: bool
    ) -> bool:
        """Tell that `step` is done; returns whether it was sent. Only the `leader` tells of steps; whoever
        saves tells of that. Never raises, never blocks.
        """
        now_s = time.monotonic()
        workers = workers or self._workers or self._place.size
        if workers != self._workers or step < self._since_step:
            self._workers, self._since_step, self._since_s = workers, step, now_s
        if not self._place.report_socket or not (leader or saved_step is not None):
            return False
        forced = saved_step is not None or (total_steps is not None and step >= total_steps)
        if not forced and self._sent_s is not None and now_s - self._sent_s < self._every_s:
            return False
        said: dict[str, float] = {"step": step, "workers": workers}
        if total_steps is not None:
            said["total_steps"] = total_steps
        if saved_step is not None:
            said["saved_step"] = saved_step
        # What is left out of a message stands as it was said before, but that may have been at another size.
        steps, seconds = step - self._since_step, now_s - self._since_s
        said["steps_per_s"] = steps / seconds if steps and seconds > 0 else 0.0
        self._sent_s = now_s
        return self._send(said)

    def _send(self, said: dict[str, float]) -> bool:
        place = self._place
        message = {"job": place.job_id, "attempt": place.attempt, "rank": place.worker, "report": said}
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(json.dumps(message).encode(), place.report_socket)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
