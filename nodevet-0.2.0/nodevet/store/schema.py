"""The tables, for SQLite and PostgreSQL. Times are seconds since 1970 UTC.

A finding that stays the same needs no new row, and neither does a part that stays in its place: an
open row has no last visit, and was last seen at the last visit that could see it.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class epoch(FunctionElement[float]):  # noqa: N801
    """Seconds since 1970 by the clock of the database, which all controllers share."""

    type = Float(53)
    inherit_cache = True


@compiles(epoch, "sqlite")
def _sqlite_epoch(*_: object, **__: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(epoch, "postgresql")
def _postgres_epoch(*_: object, **__: object) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


VERSION = "0005"  # of the schema; nodevet/store/migrations/versions
VERSION_TABLE = "nodevet_schema"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Id = BigInteger().with_variant(Integer(), "sqlite")
Lexical = Text().with_variant(Text(collation="C"), "postgresql")
"""In the order of code points, so that an index finds a text by its beginning."""


def _id() -> Column[int]:
    return Column("id", Id, primary_key=True, autoincrement=False)


run = Table(
    "run",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),  # nodevet.model.new_run_id
    Column("series", Text, nullable=False),
    Column("started", Float(53), nullable=False),
    Column("began", Text, nullable=False),  # started as it was said, with its offset
    Column("seconds", Float(53)),
    Column("state", Text, nullable=False),
    Column("nodevet", Text, nullable=False),
    Column("fail_on", Text, nullable=False),
    Column("hosts", Integer, nullable=False),
    Column("visited", Integer, nullable=False),
    Column("outcomes", LargeBinary, nullable=False),  # JSON: outcome -> hosts
    Column("owner", Text, nullable=False),  # the process that records it: see nodevet.store.runs
    Column("touched", Float(53), nullable=False),  # its last sign of life, by `epoch`
    Column("exit_code", Integer),
    Column("baselines", LargeBinary, nullable=False),  # JSON: name -> sha256
    Index(None, "started"),
)
baseline = Table(
    "baseline",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
)
grouping = Table(
    "grouping",
    metadata,
    _id(),
    Column("names", Text, nullable=False, unique=True),  # JSON
)
host = Table(
    "host",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("visit", Id),  # its last
    Column("vetted", Id),  # its last vetted one
    Column("machine", Text),  # the id of the machine that last answered under this name
    Column("machine_from", Id),  # the visit in which that first answered
    Column("boot", Id),
    Column("keyframe", Id),  # the blob that its readings are compressed with
    Column("keyframe_at", Float(53)),
    Column("steady", Id),  # the manifest of its last evidence
    Column("judged", Id),
    Column("counted", LargeBinary),  # the hash of the counters in its last evidence
)
boot = Table(
    "boot",
    metadata,
    _id(),
    Column("machine_id", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("visit", Id, nullable=False),  # its first
    UniqueConstraint("host", "machine_id", "boot_id"),
)
visit = Table(
    "visit",
    metadata,
    _id(),
    Column("run", Id, ForeignKey("run.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("status", Text, nullable=False),
    Column("why", Text),
    Column("outcome", Text, nullable=False),
    Column("seconds", Float(53), nullable=False),
    Column("at", Float(53), nullable=False),  # arrival; if unknown, time of recording
    Column("arrived", Boolean, nullable=False),
    Column("machine_id", Text),  # of a visit without a boot
    Column("boot", Id),
    Column("baseline", Id),  # of vetted visits only
    Column("grouping", Id),
    Column("steady", Id),  # blob: the manifest of the sections' steady values
    Column("volatile", Id),  # blob: the readings; without a manifest: the whole evidence
    Column("judged", Id),  # blob: the findings that are ok or not applicable
    Column("thinned", Boolean, nullable=False, default=False),
    Column("superseded", Boolean, nullable=False, default=False),  # by a second try
    Index(None, "run", "host"),
    Index(None, "host", "baseline", "id"),
    Index(None, "at"),
)
blob = Table(
    "blob",
    metadata,
    _id(),
    Column("sha256", LargeBinary, unique=True),  # NULL: readings, which no other visit shares
    Column("base", Id),  # the blob whose content is the dictionary; always a keyframe
    Column("size", Integer, nullable=False),  # of the content
    Column("data", LargeBinary, nullable=False),
)
finding_text = Table(
    "finding_text",
    metadata,
    _id(),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("finding", LargeBinary, nullable=False),  # JSON
)
finding_span = Table(
    "finding_span",
    metadata,
    _id(),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("baseline", Id, ForeignKey("baseline.id"), nullable=False),
    Column("key", Text, nullable=False),  # empty: the host as a whole
    Column("check", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("said", BigInteger, nullable=False),
    Column("text", Id),
    Column("why", Text, nullable=False),
    Column("first", Id, nullable=False),
    Column("since", Id),  # the visit in which this verdict began; NULL: `first`
    Column("last", Id),  # NULL while open
    Column("ended", Id),  # the first visit without it
    Column("end", Text),
    Column("after_plan", Text),  # the plan whose fix it came back after
    Index(None, "host", "baseline", "key"),
    Index(None, "check", "first"),
)
Index(
    "ix_finding_span_open",
    finding_span.c.host,
    # in PostgreSQL, too: v0001.py. Named here, it would import that dialect and all its drivers
    sqlite_where=finding_span.c.ended.is_(None),
)
part = Table(
    "part",
    metadata,
    _id(),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),  # the id that it is followed by
    Column("model", Text, nullable=False),
    Column("names", LargeBinary, nullable=False),  # JSON: serials, part numbers
    UniqueConstraint("kind", "name"),
)
part_name = Table(
    "part_name",
    metadata,
    Column("name", Lexical, primary_key=True),  # in lower case
    Column("part", Id, ForeignKey("part.id"), primary_key=True),
    Column("is_id", Boolean, nullable=False),  # else it is one of the part's other names
    sqlite_with_rowid=False,
)
place = Table(
    "place",
    metadata,
    _id(),
    Column("part", Id, ForeignKey("part.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("slot", Text, nullable=False),
    Column("first", Id, nullable=False),
    Column("last", Id),  # NULL while it is there
    Column("ended", Id),
    Index(None, "part"),
    Index(None, "host"),
)
counter = Table(
    "counter",
    metadata,
    _id(),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("part", Id),
    Column("name", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("value", BigInteger, nullable=False),  # as 64 bits
    Column("visit", Id, nullable=False),
    Index(None, "host", "name"),
    Index(None, "part"),
)
plan = Table(
    "plan",
    metadata,
    _id(),
    Column("sha256", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),  # nodevet.fix.model.Plan.id
    Column("author", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("text", Id, nullable=False),  # blob
)
planned = Table(
    "planned",
    metadata,
    _id(),
    Column("plan", Id, ForeignKey("plan.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("fixes", LargeBinary, nullable=False),  # JSON
    Index(None, "host"),
    Index(None, "plan"),
)
fix_run = Table(
    "fix_run",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),  # when it began, and its folder's name
    Column("kind", Text, nullable=False),
    Column("plan", Text, nullable=False),  # its sha256
    Column("plan_name", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("approvals", LargeBinary, nullable=False),  # JSON: who
    Column("by", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("started", Float(53), nullable=False),
    Column("began", Text, nullable=False),  # started as it was said, with its offset
    Column("seconds", Float(53), nullable=False),
    Column("exit_code", Integer),  # NULL: it has no end
    Column("outcomes", LargeBinary, nullable=False),  # JSON: outcome -> hosts
    Index(None, "started"),
)
fix_host = Table(
    "fix_host",
    metadata,
    _id(),
    Column("run", Id, ForeignKey("fix_run.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("why", Text, nullable=False),
    Index(None, "host"),
    Index(None, "run"),
)
action = Table(
    "action",
    metadata,
    _id(),
    Column("run", Id, ForeignKey("fix_run.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("step", Text, nullable=False),
    Column("fix", Text, nullable=False),
    Column("subjects", LargeBinary, nullable=False),  # JSON
    Column("resource", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Index(None, "host"),
    Index(None, "run"),
)
proof = Table(
    "proof",
    metadata,
    _id(),
    Column("run", Id, ForeignKey("fix_run.id"), nullable=False),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("check", Text, nullable=False),
    Column("baseline", Text, nullable=False),  # its name: no visit may know it
    Column("machine_id", Text),
    Column("asked", Float(53), nullable=False),
    Column("at", Float(53), nullable=False),
    Column("visit", Id, nullable=False),  # the host's last when it was recorded; 0: none
    Column("keys", LargeBinary, nullable=False),  # JSON
    Column("subjects", LargeBinary, nullable=False),  # JSON
    Index(None, "host"),
    Index(None, "run"),
)
incident = Table(
    "incident",
    metadata,
    _id(),
    Column("host", Id, ForeignKey("host.id"), nullable=False),
    Column("at", Float(53), nullable=False),
    Column("cause", Text, nullable=False),
    Column("bundle", Id, nullable=False),  # blob
    Index(None, "host"),
)
