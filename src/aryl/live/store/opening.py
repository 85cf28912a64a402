"""How a store is opened: the URL is checked, the database is made if it can be, and its tables are brought up
to date.

The migrations run in one transaction that begins by locking everybody else out, so two daemons that start at
the same time don't trip over each other, and a migration that breaks off leaves nothing behind. Both
databases can undo changes of tables.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, make_url, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from aryl.errors import InputError
from aryl.live.store.database import in_a_line
from aryl.live.store.tables import GROUND

MIGRATIONS = Path(__file__).parents[1] / "migrations"

SQLITE_PATIENCE_MS = 30_000
POSTGRES_PATIENCE = {
    # A process that is frozen in the middle of a transaction must not keep the others from taking over.
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "20s",
}
POSTGRES_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_MIGRATION_LOCK = 0x6172796C  # any number that is ours alone
_SECRET_QUERY = frozenset({"password", "sslpassword", "passfile"})
_EXPECTED = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"

# Alembic keeps the migration that is running in a global variable.
_one_migration = threading.Lock()


def open_engine(url_text: str) -> tuple[Engine, str]:
    """A database with all tables, and its URL as it may be shown. Raises InputError; see `Store.open`."""
    url = _checked(url_text)
    shown = _shown(url)
    engine = _sqlite(url) if url.get_backend_name() == "sqlite" else _postgresql(url, shown)
    try:
        with _one_migration, engine.execution_options(writes=True).begin() as connection:
            _bring_up_to_date(connection, shown)
    except DBAPIError as error:
        engine.dispose()
        raise InputError(f"can't open the store {shown}: {in_a_line(error)}") from error
    except BaseException:
        engine.dispose()
        raise
    return engine, shown


def alembic_config() -> Config:
    """Where the migrations are."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _checked(url_text: str) -> URL:
    try:
        url = make_url(url_text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise InputError("not the URL of a store", expected=_EXPECTED) from None
    if backend == "postgres":
        url = url.set(drivername="postgresql")
        backend = "postgresql"
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InputError("not a kind of store", found=url.drivername, expected=_EXPECTED)
    if not url.database or url.database == ":memory:" or "mode=memory" in url_text:
        raise InputError("a store in memory would forget everything", expected=_EXPECTED)
    return url


def _shown(url: URL) -> str:
    hidden = {name: "***" for name in url.query if name in _SECRET_QUERY}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _sqlite(url: URL) -> Engine:
    path = Path(str(url.database))
    if not path.parent.is_dir():
        raise InputError(f"can't make the store {path}: there is no folder {path.parent}")
    try:
        # Job files may hold secrets in their environment: nobody else reads them.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise InputError(f"can't open the store {path}: {error.strerror}") from None
    engine = create_engine(url, pool_size=10, max_overflow=30)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions begin below, not at the driver's whim
        connection.execute(f"PRAGMA busy_timeout={SQLITE_PATIENCE_MS}")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_wal(connection: Any) -> None:
    """The mode stays with the file. Changing it doesn't wait for others as statements do."""
    give_up_at = time.monotonic() + SQLITE_PATIENCE_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.02)
        else:
            return


def _postgresql(url: URL, shown: str) -> Engine:
    patience = {name: value for name, value in POSTGRES_CONNECT.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_size=10, max_overflow=30, pool_pre_ping=True, connect_args=patience)
    except ImportError:
        raise InputError(
            f"{shown} needs the PostgreSQL driver", expected="pip install aryl[postgres]"
        ) from None

    @event.listens_for(engine, "connect")
    def _on_connect(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for name, value in POSTGRES_PATIENCE.items():
            cursor.execute(f"SET SESSION {name} = '{value}'")
        cursor.close()
        connection.commit()

    return engine


def _bring_up_to_date(connection: Connection, shown: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
    config = alembic_config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    for revision in MigrationContext.configure(connection).get_current_heads():
        if revision not in known:
            raise InputError(
                f"the store {shown} was made by a newer version of Aryl",
                found=revision,
                expected=f"one of {', '.join(sorted(known))}",
            )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.execute(select(GROUND.c.id)).first() is None:
        connection.execute(insert(GROUND).values(id=1, epoch_s=time.time(), last_job=0))
