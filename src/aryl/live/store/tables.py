"""The tables. `migrations/` makes them step by step; a test holds the two together.

One database serves one cluster. Names that one of the two databases reserves (`user`) are avoided.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

# Constraints get the same name on every database, so that a later migration can drop them by it.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite gives a rowid table its key only if the type is spelled INTEGER.
_Number = BigInteger().with_variant(Integer(), "sqlite")

# One row. `last_job` is locked by whoever accepts a job, so that jobs become visible in the order of their
# numbers; a sequence of the database wouldn't do that.
GROUND = Table(
    "ground",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch_s", Float(53), nullable=False),
    Column("last_job", _Number, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

# One row once somebody has led. `holder` is null after a resignation.
LEADER = Table(
    "leader",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", String),
    Column("token", _Number, nullable=False),
    Column("beat", _Number, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

# `at` is in seconds since the cluster's zero, as in the body.
JOURNAL = Table(
    "journal",
    METADATA,
    Column("sequence", _Number, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("type", String, nullable=False),
    Column("job_id", String),
    Column("body", Text, nullable=False),
)

JOBS = Table(
    "jobs",
    METADATA,
    Column("sequence", _Number, primary_key=True, autoincrement=False),
    Column("job_id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("project", String, nullable=False),
    Column("user_name", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("min_workers", Integer, nullable=False),
    Column("max_workers", Integer, nullable=False),
    Column("gpus_per_worker", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("estimate_s", Float(53)),
    Column("state", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("placement", Text, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("resizes", Integer, nullable=False),
    Column("submitted", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("finished", Float(53)),
    Column("message", Text, nullable=False),
    Column("journaled", _Number),
    Index(None, "project", "sequence"),
    Index(None, "user_name", "sequence"),
    Index(None, "state", "sequence"),
    Index(None, "journaled"),
)

IDEMPOTENCY = Table(
    "idempotency",
    METADATA,
    Column("principal", String, primary_key=True),
    Column("idempotency_key", String, primary_key=True),
    Column("body_hash", String, nullable=False),
    Column("job", _Number, ForeignKey("jobs.sequence"), nullable=False),
    Column("at", Float(53), nullable=False),
)

# Kept for ever. No foreign key: what happened to a job may be written in any order within a transaction.
HISTORY = Table(
    "history",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("sequence", _Number, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("kind", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("cause", String),
    Column("beneficiary", String),
    Column("alternatives", Text, nullable=False),
)

# `sequence` is the journal's number of the plan that lent the server.
LOANS = Table(
    "loans",
    METADATA,
    Column("sequence", _Number, primary_key=True, autoincrement=False),
    Column("server", String, primary_key=True),
    Column("lent", Float(53), nullable=False),
    Column("reclaim_asked", Float(53)),
    Column("deadline", Float(53)),
    Column("returned", Float(53)),
    Index(None, "server", "returned"),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("name", String, primary_key=True),
    Column("digest", String, nullable=False, unique=True),
    Column("role", String, nullable=False),
    Column("project", String),
    Column("created", Float(53), nullable=False),
    Column("revoked", Float(53)),
)
