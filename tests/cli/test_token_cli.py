"""`aryl token` on a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.live_commands import Commands

from aryl.live.control import Principal, Role
from aryl.live.store import Store


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'aryl.db'}"


def found(store: str, secret: str) -> Principal | None:
    opened = Store.open(store)
    try:
        return opened.find_token(secret)
    finally:
        opened.close()


def test_a_token_is_shown_once_and_works_until_it_is_revoked(aryl: Commands, store: str) -> None:
    assert aryl("token", "create", "alice", "--role", "user", "--project", "vision", "--store", store) == 0
    secret = aryl.out.strip()
    assert aryl.out == f"{secret}\n"
    assert "only time" in aryl.err
    assert found(store, secret) == Principal("alice", Role.USER, "vision")
    assert aryl("token", "list", "--store", store, "-o", "json") == 0
    (token,) = json.loads(aryl.out)["tokens"]
    assert (token["name"], token["role"], token["project"], token["revoked"]) == (
        "alice",
        "user",
        "vision",
        None,
    )
    assert secret not in aryl.out
    assert aryl("token", "list", "--store", store) == 0
    assert "alice" in aryl.out
    assert aryl("token", "list", "--store", store, "-o", "csv") == 0
    assert aryl.out.startswith("name,role,project,")
    assert aryl("token", "revoke", "alice", "--store", store) == 0
    assert found(store, secret) is None
    assert aryl("token", "revoke", "alice", "--store", store) == 3


def test_a_name_is_taken_once(aryl: Commands, store: str) -> None:
    assert aryl("token", "create", "ops", "--role", "operator", "--store", store) == 0
    assert aryl("token", "create", "ops", "--role", "operator", "--store", store) == 4
    assert aryl.out == ""


CONFIG = """\
cluster: {training: {servers: 1, gpus_per_server: 8, gpu_type: V100}}
state: state
"""


def test_the_configuration_of_the_server_names_the_store(
    aryl: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    assert aryl("token", "create", "ops", "--role", "admin", "--config", config) == 0
    secret = aryl.out.strip()
    assert found(f"sqlite:///{tmp_path}/state/aryl.db", secret) == Principal("ops", Role.ADMIN, None)
    config.write_text(f"{CONFIG}store: sqlite:///other.db\n", encoding="utf-8")
    assert aryl("token", "list", "--config", config) == 0
    assert (tmp_path / "other.db").exists()
    config.write_text(f"{CONFIG}lisen: x\n", encoding="utf-8")
    assert aryl("token", "list", "--config", config) == 2
    assert "line 3, lisen" in aryl.err

    # Without either it is the store of `aryl serve` in this folder.
    monkeypatch.chdir(tmp_path)
    assert aryl("token", "list") == 2
    assert "no folder" in aryl.err
    (tmp_path / "aryl-state").mkdir()
    assert aryl("token", "list") == 0
    assert (tmp_path / "aryl-state" / "aryl.db").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("alice --project vision --store STORE --config F", "either --store URL or --config FILE"),
        ("alice --store STORE", "--project NAME or --all-projects"),
        ("alice --store STORE --project a --all-projects", "--project NAME or --all-projects"),
        ("alice --store STORE --role admin --project a", "acts for all projects"),
        ("alice --store mysql://x/y --project a", "not a kind of store"),
    ],
)
def test_what_is_not_clear_is_refused(aryl: Commands, store: str, arguments: str, message: str) -> None:
    assert aryl("token", "create", *arguments.replace("STORE", store).split()) == 2
    assert message in aryl.err
    assert aryl.out == ""
