"""Visits are found by their time: trends and thinning ask for it."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("ix_visit_at", "visit", ["at"])
