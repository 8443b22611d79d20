"""The store's schema, brought to this nodevet's as it is opened."""

from sqlalchemy import Connection, Engine, inspect, text

from nodevet.store.engine import of_something_else, shown
from nodevet.store.errors import StoreError
from nodevet.store.schema import VERSION, VERSION_TABLE, metadata


def upgrade(engine: Engine) -> None:
    """One process at a time: whoever comes second finds it done. Raises StoreError."""
    with engine.connect() as connection, connection.begin():
        if version_of(connection) == VERSION:
            return
    with engine.execution_options(writes=True).begin() as connection:
        found = version_of(connection)
        if found == VERSION:
            return
        _refuse(connection, found)
        _run(connection)


def version_of(connection: Connection) -> str | None:
    """None for an empty database, and for one of something else."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608


def _refuse(connection: Connection, found: str | None) -> None:
    name = shown(connection.engine.url)
    if found is not None and found > VERSION:
        raise StoreError(
            f"{name}: a newer nodevet has written it (schema {found}, and this one knows "
            f"{VERSION}); use that one, or name another store with --store"
        )
    if found is None:
        there = set(inspect(connection).get_table_names())
        if (
            connection.dialect.name != "sqlite"
        ):  # a file is of one program, a database may be shared
            there &= metadata.tables.keys()
        taken = sorted(there)
        if taken:
            raise StoreError(f"{name}: {of_something_else(taken)}")


def _run(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "nodevet.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, VERSION)
