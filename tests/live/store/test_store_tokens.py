"""Tokens: shown once, stored as digests, and revoked for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from aryl.errors import ConflictError, NotFoundError
from aryl.live.control import Principal, Role
from aryl.live.store import Store


def test_a_token_is_good_for_its_role_and_project(store: Store) -> None:
    assert not store.has_tokens()
    secret = store.add_token("ci", Role.USER, "vision")
    other = store.add_token("ops", Role.OPERATOR, None)
    assert store.has_tokens()
    assert secret.startswith("aryl_")
    assert len(secret) >= len("aryl_") + 43  # 256 bits, six a character
    assert secret != other
    assert store.find_token(secret) == Principal("ci", Role.USER, "vision")
    assert store.find_token(other) == Principal("ops", Role.OPERATOR, None)


@pytest.mark.parametrize("wrong", ["", "aryl_", "aryl_nobody", "ä\udc80", "' OR 1=1 --"])
def test_an_unknown_secret_is_nobodys(store: Store, wrong: str) -> None:
    secret = store.add_token("ci", Role.USER, "vision")
    assert store.find_token(wrong) is None
    assert store.find_token(secret[:-1]) is None
    assert store.find_token(secret.upper()) is None


def test_a_revoked_token_is_good_for_nothing_and_stays_in_the_list(store: Store) -> None:
    secret = store.add_token("ci", Role.USER, "vision")
    store.revoke("ci")
    assert store.find_token(secret) is None
    assert not store.has_tokens()
    (row,) = store.tokens()
    assert (row.name, row.role, row.project) == ("ci", Role.USER, "vision")
    assert row.revoked is not None
    assert row.revoked >= row.created
    with pytest.raises(NotFoundError):
        store.revoke("ci")


def test_a_name_is_given_once_until_it_is_revoked(store: Store) -> None:
    old = store.add_token("ci", Role.USER, "vision")
    with pytest.raises(ConflictError, match="there is a token ci already"):
        store.add_token("ci", Role.ADMIN, None)
    assert store.find_token(old) == Principal("ci", Role.USER, "vision")
    store.revoke("ci")
    new = store.add_token("ci", Role.VIEWER, None)
    assert store.find_token(old) is None
    assert store.find_token(new) == Principal("ci", Role.VIEWER, None)
    assert [row.revoked for row in store.tokens()] == [None]


def test_no_secret_is_in_the_files_of_the_database(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/aryl.db")
    secret = store.add_token("findable-name", Role.USER, "vision")
    assert store.find_token(secret) is not None
    while_open = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    store.close()
    closed = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for files in (while_open, closed):
        assert b"findable-name" in files
        assert secret.encode() not in files
        assert secret.removeprefix("aryl_").encode() not in files
