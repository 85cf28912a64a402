"""The simulator, as the daemon asks it. The live side doesn't import it, so the two meet here.

Looking ahead takes seconds of computing. It is done in processes of its own: in a thread it would compete
with the loop for the interpreter. They end with the daemon, however that ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from aryl.core.cluster import Cluster
from aryl.core.model import JobSpec
from aryl.errors import UnreachableError
from aryl.policies.policy import Policy
from aryl.sim.snapshot import snapshot
from aryl.sim.whatif import WhatIf
from aryl.wire.views import DryRunView, WhatIfOutcome

PROCESSES = 2
_PR_SET_PDEATHSIG = 1


class LookAhead:
    """Implements `Foresight`."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def snapshot(self, cluster: Cluster) -> bytes:
        """The state as it is now."""
        return snapshot(cluster)

    def dry_run(self, blob: bytes, policy: Policy, spec: JobSpec) -> DryRunView:
        """Whether and when a job would start."""
        try:
            return self._processes().submit(WhatIf().dry_run, blob, policy, spec).result()
        except BrokenProcessPool:
            raise self._broken() from None

    def compare(self, blob: bytes, policies: Sequence[str]) -> list[WhatIfOutcome]:
        """What each policy would do from here on."""
        try:
            return self._processes().submit(WhatIf().compare, blob, list(policies)).result()
        except BrokenProcessPool:
            raise self._broken() from None

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_depend_on_parent)
        return self._pool

    def _broken(self) -> UnreachableError:
        self._pool = None
        return UnreachableError("the process that looks ahead has ended; try again")


def _depend_on_parent() -> None:
    """End when the daemon does, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
