"""Names that everybody agrees on: actors in Ray's namespace, labels of servers, folders on a server.

What runs on a server keeps its things in a folder of that server's own disk, named by the installation (two
control planes may share a machine), the server and Ray's id of this incarnation of it: what lies under
another incarnation was left behind.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aryl.backends.supervisor.protocol import WorkerKey

SERVER_LABEL = "aryl.io/server"
POOL_LABEL = "aryl.io/pool"
GPU_TYPE_LABEL = "aryl.io/gpu-type"
# Ray's own label for the type of a GPU, and the resource that only the head has.
RAY_GPU_TYPE_LABEL = "ray.io/accelerator-type"
HEAD_RESOURCE = "node:__internal_head__"

REGISTRY = "registry"
_WORKER = "worker:"
_KEEPER = "keeper:"


def worker_name(key: WorkerKey) -> str:
    """The name of the actor of a worker."""
    return _WORKER + key.text


def worker_key(name: str) -> WorkerKey | None:
    """The inverse; None for the name of something else."""
    parts = name.removeprefix(_WORKER).rsplit(".", 3)
    if not name.startswith(_WORKER) or len(parts) != 4 or not all(part.isdecimal() for part in parts[1:]):
        return None
    return WorkerKey(parts[0], int(parts[1]), int(parts[2]), int(parts[3]))


def keeper_name(server_id: str, node: str) -> str:
    """The name of the actor that keeps an incarnation of a server."""
    return f"{_KEEPER}{server_id}:{node}"


def is_ours(name: str) -> bool:
    """Whether an actor of this name is one of Aryl's."""
    return name == REGISTRY or name.startswith((_WORKER, _KEEPER))


def installation(state: Path) -> str:
    """A short word for the control plane with this state folder."""
    return hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Place:
    """An incarnation of a server, as what runs there sees it. `node` is Ray's id of it."""

    installation: str
    server_id: str
    node: str

    @property
    def above(self) -> Path:
        """The folder of all incarnations of the server."""
        return Path(tempfile.gettempdir()) / f"aryl-{os.getuid()}" / self.installation / self.server_id

    @property
    def folder(self) -> Path:
        """The folder of this incarnation."""
        return self.above / self.node[:16]

    @property
    def lease(self) -> Path:
        """The file that its keeper renews."""
        return self.folder / "lease"

    def worker(self, key: WorkerKey) -> Path:
        """The folder of a worker's supervisor."""
        return self.folder / key.text
