"""The nouns of memory: recorded runs and visits, findings as spans of time, parts and their places.

A moment is the visit of one run to one host. Runs are in the order in which they began.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from nodevet.model import Finding, HostOutcome, Severity, Status, Verdict


class RunState(str, Enum):
    """How far a recorded run came."""

    RUNNING = "running"  # or killed: nobody has it any more
    COMPLETE = "complete"  # every host is accounted for
    INCOMPLETE = "incomplete"  # ended early, or what it saw could not all be recorded


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it was recorded."""

    id: str  # nodevet.model.new_run_id
    series: str  # the name of the sweep; empty: a check by hand
    started: str  # ISO 8601 with offset
    seconds: float | None  # None: it has not ended
    state: RunState
    nodevet: str
    fail_on: Severity
    hosts: int  # that it was asked to visit
    visited: int  # of these, how many are recorded
    outcomes: Mapping[HostOutcome, int]
    baselines: Mapping[str, str]  # name -> sha256
    exit_code: int | None = None


class RecordedVisit(msgspec.Struct, frozen=True, kw_only=True):
    """One host of one run as it was recorded; of a host tried twice, the second try."""

    run: str
    host: str
    status: Status
    why: str  # of a status other than vetted
    outcome: HostOutcome
    seconds: float
    arrived: str  # by the controller's clock, ISO 8601; empty: unknown
    machine_id: str | None
    boot_id: str | None
    baseline: str  # that it was judged by; empty: none
    groups: tuple[str, ...]
    evidence: bool  # whether it is still kept
    thinned: bool = False  # evidence was kept, and was pruned since


class Moment(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """When something was seen."""

    at: str  # UTC, ISO 8601
    run: str


class SpanEnd(str, Enum):
    """What a finding was followed by."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    WAIVED = "waived"
    CHANGED = "changed"  # the same verdict, with other values
    GONE = "gone"  # the check speaks no longer of this subject, or is no longer asked
    REPLACED = "replaced"  # the host is another machine, or was re-imaged
    CAME_BACK = "came_back"  # a run of fixes proved it fixed, and the next visit saw it again


class FindingSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A finding other than ok and not applicable, on a host, for as long as it stayed the same.

    Spans of one host, baseline and key follow one another. A host that is not vetted ends none.
    What a host as a whole came to (`unreachable`) is a span with an empty check.
    """

    host: str
    baseline: str
    key: str  # Finding.key; empty: the host as a whole
    check: str
    verdict: Verdict  # fail, unknown, waived
    severity: Severity
    finding: Finding | None  # as it was first seen; None: the host as a whole, see `why`
    why: str = ""
    first: Moment
    last: Moment  # when it was last seen
    end: SpanEnd | None = None  # None: it was so at the host's last judged visit
    ended: Moment | None = None  # when that was seen
    since: Moment | None = None  # when this verdict began, maybe with other values; None: `first`
    since_visit: int  # in which this verdict began, by its number in the store
    last_visit: int = 0  # of `last`
    ended_visit: int | None = None  # of `ended`
    after_plan: str = ""  # it came back after a run of this plan had proved it fixed


class BegunTogether(msgspec.Struct, frozen=True, kw_only=True):
    """A check that hosts began to fail in one run, and that some of them fail still."""

    check: str
    run: str
    series: str
    started: str  # the run, ISO 8601 with offset
    still: frozenset[str]  # the hosts that fail it since then
    hosts: int  # that began to
    judged: int  # in that run


class PartKind(str, Enum):
    """What is followed from host to host."""

    GPU = "gpu"  # by its UUID
    NIC = "nic"  # by its GUID or permanent MAC address
    NVME = "nvme"  # by model and serial number
    DRIVE = "drive"  # SATA and SAS, by serial number


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that can be taken out and put in elsewhere."""

    kind: PartKind
    id: str  # what it is followed by
    model: str = ""
    names: tuple[str, ...] = ()  # other ids: serial and part number as printed on it, VBIOS


class PartPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a part was, for as long as it stayed there."""

    part: Part
    host: str
    slot: str  # PCI address, or the name of the device
    first: Moment
    last: Moment
    open: bool  # there at the host's last vetted visit


class CounterPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A counter when it had moved."""

    host: str
    part: str  # Part.id; empty: of the host
    name: str  # section.field: gpu.ecc_aggregate_uncorrected
    subject: str  # a PCI address or a name; empty: of the part or the host as a whole
    value: int
    moment: Moment
    boot_id: str | None


class RecordedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of fixes that was written."""

    digest: str  # SHA-256 of its text
    id: str
    author: str
    created: str  # ISO 8601
    hosts: Mapping[str, tuple[str, ...]]  # host -> its fixes, in their order


class FixHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a run of fixes came to."""

    host: str
    outcome: str  # nodevet.fixing.result's words
    why: str = ""


class RecordedFixRun(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a run of fixes: an apply, one that was resumed, or a rollback."""

    id: str  # when it began, and the name of its folder
    kind: str  # apply, rollback
    plan: str  # its id
    digest: str  # its SHA-256
    author: str
    approvals: tuple[str, ...] = ()  # who
    by: str = ""  # who ran it, and on which controller
    folder: str  # of the run: its journal is the whole truth
    started: str  # ISO 8601 with offset
    seconds: float
    exit_code: int | None = None  # None: it was killed, or goes on
    outcomes: Mapping[str, int] = {}  # of all hosts that it was for
    hosts: tuple[FixHost, ...] = ()


class RecordedAction(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that a run of fixes changed on one host, or tried to."""

    run: str  # RecordedFixRun.id
    kind: str  # apply, rollback
    plan: str  # its id
    host: str
    step: str
    fix: str  # and the check that it answers
    subjects: tuple[str, ...] = ()  # what the check had said it of: `GPU 4`
    resource: str
    before: str
    after: str  # empty: not known
    outcome: str  # of the step, in nodevet.fixing.result's words
    at: str  # ISO 8601


class FixProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of fixes left of one check on one host: what the check said ok of, on evidence
    that the run read after its last change there. Without keys: the run changed something, and
    proved nothing."""

    run: str  # RecordedFixRun.id
    plan: str  # its id
    host: str
    check: str
    baseline: str  # that judged
    machine_id: str | None = None
    asked: str  # when the evidence was asked for, ISO 8601
    at: str  # when it had come
    keys: tuple[str, ...] = ()  # Finding.key
    subjects: tuple[str, ...] = ()  # labels of what was fixed, of which each is ok
    visit: int = 0  # the host's last when this was recorded, by its number in the store; 0: none

    def covers(self, key: str, finding: Finding | None) -> bool:
        """Whether the check said ok of what a finding of this key is about. Of what has no lasting
        name, as groups of CPUs and processes, the label is compared: a step may have made it
        another one."""
        if finding is None:
            return False
        subject = finding.subject
        by_label = not (subject.uuid or subject.bus_id) and subject.label in self.subjects
        return key in self.keys or by_label


class FailedFix(msgspec.Struct, frozen=True, kw_only=True):
    """A fix that failed on a host in a run of fixes."""

    folder: str  # of the run
    host: str
    fix: str
    machine_id: str  # of the host's last visit before; empty: not known


class RecordedIncident(msgspec.Struct, frozen=True, kw_only=True):
    """What `nodevet diagnose` watched on one host, and what it came to."""

    host: str
    at: str  # ISO 8601
    cause: str
    bundle: int  # what the store keeps it under
