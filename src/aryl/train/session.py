"""One worker's dealings with Aryl: when to save, when to leave, what to report.

The usual loop::

    from aryl import train

    start = train.load_latest(read)               # (step, state), or None at the very first start
    for step in range(first, total + 1):
        ...                                       # a step, ending in a collective
        train.report(step, total)
        if train.should_save(step, every_s=600):  # all workers say yes at the same step
            if train.rank() == 0:
                train.save(step, write)
            if train.leaving():
                train.exit_saved()

Outside of Aryl the same loop runs as it is: nobody gives notice and reports go nowhere.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from aryl.train.agreement import MARGIN_STEPS, Agreements, publish
from aryl.train.checkpoints import KEEP, Checkpoint, Checkpoints
from aryl.train.environment import Environment, read_environment
from aryl.train.notice import Notice
from aryl.train.reports import Reporter

EXIT_SAVED = 75

T = TypeVar("T")


class Session:
    """See the module. `checkpoint_dir` is where checkpoints go outside of Aryl."""

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        checkpoint_dir: Path = Path("checkpoint"),
        keep: int = KEEP,
        margin_steps: int = MARGIN_STEPS,
    ) -> None:
        """`keep` checkpoints are kept; for `margin_steps` see `aryl.train.agreement`."""
        self.environment = environment or read_environment()
        self.checkpoints = Checkpoints(self.environment.checkpoint_dir or checkpoint_dir, keep)
        self._margin_steps = margin_steps
        self._notice = Notice()
        self._notice.listen(self.environment.notice_signal)
        if self.environment.run_dir is not None:
            self._notice.look_back(self.environment.run_dir / f"notice-{self.environment.worker}")
        self._reporter = Reporter(self.environment)
        self._agreements = self._make_agreements()
        self._leaving = False
        self._timed = 0
        self._timed_since_s = time.monotonic()

    def _make_agreements(self) -> Agreements | None:
        place = self.environment
        if place.run_dir is None or place.size == 1:
            return None
        return Agreements(place.run_dir, self._era, place.rank, place.size)

    @property
    def _era(self) -> str:
        return f"{self.environment.attempt}-{self.environment.generation}"

    @property
    def noticed(self) -> bool:
        """Whether this worker itself has been told to leave."""
        return self._notice.given

    @property
    def leaving(self) -> bool:
        """Whether the program has to end after the save that `should_save` just asked for."""
        return self._leaving

    def should_save(self, step: int, *, every_s: float | None = None, every_steps: int | None = None) -> bool:
        """Whether to save the state after `step`, the same answer for all workers of the gang.

        True when Aryl wants the workers to leave, every `every_s` seconds, and at each multiple of
        `every_steps`. All workers must ask after the same steps with the same arguments, in lockstep. It
        looks for one or two files and waits for nobody.
        """
        # Each is asked each time: each keeps account of its own.
        due = [
            self._notice_due(step),
            every_s is not None and self._time_due(step, every_s),
            every_steps is not None and step % every_steps == 0,
        ]
        return any(due)

    def _notice_due(self, step: int) -> bool:
        if self._agreements is None:
            self._leaving = self._notice.given
            return self._leaving
        at = self._agreements.step("save-at")
        if at is None and self._notice.given:
            at = self._agreements.propose("save-at", step + self._margin_steps)
        self._leaving = at is not None and step >= at
        return self._leaving

    def _time_due(self, step: int, every_s: float) -> bool:
        now_s = time.monotonic()
        due = now_s - self._timed_since_s >= every_s
        if self._agreements is not None:
            # Clocks differ a little between workers: rank 0's counts.
            name = f"timed-{self._timed}"
            at = self._agreements.step(name)
            if at is None and due and self.environment.rank == 0:
                at = self._agreements.propose(name, step + self._margin_steps)
            due = at is not None and step >= at
        elif self.environment.size > 1:
            return False  # a gang without a shared folder can't agree on a time
        if due:
            self._timed += 1
            self._timed_since_s = now_s
        return due

    def save(self, step: int, write: Callable[[Path], object] | bytes) -> Checkpoint:
        """Save the state after `step` (see `Checkpoints.save`) and tell Aryl. One worker of the gang does it.

        Raises OSError if it can't be written, and whatever `write` raises.
        """
        saved = self.checkpoints.save(step, write)
        self.report(step, saved_step=step)
        return saved

    def load_latest(self, read: Callable[[Path], T]) -> tuple[int, T] | None:
        """The step of the newest checkpoint and what `read` makes of it; None if there is none."""
        latest = self.checkpoints.latest()
        return None if latest is None else (latest.step, read(latest.path))

    def report(
        self,
        step: int,
        total_steps: int | None = None,
        saved_step: int | None = None,
        *,
        workers: int | None = None,
        rank: int | None = None,
    ) -> bool:
        """Tell Aryl that `step` of `total_steps` is done; returns whether it was sent. Rank 0 speaks for all.

        `workers` and `rank` are for programs whose workers come and go; else they are the gang's. At most one
        a second is sent, save when something was saved or all is done. Never raises, never blocks.
        """
        place = self.environment
        return self._reporter.report(
            step,
            total_steps=total_steps,
            saved_step=saved_step,
            workers=workers,
            leader=(place.rank if rank is None else rank) == 0,
        )

    def exchange(self, value: Any, timeout_s: float | None = None) -> list[Any]:
        """Everybody's `value`, in order of rank: a small collective for programs that have none.

        Raises TimeoutError if a worker doesn't come within `timeout_s`; RuntimeError in a gang without a
        shared folder.
        """
        if self._agreements is None:
            if self.environment.size > 1:
                msg = "workers exchange values through ARYL_RUN_DIR, which isn't set"
                raise RuntimeError(msg)
            return [value]
        return self._agreements.exchange(value, timeout_s)

    def exit_saved(self) -> NoReturn:
        """End this worker: it has saved and wants to be started again later.

        Its exit status is 75. Under torchrun it is 0, since a worker that ends in any other way makes
        torchrun end the others at once, perhaps while one still saves; a file in the shared folder says what
        is meant.
        """
        self._reporter.close()
        place = self.environment
        if not place.torchelastic:
            _end(EXIT_SAVED)
        if place.run_dir is not None:
            publish(place.run_dir / f"saved-{self._era}", b"")
        _end(0)

    def finish(self) -> NoReturn:
        """End this worker, whose work is done. A PyTorch script does well to end with it: see `_end`."""
        self._reporter.close()
        _end(0)


def _end(code: int) -> NoReturn:
    """End the process. Where torch is loaded, what was registered for the exit still runs, but its libraries
    are not torn down: with gloo that aborts now and then although all is done (2 of 66 workers, torch 2.13),
    and would make a failure of a success.
    """
    if "torch" not in sys.modules:
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
