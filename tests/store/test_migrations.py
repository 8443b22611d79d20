"""The schema: migrations and models agree, an old store is brought up, two openers do it once."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from recorded import record, report

from nodevet.store import Store, open_store, upgrade
from nodevet.store.schema import VERSION, VERSION_TABLE, metadata


def test_migrations_and_models_agree(store: Store):
    with store._database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []


def test_the_last_migration_is_the_version():
    config = Config()
    config.set_main_option("script_location", "nodevet.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [VERSION]


def test_a_store_of_the_first_version_is_brought_up(url: str, monkeypatch):
    monkeypatch.setattr(upgrade, "VERSION", "0001")
    with open_store(url) as store:
        record(store, 0, report(findings={"governor": "fail"}))
    monkeypatch.undo()
    with open_store(url) as store:
        record(store, 1, report(findings={"governor": "fail"}, night=1))
        (span,) = store.spans()
        assert (span.first.run[:8], span.last.run[:8]) == ("20261101", "20261102")
        with store._database.engine.connect() as connection:
            assert upgrade.version_of(connection) == VERSION


def test_several_open_a_new_store_at_once(url: str):
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(open_store, [url] * 4):
            assert found.runs() == []
            found.close()


def test_a_file_of_sqlite_is_incrementally_vacuumed(tmp_path: Path):
    open_store(f"sqlite:///{tmp_path}/h.sqlite").close()
    with sqlite3.connect(tmp_path / "h.sqlite") as raw:
        assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert raw.execute("PRAGMA page_size").fetchone() == (16384,)
