"""Upgrade the schema of a store when it is opened."""

from sqlalchemy import Connection, Engine, inspect, text

from nodevet.store.engine import foreign_tables_text, url_text
from nodevet.store.errors import StoreError
from nodevet.store.schema import VERSION, VERSION_TABLE, metadata


def upgrade(engine: Engine) -> None:
    """Upgrade a store; one process at a time does it. Raises StoreError."""
    with engine.connect() as connection, connection.begin():
        if version_of(connection) == VERSION:
            return
    with engine.execution_options(writes=True).begin() as connection:
        version = version_of(connection)
        if version == VERSION:
            return
        _refuse(connection, version)
        _run(connection)


def version_of(connection: Connection) -> str | None:
    """The version of the schema; None for an empty database or one of another program."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608


def _refuse(connection: Connection, version: str | None) -> None:
    name = url_text(connection.engine.url)
    if version is not None and version > VERSION:
        raise StoreError(
            f"{name}: a newer nodevet has written it (schema {version}, this one knows "
            f"{VERSION}); use the newer one, or name another store with --store"
        )
    if version is None:
        tables = set(inspect(connection).get_table_names())
        if connection.dialect.name != "sqlite":  # a file has one owner, a server may be shared
            tables &= metadata.tables.keys()
        foreign = sorted(tables)
        if foreign:
            raise StoreError(f"{name}: {foreign_tables_text(foreign)}")


def _run(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "nodevet.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, VERSION)
