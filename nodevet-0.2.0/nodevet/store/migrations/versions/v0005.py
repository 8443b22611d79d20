"""Parts are found by their ids, by the beginnings of those, and by their other names."""

import json

import sqlalchemy as sa
from alembic import op

from nodevet.store.rows import name_rows

revision = "0005"
down_revision = "0004"
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Lexical = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
CHUNK = 5000  # parts in memory at once


def upgrade() -> None:
    part_name = op.create_table(
        "part_name",
        sa.Column("name", Lexical, nullable=False),
        sa.Column("part", Id, nullable=False),
        sa.Column("is_id", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["part"], ["part.id"], name=op.f("fk_part_name_part")),
        sa.PrimaryKeyConstraint("name", "part", name=op.f("pk_part_name")),
        sqlite_with_rowid=False,
    )
    part = sa.table("part", sa.column("id"), sa.column("name"), sa.column("names"))
    some = sa.select(part).order_by(part.c.id).limit(CHUNK)
    last = 0
    while parts := op.get_bind().execute(some.where(part.c.id > last)).all():
        rows = [row for one in parts for row in name_rows(one.id, one.name, json.loads(one.names))]
        op.bulk_insert(part_name, rows)
        last = parts[-1].id
