"""Opening a store: migrations, wrong URLs, and what is never shown."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text
from tests.live.store.databases import Postgres, new_job

from aryl.errors import InputError, UnreachableError
from aryl.live.store import Store, opening
from aryl.live.store.tables import METADATA


def test_a_store_keeps_its_zero_and_its_jobs_when_it_is_opened_again(url: str) -> None:
    first = Store.open(url)
    zero = first.epoch_s()
    job, _ = first.accept(new_job(), "ann", None, "", 5.0)
    first.close()
    second = Store.open(url)
    assert second.epoch_s() == zero
    assert second.job(job.job_id) == job
    second.close()


def test_many_may_open_a_new_store_at_once(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(Store.open, [url] * 4))
    assert len({store.epoch_s() for store in stores}) == 1
    for store in stores:
        store.close()


def test_the_migrations_make_exactly_the_tables_that_the_code_uses(url: str) -> None:
    Store.open(url).close()
    engine, _ = opening.open_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_every_migration_can_be_undone_and_done_again(url: str) -> None:
    engine, _ = opening.open_engine(url)
    config = opening.alembic_config()
    with engine.execution_options(writes=True).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        assert set(inspect(connection).get_table_names()) == {"alembic_version"}
        command.upgrade(config, "head")
        assert set(inspect(connection).get_table_names()) == {"alembic_version", *METADATA.tables}
    engine.dispose()


def test_a_migration_that_breaks_off_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command.upgrade

    def breaks_off(*args: Any) -> None:
        done(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            Store.open(url)
    engine = _bare_engine(url)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()
    Store.open(url).close()


def _bare_engine(url: str) -> Engine:
    checked = opening._checked(url)
    if url.startswith("sqlite"):
        return opening._sqlite(checked)
    return opening._postgresql(checked, url)


def test_a_store_of_a_newer_version_is_refused(url: str) -> None:
    engine, _ = opening.open_engine(url)
    with engine.execution_options(writes=True).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(InputError, match=r"newer version of Aryl \(found '9999'\); expected one of 0001"):
        Store.open(url)


@pytest.mark.parametrize(
    ("url_text", "words"),
    [
        ("aryl.db", "not the URL of a store"),
        ("sqlite:/aryl.db", "not the URL of a store"),
        ("mysql://u:hunter2@h/d", "not a kind of store"),
        ("postgresql+nope://u:hunter2@h/d", "not a kind of store"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("sqlite:////no/such/folder/aryl.db", "no folder /no/such/folder"),
        ("sqlite:////", "can't open the store"),
        ("postgresql://u:hunter2@127.0.0.1:1/d", "can't open the store postgresql.*u:\\*\\*\\*@127"),
        ("postgresql://127.0.0.1:1/d?user=u&password=hunter2", "can't open the store"),
        ("postgresql://u:hunter2@127.0.0.1:http/d", "not the URL of a store"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_a_password(url_text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Store.open(url_text)
    assert "hunter2" not in str(caught.value)


def test_a_database_that_does_not_exist_is_named(postgres: Postgres) -> None:
    with pytest.raises(InputError, match=r"can't open the store postgresql.*nowhere"):
        Store.open(postgres.url("nowhere"))


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look like one " * 50)
    before = file.read_bytes()
    with pytest.raises(InputError, match="file is not a database"):
        Store.open(f"sqlite:///{file}")
    assert file.read_bytes() == before


def test_a_sqlite_store_is_durable_and_nobody_elses_to_read(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/aryl.db")
    with store.writing() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    store.accept(new_job(), "ann", None, "", 5.0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes) == {"aryl.db", "aryl.db-wal", "aryl.db-shm"}
    assert set(modes.values()) == {0o600}
    store.close()


def test_a_store_that_does_not_answer_is_told_apart_from_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SQLITE_PATIENCE_MS", 50)
    store = Store.open(f"sqlite:///{tmp_path}/aryl.db")
    with sqlite3.connect(tmp_path / "aryl.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnreachableError, match=r"aryl\.db doesn't do as asked: database is locked"):
            store.accept(new_job(), "ann", None, "", 5.0)
        assert store.unjournaled() == []
        other.execute("ROLLBACK")
    other.close()
    store.accept(new_job(), "ann", None, "", 5.0)
    store.close()


def test_the_url_that_is_shown_has_no_password(postgres: Postgres) -> None:
    url = postgres.new_url()
    store = Store.open(url.replace("postgres@", "postgres:hunter2@") + "&password=hunter2")
    assert "hunter2" not in store.url_shown
    store.close()
