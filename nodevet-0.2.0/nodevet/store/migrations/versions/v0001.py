"""The first schema: runs, hosts, visits, evidence, findings, parts, counters, fixes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "baseline",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baseline")),
        sa.UniqueConstraint("name", name=op.f("uq_baseline_name")),
    )
    op.create_table(
        "blob",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=True),
        sa.Column("base", Id, nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob")),
        sa.UniqueConstraint("sha256", name=op.f("uq_blob_sha256")),
    )
    op.create_table(
        "finding_text",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("finding", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finding_text")),
        sa.UniqueConstraint("sha256", name=op.f("uq_finding_text_sha256")),
    )
    op.create_table(
        "grouping",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grouping")),
        sa.UniqueConstraint("names", name=op.f("uq_grouping_names")),
    )
    op.create_table(
        "host",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("visit", Id, nullable=True),
        sa.Column("vetted", Id, nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("machine_from", Id, nullable=True),
        sa.Column("boot", Id, nullable=True),
        sa.Column("keyframe", Id, nullable=True),
        sa.Column("keyframe_at", sa.Float(precision=53), nullable=True),
        sa.Column("steady", Id, nullable=True),
        sa.Column("judged", Id, nullable=True),
        sa.Column("counted", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host")),
        sa.UniqueConstraint("name", name=op.f("uq_host_name")),
    )
    op.create_table(
        "part",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("names", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_part")),
        sa.UniqueConstraint("kind", "name", name=op.f("uq_part_kind_name")),
    )
    op.create_table(
        "plan",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(precision=53), nullable=False),
        sa.Column("text", Id, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan")),
        sa.UniqueConstraint("sha256", name=op.f("uq_plan_sha256")),
    )
    op.create_table(
        "run",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("series", sa.Text(), nullable=False),
        sa.Column("started", sa.Float(precision=53), nullable=False),
        sa.Column("began", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(precision=53), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("nodevet", sa.Text(), nullable=False),
        sa.Column("fail_on", sa.Text(), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=False),
        sa.Column("visited", sa.Integer(), nullable=False),
        sa.Column("outcomes", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("touched", sa.Float(precision=53), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("baselines", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("name", name=op.f("uq_run_name")),
    )
    op.create_index(op.f("ix_run_started"), "run", ["started"], unique=False)
    op.create_table(
        "action",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_action_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_action")),
    )
    op.create_index(op.f("ix_action_host"), "action", ["host"], unique=False)
    op.create_index(op.f("ix_action_run"), "action", ["run"], unique=False)
    op.create_table(
        "boot",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("visit", Id, nullable=False),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_boot_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_boot")),
        sa.UniqueConstraint(
            "host", "machine_id", "boot_id", name=op.f("uq_boot_host_machine_id_boot_id")
        ),
    )
    op.create_table(
        "counter",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("part", Id, nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("visit", Id, nullable=False),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_counter_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_counter")),
    )
    op.create_index(op.f("ix_counter_host_name"), "counter", ["host", "name"], unique=False)
    op.create_index(op.f("ix_counter_part"), "counter", ["part"], unique=False)
    op.create_table(
        "finding_span",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("baseline", Id, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("said", sa.BigInteger(), nullable=False),
        sa.Column("text", Id, nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("first", Id, nullable=False),
        sa.Column("since", Id, nullable=True),
        sa.Column("last", Id, nullable=True),
        sa.Column("ended", Id, nullable=True),
        sa.Column("end", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline"], ["baseline.id"], name=op.f("fk_finding_span_baseline")
        ),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_finding_span_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finding_span")),
    )
    op.create_index(
        op.f("ix_finding_span_check_first"), "finding_span", ["check", "first"], unique=False
    )
    op.create_index(
        op.f("ix_finding_span_host_baseline_key"),
        "finding_span",
        ["host", "baseline", "key"],
        unique=False,
    )
    op.create_index(
        "ix_finding_span_open",
        "finding_span",
        ["host"],
        unique=False,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_table(
        "incident",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("bundle", Id, nullable=False),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_incident_host")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident")),
    )
    op.create_index(op.f("ix_incident_host"), "incident", ["host"], unique=False)
    op.create_table(
        "place",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("part", Id, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("first", Id, nullable=False),
        sa.Column("last", Id, nullable=True),
        sa.Column("ended", Id, nullable=True),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_place_host")),
        sa.ForeignKeyConstraint(["part"], ["part.id"], name=op.f("fk_place_part")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_place")),
    )
    op.create_index(op.f("ix_place_host"), "place", ["host"], unique=False)
    op.create_index(op.f("ix_place_part"), "place", ["part"], unique=False)
    op.create_table(
        "visit",
        sa.Column("id", Id, autoincrement=False, nullable=False),
        sa.Column("run", Id, nullable=False),
        sa.Column("host", Id, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("arrived", sa.Boolean(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=True),
        sa.Column("boot", Id, nullable=True),
        sa.Column("baseline", Id, nullable=True),
        sa.Column("grouping", Id, nullable=True),
        sa.Column("steady", Id, nullable=True),
        sa.Column("volatile", Id, nullable=True),
        sa.Column("judged", Id, nullable=True),
        sa.Column("thinned", sa.Boolean(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_visit_host")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_visit_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_visit")),
    )
    op.create_index(
        op.f("ix_visit_host_baseline_id"), "visit", ["host", "baseline", "id"], unique=False
    )
    op.create_index(op.f("ix_visit_run_host"), "visit", ["run", "host"], unique=False)
