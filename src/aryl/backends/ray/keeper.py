"""The actor that keeps one incarnation of a server. It holds no GPU and no CPU.

Before it asks for the first leave it ends whatever an earlier incarnation of the server left on this machine,
and sees whether the shared folder is there. Then it renews the lease for as long as it lives; where it can't,
the supervisors of the workers see the lease run out and end them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import aryl
from aryl.backends.ray.places import Place
from aryl.backends.supervisor.client import SupervisorClient
from aryl.backends.supervisor.leash import Lease, since_boot_s
from aryl.backends.supervisor.places import make_private
from aryl.backends.supervisor.protocol import WorkerKey
from aryl.backends.supervisor.tree import boot_id
from aryl.errors import ArylError

_log = logging.getLogger(__name__)

# Renewals in the time that one lease lasts.
RENEWALS = 6
_HIGHEST_FENCE = 2**62


class Keeper:
    """See the module. `shared` is a file of the control plane that has to be visible here; `facts` are what
    the registry tells of the server.
    """

    def __init__(
        self, place: Place, lease_s: float, registry: Any, shared: str, facts: dict[str, Any]
    ) -> None:
        self._place, self._lease_s, self._registry = place, lease_s, registry
        self._shared, self._facts = Path(shared), dict(facts)
        self._facts["version"] = aryl.__version__
        self._facts["wrong"] = ""
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    async def sweep(self, key: WorkerKey) -> None:
        """Return when nothing is left of a worker whose actor is gone."""
        await asyncio.to_thread(_clear, self._place.worker(key))

    async def well(self) -> bool:
        """Whether it answers."""
        return True

    async def free_port(self) -> int:
        """A port that nobody listens on here."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    def _keep(self) -> None:
        import ray

        self._clear_the_past()
        lease = Lease(self._place.lease, self._lease_s)
        while True:
            asked_s = since_boot_s()
            self._facts["wrong"] = self._what_is_wrong()
            question = self._registry.renew.remote(
                self._place.server_id, self._place.node, machine(), self._facts
            )
            try:
                if ray.get(question, timeout=self._lease_s / 2):
                    lease.write(asked_s)
            except Exception as error:  # whatever it is, there is no leave; the next question may go better
                _log.warning("no leave to go on: %s", error)
            time.sleep(max(0.05, self._lease_s / RENEWALS - (since_boot_s() - asked_s)))

    def _clear_the_past(self) -> None:
        while True:
            try:
                make_private(self._place.folder)
                for earlier in self._place.above.iterdir():
                    if earlier != self._place.folder:
                        for worker in earlier.iterdir():
                            if worker.is_dir():
                                _clear(worker)
                        shutil.rmtree(earlier, ignore_errors=True)
                return
            except (ArylError, OSError) as error:
                _log.error("what an earlier incarnation left can't be ended: %s", error)
                time.sleep(1.0)

    def _what_is_wrong(self) -> str:
        if self._shared.exists():
            return ""
        return f"the folder {self._shared.parent} isn't visible there, and has to be on a shared file system"


def machine() -> str:
    """Names this machine since it was started."""
    return f"{boot_id()}/{socket.gethostname()}"


def _clear(folder: Path) -> None:
    """End all that is left of the supervisor of a folder. Raises ArylError if it can't."""
    if not folder.exists():
        return
    client = SupervisorClient.connect(folder, _HIGHEST_FENCE, lambda _event: None, linger_s=1.0)
    try:
        client.shutdown(force=True)
    except ArylError:
        if folder.exists():  # it didn't just end by itself
            raise
    finally:
        client.close()
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists(folder):
        raise ArylError(f"the folder {folder} can't be removed")
