"""The schema: migrations and models agree, an old store is brought up, two openers do it once."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from recorded import document, record, report
from sqlalchemy import MetaData, Table, inspect

from nodevet.store import Store, open_store, upgrade
from nodevet.store.engine import engine_of
from nodevet.store.schema import VERSION, VERSION_TABLE, metadata
from nodevet.store.urls import parse_url

GPU = document(gpu={"gpus": [{"index": 0, "uuid": "GPU-5f1c", "serial": "1655"}]})


def test_migrations_and_models_agree(store: Store):
    with store._database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []


def test_the_schema_version_is_that_of_the_last_migration():
    config = Config()
    config.set_main_option("script_location", "nodevet.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [VERSION]


def written_then(url: str, folder: Path) -> None:
    """Copy a night into a store of an earlier version, as far as that has tables and columns."""
    with open_store(f"sqlite:///{folder}/today.sqlite") as today:
        record(today, 0, report(findings={"governor": "fail"}), evidence=GPU)
        copied = today._database.engine
        engine = engine_of(parse_url(url), create=False).execution_options(writes=True)
        with copied.connect() as source, engine.begin() as target:
            there = inspect(target)
            for new in metadata.sorted_tables:
                if not there.has_table(new.name):
                    continue
                old = Table(new.name, MetaData(), autoload_with=target)
                for row in source.execute(new.select()).mappings():
                    known = {key: value for key, value in row.items() if key in old.columns}
                    target.execute(old.insert().values(**known))
        engine.dispose()


@pytest.mark.parametrize("version", ["0001", "0003", "0004"])
def test_e19_a_store_of_an_earlier_version_is_migrated(
    version: str, url: str, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(upgrade, "VERSION", version)
    open_store(url).close()
    monkeypatch.undo()
    written_then(url, tmp_path)
    with open_store(url) as store:
        record(store, 1, report(findings={"governor": "fail"}, night=1))
        (span,) = store.spans()
        assert (span.first.run[:8], span.last.run[:8]) == ("20261101", "20261102")
        for text in ("GPU-5F", "1655"):
            assert [part.id for part in store.parts(text)] == ["GPU-5f1c"]
        with store._database.engine.connect() as connection:
            assert upgrade.version_of(connection) == VERSION


def test_several_open_a_new_store_at_once(url: str):
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(open_store, [url] * 4):
            assert found.runs() == []
            found.close()


def test_several_threads_can_open_and_close_a_new_store_at_once(tmp_path: Path):
    """SQLite makes and removes files beside the database while others look at them."""

    def open_and_close(url: str) -> None:
        open_store(url).close()

    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_and_close, [f"sqlite:///{tmp_path}/{number}/h.sqlite"] * 8))


def test_a_file_of_sqlite_is_incrementally_vacuumed(tmp_path: Path):
    open_store(f"sqlite:///{tmp_path}/h.sqlite").close()
    with sqlite3.connect(tmp_path / "h.sqlite") as raw:
        assert raw.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert raw.execute("PRAGMA page_size").fetchone() == (16384,)
