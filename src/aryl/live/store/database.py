"""A connected database: short transactions for reading and for writing, and its troubles in our words.

On SQLite a writing transaction takes the write lock when it begins, so that it can't fail half-way because
somebody else wrote in between; a lock of our own makes the threads of this process queue for it instead of
polling. On PostgreSQL transactions are READ COMMITTED, and whoever needs an order locks a row.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from aryl.errors import UnreachableError


class Database:
    """May be used by many threads at once. `url_shown` is the URL without its password."""

    def __init__(self, engine: Engine, url_shown: str) -> None:
        self.url_shown = url_shown
        self._engine = engine
        self._writing_engine = engine.execution_options(writes=True)
        sqlite = engine.dialect.name == "sqlite"
        self._one_writer: AbstractContextManager[object] = threading.Lock() if sqlite else nullcontext()

    def close(self) -> None:
        """Let go of all connections. Nothing may use the store any more."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads. Raises UnreachableError."""
        with self._in_our_words(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, and undone by an exception. Raises UnreachableError,
        after which it may or may not have been committed.
        """
        with self._in_our_words(), self._one_writer, self._writing_engine.begin() as connection:
            yield connection

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeoutError:
            raise UnreachableError(f"the store {self.url_shown} is too busy") from None
        except DBAPIError as error:
            if error.connection_invalidated or isinstance(
                error, OperationalError | InterfaceError | InternalError
            ):
                raise UnreachableError(
                    f"the store {self.url_shown} doesn't do as asked: {in_a_line(error)}"
                ) from error
            raise


def in_a_line(error: DBAPIError) -> str:
    """What the database itself said, shortened to its first line; it never repeats a password."""
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
