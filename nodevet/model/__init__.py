"""The nouns of a check and of a host, in the order data meets them. No I/O.

Every noun is a frozen value. Nouns that leave the process (findings, host reports, runs) are
msgspec structs, so they have one JSON form.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import msgspec

from nodevet.base.shared import shared

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda kind: kind


Value = Any
"""A JSON-like scalar, list or dict: what a finding expects or saw."""


class Verdict(str, Enum):
    """What a check reports about one subject."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"  # the evidence does not say
    NOT_APPLICABLE = "not_applicable"  # the question does not arise here
    WAIVED = "waived"  # it fails, but a named person accepted it until a date


class Severity(str, Enum):
    """How much a failed finding matters; ordered by `rank`."""

    SHADOW = "shadow"  # tried out: judged and recorded, and of no consequence
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class NeededAction(str, Enum):
    """What a failed finding needs. Reports leave out `none`, which all other findings have."""

    NONE = "none"
    LIVE_FIX = "live_fix"  # a fix of nodevet, while jobs run
    DRAIN_FIX = "drain_fix"  # a fix of nodevet, on a drained node or idle GPUs
    GPU_RESET = "gpu_reset"
    REBOOT = "reboot"  # also by a fix of nodevet
    POWER_CYCLE = "power_cycle"  # off and on
    RMA = "rma"  # a part is replaced
    SITE = "site"  # a person decides or does it: no fix, or not by this node alone

    @property
    def rank(self) -> int:
        return list(NeededAction).index(self)

    @property
    def words(self) -> str:
        """In words: `fixable now`, `needs a GPU reset`; empty for none."""
        return _NEEDS[self]


_NEEDS = {
    NeededAction.NONE: "",
    NeededAction.LIVE_FIX: "fixable now",
    NeededAction.DRAIN_FIX: "fixable after draining",
    NeededAction.GPU_RESET: "needs a GPU reset",
    NeededAction.REBOOT: "needs a reboot",
    NeededAction.POWER_CYCLE: "needs a power cycle",
    NeededAction.RMA: "needs a new part",
    NeededAction.SITE: "needs a person",
}


class Area(str, Enum):
    """The area of a node that a check is about; it groups the pages of checks, in this order."""

    GPU = "GPU"
    PCIE = "PCIe"
    CPU = "CPU and NUMA"
    MEMORY = "memory"
    STORAGE = "storage"
    NETWORK = "network"
    KERNEL = "kernel and services"
    SOFTWARE = "software stack"
    CHASSIS = "chassis and BMC"
    SITE = "of this site"


class Status(str, Enum):
    """How the visit to one host ended. Every host of a run has exactly one."""

    VETTED = "vetted"
    UNREACHABLE = "unreachable"  # no session: refused, no route, hung up, ...
    NOT_VISITED = "not_visited"  # for a reason of this machine: a key, a name, ssh_config, ...
    TIMEOUT = "timeout"  # a session or an answer that did not come in time
    PROBE_FAILED = "probe_failed"  # a session, but no usable evidence came back
    UNREADABLE = "unreadable"  # its saved evidence cannot be read; no host was visited
    INTERRUPTED = "interrupted"  # the run was ended before this host was done


class HostOutcome(str, Enum):
    """The outcome of one host of a run, in the order of the totals. Every host has exactly one."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"
    NOT_VISITED = "not_visited"
    TIMEOUT = "timeout"
    PROBE_FAILED = "probe_failed"
    UNREADABLE = "unreadable"
    INTERRUPTED = "interrupted"
    WAIVED = "waived"

    @property
    def words(self) -> str:
        """In words: `timed out`, `probe failed`."""
        return "timed out" if self is HostOutcome.TIMEOUT else self.value.replace("_", " ")


OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
CRITICAL, SHADOW = Severity.CRITICAL, Severity.SHADOW
"""For what runs for every finding: before Python 3.12 an enum finds its attributes slowly."""


NOUNS = {
    "bmc_event": "BMC event",
    "bmc_fan": "fan",
    "bmc_leak": "leak detector",
    "bmc_psu": "power supply",
    "bmc_redundancy": "redundancy",
    "bmc_sensor": "sensor",
    "bmc_temperature": "temperature",
    "gpu": "GPU",
    "mig": "MIG",
    "numa": "NUMA node",
    "nvme": "NVMe drive",
    "rdma": "RDMA device",
}
"""The names that people use for kinds of subjects, if they differ from the evidence."""


class Subject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a finding is about: a GPU, a CPU frequency policy, a process, the node."""

    kind: str = "node"  # node, gpu, cpufreq, process, module, pci, filesystem, sysctl, unit, ...
    id: str = ""  # stable within the kind: GPU index, policy list, pid, name
    uuid: str | None = None  # a GPU's UUID
    bus_id: str | None = None  # PCI address as sysfs spells it, 0000:19:00.0

    @property
    def label(self) -> str:
        """In words: `GPU 4`, `cpufreq 0-63`, `` for the node itself."""
        if self.kind == "node":
            return ""
        return f"{self.noun} {self.id}"

    @property
    def noun(self) -> str:
        """The kind as people say it: `GPU`, `NUMA node`, `cpufreq`."""
        return NOUNS.get(self.kind, self.kind)

    @property
    def stable_id(self) -> str:
        """The name that stays the same night after night: its UUID, else its bus address, else its
        id.

        A GPU's index moves when another GPU falls off the bus; its UUID does not.
        """
        return self.uuid or self.bus_id or self.id


NODE = Subject()
MORE = Subject(kind="and", id="more")
"""The findings of a check beyond the listed ones; one for each verdict, whose `why` has the
number.
"""


def _critical() -> "Severity":
    return CRITICAL


BUS_ID = "BUS_ID"
"""Names the part in the commands of an advice: its number may be another part's by then."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One verdict on one subject; `expected` and `actual` make the diff.

    A check yields it without the last block, which the judge fills in. In JSON it omits default
    values, but never its severity.
    """

    verdict: Verdict
    subject: Subject = NODE
    expected: Value = None
    actual: Value = None
    unit: str = ""  # of both: W, MHz, GT/s
    why: str = ""  # only what expected and actual cannot say
    advice: str = ""  # what to do next, if no setting can help; the same for every part
    # of this part alone: its serial, what was measured besides
    details: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    last: str | msgspec.UnsetType = msgspec.UNSET  # when it last happened, ISO 8601
    # where this comes from, if that fails on the same host: a check, on the same part or of the
    # node on any; or a check and the part, `services unit nvidia-fabricmanager.service`
    cause: str | msgspec.UnsetType = msgspec.UNSET

    check: str = ""
    severity: Severity = msgspec.field(default_factory=_critical)  # never left out
    origin: str = ""  # file:line of the params
    waiver: str = ""  # owner, reason, until; also when it has expired
    transient: bool = False  # unknown in a state of the node that passes by itself: look again
    action: NeededAction = NeededAction.NONE  # of a failure

    @property
    def own_advice(self) -> str:
        """The advice, with the PCI bus id of this part in the place of BUS_ID."""
        return self.advice.replace(BUS_ID, self.subject.bus_id or BUS_ID)

    @property
    def key(self) -> str:
        """The subject of this finding, the same from run to run: `CHECK/KIND/STABLE_ID`.

        `power_limit/gpu/GPU-5f1c…`, `pcie_errors/pci/0000:19:00.0`, `sysctl/sysctl/vm.swappiness`,
        and `clock_skew/node` for the node itself. Findings of one check about one subject share
        a key; on a host, check and subject together are the identity of a difference.

        Printable ASCII without spaces, at most KEY_PART characters a part: every other character
        is percent-encoded as in a URL path, and a longer part ends in `~` and a hash of the whole.
        """
        parts = (self.check, self.subject.kind, self.subject.stable_id)
        return "/".join(_key_part(part) for part in parts if part)

    def text(self, value: Value) -> str:
        """A value as people read it, with the finding's unit."""
        shown = show(value)
        return f"{shown} {self.unit}" if self.unit and value is not None else shown


KEY_PART = 128


def _key_part(text: str) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    encoded = quote(raw, safe=":@,+=")
    if len(encoded) <= KEY_PART:
        return encoded
    import hashlib  # which takes long, and few parts are so long

    digest = hashlib.sha256(raw).hexdigest()[:16]
    return f"{encoded[: KEY_PART - 17]}~{digest}"


def show(value: Value) -> str:
    """A value on one line: `on`, `8`, `a, b`, `x: 1, y: 2`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(show(item) for item in value) or "none"
    return str(value)


def ok(
    subject: Subject = NODE, *, expected: Value = None, actual: Value = None, **rest: Any
) -> Finding:
    return Finding(
        verdict=OK,
        subject=subject,
        expected=expected,
        actual=actual,
        severity=CRITICAL,
        **rest,
    )


def fail(subject: Subject = NODE, **rest: Any) -> Finding:
    return Finding(verdict=Verdict.FAIL, subject=subject, **rest)


def unknown(subject: Subject = NODE, *, why: str, **rest: Any) -> Finding:
    return Finding(verdict=Verdict.UNKNOWN, subject=subject, why=_in_words(why), **rest)


_ERRNO = re.compile(r"(^|: )(E[A-Z0-9]{2,15})(?=$|;)")


def _in_words(why: str) -> str:
    """What the errnos in a reason mean, too.

    >>> _in_words("governor: EIO")
    'governor: input/output error (EIO)'
    """

    def worded(match: re.Match[str]) -> str:
        number = getattr(errno, match[2], None)
        return f"{match[1]}{os.strerror(number).lower()} ({match[2]})" if number else match[0]

    return _ERRNO.sub(worded, why) if "E" in why else why


def not_applicable(subject: Subject = NODE, *, why: str, **rest: Any) -> Finding:
    return Finding(verdict=Verdict.NOT_APPLICABLE, subject=subject, why=why, **rest)


def compare(subject: Subject, *, expected: Value, actual: Value, **rest: Any) -> Finding:
    """OK when equal, FAIL when not. Never pass an unread value as `actual`."""
    verdict = OK if actual == expected else FAIL
    return Finding(verdict=verdict, subject=subject, expected=expected, actual=actual, **rest)


@dataclass_transform(frozen_default=True)
class CheckParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a baseline may say about one check; each check's module has its own as `Params`.

    Fields are limited with `Annotated[int, msgspec.Meta(ge=0)]`; what a limit cannot say,
    `__post_init__` says with a ValueError, of one field with a FieldError.
    `bare` names the field that a plain value fills: `gpu_count: 8` means
    `gpu_count: {count: 8}`. `whole` names the field that the whole mapping fills, where its keys
    are names of the node's: `sysctl: {vm.swappiness: 10}` means `{parameters: {...}}`.
    """

    bare: ClassVar[str | None] = None
    whole: ClassVar[str | None] = None


def one_or_more(params: msgspec.Struct, *fields: str) -> None:
    """For a `__post_init__`: in these fields one value stands for a list of it.

    A field of `str | tuple[str, ...]` then always holds a tuple.
    """
    for name in fields:
        value = getattr(params, name)
        if value is not None and not isinstance(value, tuple):
            msgspec.structs.force_setattr(params, name, (value,))


class FieldError(ValueError):
    """Raised by a `__post_init__`: what is wrong with one field, or with what lies in it."""

    more: tuple["FieldError", ...] = ()  # what is wrong besides

    def __init__(self, message: str, *path: str | int) -> None:
        self.path = path
        super().__init__(message)


def refuse(found: Iterable[FieldError]) -> None:
    """Raise all of these as one, if there are any; each names its place."""
    errors = tuple(found)
    if errors:
        errors[0].more = errors[1:]
        raise errors[0]


Judge = Callable[[Any, Any], Iterator[Finding]]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A pure question: the same evidence and params give the same findings.

    `reads` lists every place in the evidence that can change a verdict, as
    `section.field`, with `[]` for the items of a list:
    `gpu.gpus[].persistence_mode`; with `earlier.` before it, what a sample of
    counters had before (nodevet.evidence.rates). Tests hold it to that.
    """

    params: type[CheckParams]
    reads: tuple[str, ...]
    judge: Judge
    area: Area = Area.SITE
    severity: Severity = Severity.CRITICAL
    follows: tuple[str, ...] = ()
    """If one of these checks fails on a part, this check fails on it as a consequence."""
    asks: Callable[[Any], Mapping[str, tuple[Any, ...]]] | None = None
    """From its params: what the probe must read, by section (sysctl, services, …): names, or JSON
    objects with the questions about each.
    """
    runs: Callable[[Any], tuple[str, ...]] | None = None
    """From its params: the commands that are run on each node, as a person would type them. Only a
    baseline that says `allow_commands: true` may ask for them."""
    actions: Mapping[str, NeededAction] = {}
    """What a failure needs, by a text of its advice; the first text that the advice has counts.
    Other failures need the check's fix, or a person if it has none."""
    severities: Callable[[Any], Mapping[str, Severity]] | None = None
    """From its params: the severity of a failure of single subjects, by their id, if they state
    one; it overrides the baseline's severity for the check.
    """
    unasked: str = ""
    """Why shipped baselines leave it out: which ask it, or what only a site knows."""
    learn: Callable[[Any], Value] | None = None
    """From the evidence of a good node: what a baseline would say of it, as YAML has it (a plain
    value or a mapping of the params' fields); None where the evidence does not say. Never what is
    a part's identity or changes by itself: serials, addresses, counters, temperatures. Without it,
    a check whose params are all optional is learnt with its defaults, any other is not."""

    explains: tuple[str, ...] = ()
    """Sections that change no verdict, only its reason, advice or cause. Tests hold it to that."""

    @property
    def sections(self) -> frozenset[str]:
        """Every section that can change a finding."""
        read = frozenset(path.removeprefix("earlier.").split(".", 1)[0] for path in self.reads)
        return read.union(self.explains)


class Bmc(msgspec.Struct, frozen=True, kw_only=True):
    """The management controller of a node, and how to reach it. It holds no secret."""

    kind: str  # redfish or ipmi
    address: str
    port: int | None = None  # None: 443 of redfish, 623 of ipmi
    user: str
    password: tuple[str, Any]  # ("file", path), ("env", name) or ("command", words)
    ca: str | None = None  # file with the certificates to trust; None: those of this machine
    insecure: bool = False  # the certificate is not verified
    power_group: str | None = None  # of its nodes one at a time is switched off and on
    identity: str | None = None  # unproven: it may switch a node that it is not proven to belong to
    timeout: float = 60.0  # seconds for one reading of it, and for one answer in a power cycle


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A node and how to reach it. `name` is its only identity in reports."""

    name: str
    local: bool = False
    address: str | None = None  # None: what ssh_config or the resolver make of the name
    port: int | None = None
    user: str | None = None
    key_file: str | None = None
    known_hosts: str | None = None  # None: what ssh_config says, else ssh's own files
    groups: frozenset[str] = frozenset()
    root: str = "/"  # where the probe finds /sys and /proc
    whole_machine: bool = False  # a container that stands for a machine, or a tree with its NVML
    python: str | None = None  # None: the first of the usual names that exists
    sudo: bool = False
    expect_hostname: bool | str = True  # the node's own host name; True: what `name` says
    bmc: Bmc | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A host in facts, for people; no check uses it. Unread values are None or empty.

    The mappings say how many GPUs share a value: `{"NVIDIA H100 80GB HBM3": 8}`.
    """

    machine: str | None = None  # vendor and product, as the firmware says them
    os: str | None = None  # Ubuntu 22.04.4 LTS
    kernel: str | None = None  # 5.15.0-105-generic
    architecture: str | None = None  # x86_64
    uptime_s: int | None = None  # when the evidence was read, so before `HostReport.clock`
    memory_kb: int | None = None
    driver: str | None = None  # 550.90.07
    cuda: str | None = None  # the newest that the driver supports: 12.4
    gpus: Mapping[str, int] = {}  # by name; one that is not in NVML by its id: PCI 10de:2330
    links: Mapping[str, int] = {}  # Gen5 x16
    power_limits_mw: Mapping[str, int] = {}


class CountedFindings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The number of findings that one check has with one verdict and severity; nodevet saves only
    this number."""

    check: str
    verdict: Verdict  # ok or not_applicable
    severity: Severity
    count: int


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One host of a run: how the visit ended and what was found."""

    host: str
    status: Status
    why: str = ""  # of a status other than vetted
    baseline: str = ""
    findings: tuple[Finding, ...] = ()
    machine_id: str | None = None
    boot_id: str | None = None
    # of the GPUs that NVML lists, virtual ones excepted; not there if there are none
    gpu_uuids: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    arrived: str = ""  # when the evidence came in by the controller's clock, ISO 8601; or unknown
    clock: str = ""  # when it was read by the node's own clock, ISO 8601; or unknown
    seconds: float = 0.0
    groups: tuple[str, ...] = ()
    facts: HostFacts | None = None  # of a host that was vetted; None too in runs saved before 0.2
    first_try: str | msgspec.UnsetType = msgspec.UNSET  # of a second try: how the first one ended
    # of severity shadow, which are not among `findings`; not there if there are none
    shadow: tuple[Finding, ...] | msgspec.UnsetType = msgspec.UNSET
    # those that a run saved without --all does not list: ok and not applicable, in shadow too
    counted: tuple[CountedFindings, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def kinds(self) -> Counter[tuple[Verdict, Severity]]:
        """The number of findings of each kind, listed or counted; those in shadow excepted."""
        kinds = Counter([(finding.verdict, finding.severity) for finding in self.findings])
        for each in self.counted or ():
            if each.severity is not Severity.SHADOW:
                kinds[each.verdict, each.severity] += each.count
        return kinds

    @property
    def verdict(self) -> Verdict:
        """Like that of the summary."""
        return self.summary.verdict

    @property
    def is_transient(self) -> bool:
        """Whether something is unknown, and all of it since a state that passes by itself."""
        unknown = [finding for finding in self.findings if finding.verdict is Verdict.UNKNOWN]
        vetted = self.status is Status.VETTED
        return vetted and bool(unknown) and all(finding.transient for finding in unknown)

    @property
    def unjudged(self) -> str:
        """Like that of the summary."""
        return self.summary.unjudged

    @property
    def why_unjudged(self) -> str:
        """Like that of the summary."""
        return self.summary.why_unjudged

    @property
    def outcome(self) -> HostOutcome:
        """Like that of the summary."""
        return self.summary.outcome

    @property
    def summary(self) -> "HostSummary":
        """The report without what its findings say."""
        in_shadow = (each.severity is Severity.SHADOW for each in self.counted or ())
        return HostSummary(
            host=self.host,
            status=self.status,
            why=self.why,
            baseline=self.baseline,
            machine_id=self.machine_id,
            boot_id=self.boot_id,
            gpu_uuids=self.gpu_uuids or (),
            arrived=self.arrived,
            clock=self.clock,
            seconds=self.seconds,
            findings=shared(tuple((*kind, number) for kind, number in self.kinds.items())),
            shadow=bool(self.shadow) or any(in_shadow),
            first_try=self.first_try or "",
        )


class HostSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One host of a run, and how many findings of each kind it has: all that totals need."""

    host: str
    status: Status
    why: str
    baseline: str
    machine_id: str | None
    boot_id: str | None
    gpu_uuids: tuple[str, ...]
    arrived: str
    clock: str
    seconds: float
    findings: tuple[tuple[Verdict, Severity, int], ...]
    shadow: bool  # whether a check of severity shadow said something
    first_try: str = ""

    @property
    def verdicts(self) -> set[Verdict]:
        return {verdict for verdict, _, _ in self.findings}

    @property
    def verdict(self) -> Verdict:
        """Worst first: fail, unknown, waived, ok. Never ok without an ok finding."""
        verdicts = self.verdicts if self.status is Status.VETTED else ()
        for worst in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED, Verdict.OK):
            if worst in verdicts:
                return worst
        return Verdict.UNKNOWN

    @property
    def unjudged(self) -> str:
        """Why nothing is known of the host; empty if something is."""
        if self.status is not Status.VETTED:
            return self.why or "no reason was recorded"
        verdicts = self.verdicts
        if not verdicts and self.shadow:
            return "nothing was judged: every check has severity shadow"
        if not verdicts:
            return "nothing was judged: no expectations"
        if verdicts == {Verdict.NOT_APPLICABLE}:
            return "nothing was judged: every check is not applicable"
        return ""

    @property
    def why_unjudged(self) -> str:
        """As `unjudged`, with how the first of two tries ended."""
        why, first = self.unjudged, self.first_try
        if not first or not why:
            return why
        return f"{why} (second try{'' if first == why else f'; first: {first}'})"

    @property
    def outcome(self) -> HostOutcome:
        """How the host came out: its verdict, or why it was not vetted."""
        vetted = self.status is Status.VETTED
        return HostOutcome(self.verdict.value if vetted else self.status.value)
