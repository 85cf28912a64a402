"""Tokens: who may ask. Only digests are kept; a secret has 256 random bits, so a fast hash is enough."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from aryl.errors import ConflictError, NotFoundError
from aryl.live.control import Principal, Role
from aryl.live.store.database import Database
from aryl.live.store.rows import TokenRow
from aryl.live.store.tables import TOKENS

PREFIX = "aryl_"
_SECRET_BYTES = 32


class TokenTable(Database):
    """The part of the store that knows tokens."""

    def add_token(self, name: str, role: Role, project: str | None) -> str:
        """Make a token and return its secret, which can't be had again. `project` None: all projects. The
        name of a revoked token may be used again. Raises ConflictError if the name is in use.
        """
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        try:
            with self.writing() as connection:
                connection.execute(delete(TOKENS).where(TOKENS.c.name == name, TOKENS.c.revoked.is_not(None)))
                connection.execute(
                    insert(TOKENS).values(
                        name=name,
                        digest=_digest(secret),
                        role=role.name,
                        project=project,
                        created=time.time(),
                    )
                )
        except IntegrityError:
            raise ConflictError(f"there is a token {name} already") from None
        return secret

    def find_token(self, secret: str) -> Principal | None:
        """Whose secret it is; None for one that is unknown or revoked."""
        digest = _digest(secret)
        with self.reading() as connection:
            row = connection.execute(
                select(TOKENS).where(TOKENS.c.digest == digest, TOKENS.c.revoked.is_(None))
            ).first()
        # The time that the look-up takes may tell something of the digest, and nothing of the secret.
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        return Principal(row.name, Role[row.role], row.project)

    def tokens(self) -> list[TokenRow]:
        """All tokens by name, those that were revoked among them."""
        with self.reading() as connection:
            found = connection.execute(select(TOKENS).order_by(TOKENS.c.name))
            return [
                TokenRow(row.name, Role[row.role], row.project, row.created, row.revoked) for row in found
            ]

    def revoke(self, name: str) -> None:
        """A token may not be used any more, from now on. Raises NotFoundError."""
        with self.writing() as connection:
            changed = connection.execute(
                update(TOKENS)
                .where(TOKENS.c.name == name, TOKENS.c.revoked.is_(None))
                .values(revoked=time.time())
            )
            if changed.rowcount == 0:
                raise NotFoundError(f"there is no token {name} that could be revoked")

    def has_tokens(self) -> bool:
        """Whether anybody has a token that is good."""
        with self.reading() as connection:
            return (
                connection.execute(select(TOKENS.c.name).where(TOKENS.c.revoked.is_(None)).limit(1)).first()
                is not None
            )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
