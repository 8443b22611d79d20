"""What runs of fixes proved, and which findings came back after that."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("finding_span", sa.Column("after_plan", sa.Text(), nullable=True))
    op.create_table(
        "proof",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("run", Id, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("baseline", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=True),
        sa.Column("asked", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("visit", Id, nullable=False),
        sa.Column("keys", sa.LargeBinary(), nullable=False),
        sa.Column("subjects", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["fix_run.id"], name=op.f("fk_proof_run")),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_proof_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proof")),
    )
    op.create_index(op.f("ix_proof_host"), "proof", ["host"])
    op.create_index(op.f("ix_proof_run"), "proof", ["run"])
