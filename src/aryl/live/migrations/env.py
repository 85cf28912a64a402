"""Alembic's entry: it migrates the connection that it is given, inside the transaction that is open there."""

from __future__ import annotations

from alembic import context

from aryl.live.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
