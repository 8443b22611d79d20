"""Alembic runs this: the migrations, on the connection and in the transaction of who asks."""

from alembic import context

from nodevet.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
