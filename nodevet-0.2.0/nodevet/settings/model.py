"""The tables of nodevet.toml: each is a struct, and each key a field."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from nodevet.base.durations import EXAMPLES, seconds_of
from nodevet.model import FieldError, Severity, one_or_more, refuse

Text = Annotated[str, Meta(min_length=1)]
Texts = Text | tuple[Text, ...]
Name = Annotated[
    str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", title="a name (nightly, dc1-a)")
]
FAIL_ON = tuple(severity.value for severity in Severity)
NEW = "new"


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. `lists`: fields that take one text instead of a list. `times`: fields
    that are lengths of time."""

    lists: ClassVar[tuple[str, ...]] = ()
    times: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        one_or_more(self, *self.lists)
        refuse(self.wrong())

    def wrong(self) -> Iterator[FieldError]:
        """The problems of fields that their types do not catch."""
        for field in self.times:
            text = getattr(self, field)
            if text is not None and not seconds_of(text):
                yield FieldError(f"must be a time ({EXAMPLES}), not {text[:40]!r}", field)


class NotifySettings(Table, frozen=True, kw_only=True):
    """Whom to notify of new and fixed failures."""

    lists: ClassVar = ("urls",)

    urls: Texts = ()
    """Apprise URLs; `env:NAME` and `file:PATH` read one from elsewhere, to keep secrets out of
    here."""
    on: tuple[Literal["new", "fixed"], ...] = ("new", "fixed")
    severity: Severity = Severity.WARNING
    """Leave out failures below this."""
    link: str = ""
    """The address of the reports, at the end of the message."""
    length: Annotated[int, Meta(ge=200, le=100_000)] = 2000
    """The most characters of a message."""


class BudgetSettings(Table, frozen=True, kw_only=True):
    """If many hosts begin to fail one check at once, the rule is suspected instead of the hosts."""

    percent: Annotated[float, Meta(gt=0, le=100)] = 20.0
    hosts: Annotated[int, Meta(ge=1)] = 5
    """Fewer hosts than this are never suspicious."""


class RetentionSettings(Table, frozen=True, kw_only=True):
    """How long evidence is kept; findings are kept forever. See nodevet.store.records.retention."""

    daily: Annotated[int, Meta(ge=1)] = 90
    """Days for which the evidence of every visit is kept."""
    weekly: Annotated[int, Meta(ge=0)] = 52
    """Weeks after that for which one visit of each week is kept."""
    monthly: Annotated[int, Meta(ge=0)] = 60
    """Months after that for which one visit of each month is kept."""


class OtelSettings(Table, frozen=True, kw_only=True):
    """What each sweep sends to an OpenTelemetry collector. The environment names the collector."""

    send: tuple[Literal["findings", "trace"], ...] = ()


class SlurmSettings(Table, frozen=True, kw_only=True):
    """How nodevet drains nodes of Slurm."""

    reason_tag: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$", title="a word (HC)")] = ""
    """Put this word in brackets before each check of a reason: `[HC] nodevet:local xid`."""


class LauncherSettings(Table, frozen=True, kw_only=True):
    """How to start nodevet on another machine; the paths are those of that machine."""

    command: Text
    ssh_config: Text | None = None
    known_hosts: Text | None = None
    key_file: Text | None = None


class SweepSettings(Table, frozen=True, kw_only=True):
    """One sweep. Paths are relative to the folder of nodevet.toml."""

    lists: ClassVar = ("inventory", "hosts", "limit", "baseline")
    times: ClassVar = ("jitter", "within", "deadline", "connect_timeout", "sample")

    inventory: Texts = ()
    hosts: Texts = ()
    limit: Texts = ()
    baseline: Texts = ()
    project: Text | None = None
    fail_on: Text = "warning"
    outputs: Mapping[str, Text] = {}
    """The output files, by format."""
    save: Text | None = None
    """A folder for the evidence, in addition to the store."""
    since: bool = True
    """Judge counters and the kernel log by their changes since the last sweep."""
    notify: NotifySettings | bool | None = None
    """Replaces the table of the file; false: notify nobody."""
    budget: BudgetSettings | bool | None = None
    retention: RetentionSettings | bool | None = None
    at: Text = "02:30"
    """When the timer starts it, as OnCalendar of systemd.time(7)."""
    jitter: Text | None = None
    """Delay the start by a random time up to this."""
    within: Text | None = None
    """Time limit of the whole sweep; hosts that it did not reach are named."""
    second_try: bool = True
    heartbeat: Text | None = None
    """A file of metrics with the times of its last start and end."""
    parallel: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    connect_timeout: Text | None = None
    deadline: Text | None = None
    """Time limit of one host."""
    sample: Text | None = None
    ssh_config: Text | None = None
    known_hosts: Text | None = None
    accept_new: bool = False
    sudo: bool = False
    user: Text | None = None
    """For hosts for which the inventory names none."""
    expect_hostname: bool = True

    def wrong(self) -> Iterator[FieldError]:
        yield from super().wrong()
        try:
            fail_on(self.fail_on)
        except ValueError as error:
            yield FieldError(str(error), "fail_on")
        if not self.inventory and not self.hosts:
            yield FieldError('names no hosts; add inventory = "fleet.yaml", or hosts')
        if self.sample and self.since:
            yield FieldError("cannot be used with since; add since = false", "sample")


class Settings(Table, frozen=True, kw_only=True):
    """The whole file."""

    store: Text | None = None
    project: Text = "."
    """Folder with checks/, fixes/ and baselines/."""
    site: Text | None = None
    """Folder for the history as web pages, written after each sweep."""
    engine: Text | None = None
    launchers: Mapping[Name, Text | LauncherSettings] = {}
    sites: Mapping[Text, Text | tuple[Text, ...]] = {}
    notify: NotifySettings = NotifySettings()
    budget: BudgetSettings | Literal[False] = BudgetSettings()
    retention: RetentionSettings | Literal[False] = RetentionSettings()
    otel: OtelSettings = OtelSettings()
    slurm: SlurmSettings = SlurmSettings()
    sweep: Mapping[Name, SweepSettings] = {}


class FailOn(msgspec.Struct, frozen=True, kw_only=True):
    """The failures for which the exit code is 1."""

    severity: Severity = Severity.WARNING
    new: bool = False  # only failures that began since the last recorded visit

    def __str__(self) -> str:
        return f"{NEW}:{self.severity.value}" if self.new else self.severity.value


def fail_on(text: str) -> FailOn:
    """`warning`, `new`, `new:critical`. Raises ValueError."""
    head, colon, rest = text.partition(":")
    severity = rest if head == NEW and colon else head
    if head == NEW and not colon:
        return FailOn(new=True)
    if severity not in FAIL_ON:
        known = ", ".join([*FAIL_ON, NEW, *(f"{NEW}:{name}" for name in FAIL_ON)])
        raise ValueError(f"must be one of {known}, not {text[:40]!r}")
    return FailOn(severity=Severity(severity), new=head == NEW)
