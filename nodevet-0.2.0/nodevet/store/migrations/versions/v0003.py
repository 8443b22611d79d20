"""Plans and runs of fixes, with what they changed; nothing wrote the tables that go."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Items = tuple[sa.schema.SchemaItem, ...]


def upgrade() -> None:
    op.drop_table("action")
    op.drop_table("plan")
    _table(
        "plan",
        _text("sha256", "name", "author"),
        (sa.Column("created", sa.Float(precision=53), nullable=False),),
        (sa.Column("text", Id, nullable=False),),
        (sa.UniqueConstraint("sha256", name=op.f("uq_plan_sha256")),),
    )
    _table("planned", _reference("planned", "plan", "host"), _json("fixes"))
    _indices("planned", "host", "plan")
    _table(
        "fix_run",
        _text("name", "kind", "plan", "plan_name", "author", "by", "folder", "began"),
        _json("approvals", "outcomes"),
        (
            sa.Column("started", sa.Float(precision=53), nullable=False),
            sa.Column("seconds", sa.Float(precision=53), nullable=False),
            sa.Column("exit_code", sa.Integer(), nullable=True),
            sa.UniqueConstraint("name", name=op.f("uq_fix_run_name")),
        ),
    )
    _indices("fix_run", "started")
    _table(
        "fix_host",
        (sa.Column("run", Id, nullable=False), _foreign("fix_host", "run", "fix_run")),
        _reference("fix_host", "host"),
        _text("outcome", "why"),
    )
    _indices("fix_host", "host", "run")
    _table(
        "action",
        (sa.Column("run", Id, nullable=False), _foreign("action", "run", "fix_run")),
        _reference("action", "host"),
        _text("step", "fix", "resource", "before", "after", "outcome"),
        _json("subjects"),
        (sa.Column("at", sa.Float(precision=53), nullable=False),),
    )
    _indices("action", "host", "run")


def _table(name: str, *items: Items) -> None:
    op.create_table(
        name,
        sa.Column("id", Id, autoincrement=False, nullable=False),
        *(item for some in items for item in some),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}")),
    )


def _text(*names: str) -> Items:
    return tuple(sa.Column(name, sa.Text(), nullable=False) for name in names)


def _json(*names: str) -> Items:
    return tuple(sa.Column(name, sa.LargeBinary(), nullable=False) for name in names)


def _reference(table: str, *names: str) -> Items:
    columns = (sa.Column(name, Id, nullable=False) for name in names)
    return (*columns, *(_foreign(table, name, name) for name in names))


def _foreign(table: str, name: str, other: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([name], [f"{other}.id"], name=op.f(f"fk_{table}_{name}"))


def _indices(table: str, *names: str) -> None:
    for name in names:
        op.create_index(op.f(f"ix_{table}_{name}"), table, [name])
