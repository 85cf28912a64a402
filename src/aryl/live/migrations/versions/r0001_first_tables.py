"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SECONDS = sa.Float(53)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "ground",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch_s", SECONDS, nullable=False),
        sa.Column("last_job", NUMBER, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ground_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ground")),
    )
    op.create_table(
        "history",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("cause", sa.String()),
        sa.Column("beneficiary", sa.String()),
        sa.Column("alternatives", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "sequence", "part", name=op.f("pk_history")),
    )
    op.create_table(
        "jobs",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("min_workers", sa.Integer(), nullable=False),
        sa.Column("max_workers", sa.Integer(), nullable=False),
        sa.Column("gpus_per_worker", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("estimate_s", SECONDS),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.Column("preemptions", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("resizes", sa.Integer(), nullable=False),
        sa.Column("submitted", SECONDS, nullable=False),
        sa.Column("started", SECONDS),
        sa.Column("finished", SECONDS),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("journaled", NUMBER),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_jobs")),
        sa.UniqueConstraint("job_id", name=op.f("uq_jobs_job_id")),
    )
    op.create_index(op.f("ix_jobs_journaled"), "jobs", ["journaled"])
    op.create_index(op.f("ix_jobs_project_sequence"), "jobs", ["project", "sequence"])
    op.create_index(op.f("ix_jobs_state_sequence"), "jobs", ["state", "sequence"])
    op.create_index(op.f("ix_jobs_user_name_sequence"), "jobs", ["user_name", "sequence"])
    op.create_table(
        "journal",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("job_id", sa.String()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_journal")),
    )
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String()),
        sa.Column("token", NUMBER, nullable=False),
        sa.Column("beat", NUMBER, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_leader_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leader")),
    )
    op.create_table(
        "loans",
        sa.Column("sequence", NUMBER, autoincrement=False, nullable=False),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("lent", SECONDS, nullable=False),
        sa.Column("reclaim_asked", SECONDS),
        sa.Column("deadline", SECONDS),
        sa.Column("returned", SECONDS),
        sa.PrimaryKeyConstraint("sequence", "server", name=op.f("pk_loans")),
    )
    op.create_index(op.f("ix_loans_server_returned"), "loans", ["server", "returned"])
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("project", sa.String()),
        sa.Column("created", SECONDS, nullable=False),
        sa.Column("revoked", SECONDS),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("job", NUMBER, nullable=False),
        sa.Column("at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.sequence"], name=op.f("fk_idempotency_job")),
        sa.PrimaryKeyConstraint("principal", "idempotency_key", name=op.f("pk_idempotency")),
    )


def downgrade() -> None:
    """Drop them all, with what is in them."""
    op.drop_table("idempotency")
    op.drop_table("tokens")
    op.drop_table("loans")
    op.drop_table("leader")
    op.drop_table("journal")
    op.drop_table("jobs")
    op.drop_table("history")
    op.drop_table("ground")
