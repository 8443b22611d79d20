"""The records of the store: runs and visits, findings as spans of time, parts and their places.

A moment is the visit of one run to one host. Runs are in the order in which they began.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from nodevet.model import Finding, HostOutcome, Severity, Status, Verdict


class RunState(str, Enum):
    """The state of a recorded run."""

    RUNNING = "running"  # or killed
    COMPLETE = "complete"  # every host has a result
    INCOMPLETE = "incomplete"  # it ended early, or not all results could be recorded


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded run."""

    id: str  # nodevet.model.new_run_id
    series: str  # the name of the sweep; empty: a check by hand
    started: str  # ISO 8601 with offset
    seconds: float | None  # None: it has not ended
    state: RunState
    nodevet: str
    fail_on: Severity
    hosts: int  # that it was to visit
    visited: int  # of these, those that are recorded
    outcomes: Mapping[HostOutcome, int]
    baselines: Mapping[str, str]  # name -> sha256
    exit_code: int | None = None


class RecordedVisit(msgspec.Struct, frozen=True, kw_only=True):
    """One host of one recorded run. If it was tried twice, this is the second try."""

    run: str
    host: str
    status: Status
    why: str  # the reason of a status other than vetted
    outcome: HostOutcome
    seconds: float
    arrived: str  # by the clock of the controller, ISO 8601; empty: unknown
    machine_id: str | None
    boot_id: str | None
    baseline: str  # that judged it; empty: none
    groups: tuple[str, ...]
    evidence: bool  # whether its evidence is kept
    thinned: bool = False  # whether its evidence was pruned


class Moment(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """When something was seen, and by which run."""

    at: str  # UTC, ISO 8601
    run: str


class SpanEnd(str, Enum):
    """What followed a finding."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    WAIVED = "waived"
    CHANGED = "changed"  # the same verdict, with other values
    GONE = "gone"  # the check no longer judges this subject, or is no longer in the baseline
    REPLACED = "replaced"  # the host is another machine, or was re-imaged
    CAME_BACK = "came_back"  # a run of fixes proved it fixed, and the next visit saw it again


class FindingSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A finding other than ok and not applicable, on a host, for as long as it stayed the same.

    Spans of one host, baseline and key follow one another. A visit without a verdict ends none of
    them. The status of a host as a whole (`unreachable`) is a span with an empty check.
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
    end: SpanEnd | None = None  # None: the last judged visit of the host saw it
    ended: Moment | None = None  # the first visit without it
    since: Moment | None = None  # when this verdict began, maybe with other values; None: `first`
    since_visit: int  # number in the store of the visit in which this verdict began
    last_visit: int = 0  # number of the visit of `last`
    ended_visit: int | None = None  # number of the visit of `ended`
    after_plan: str = ""  # it came back after a run of this plan proved it fixed


class BegunTogether(msgspec.Struct, frozen=True, kw_only=True):
    """A check that hosts began to fail in one run, and that some of them still fail."""

    check: str
    run: str
    series: str
    started: str  # the run, ISO 8601 with offset
    still: frozenset[str]  # the hosts that fail it since then
    hosts: int  # that began to fail it
    judged: int  # hosts that this run judged


class PartKind(str, Enum):
    """The kinds of parts that the store follows from host to host."""

    GPU = "gpu"  # by its UUID
    NIC = "nic"  # by its GUID or permanent MAC address
    NVME = "nvme"  # by model and serial number
    DRIVE = "drive"  # SATA and SAS, by serial number


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part that can move to another host."""

    kind: PartKind
    id: str  # the id that it is followed by
    model: str = ""
    names: tuple[str, ...] = ()  # other ids: serial and part number as printed on it, VBIOS


class PartPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A part in one slot, for as long as it stayed there."""

    part: Part
    host: str
    slot: str  # PCI address, or the name of the device
    first: Moment
    last: Moment
    open: bool  # whether the last vetted visit of the host saw it there


class CounterPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A counter after a change."""

    host: str
    part: str  # Part.id; empty: a counter of the host
    name: str  # section.field: gpu.ecc_aggregate_uncorrected
    subject: str  # a PCI address or a name; empty: the part or the host as a whole
    value: int
    moment: Moment
    boot_id: str | None


class RecordedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded plan of fixes."""

    digest: str  # SHA-256 of its text
    id: str
    author: str
    created: str  # ISO 8601
    hosts: Mapping[str, tuple[str, ...]]  # host -> its fixes, in their order


class FixHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a run of fixes reached."""

    host: str
    outcome: str  # an Outcome of nodevet.fixing.result
    why: str = ""


class RecordedFixRun(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a run of fixes: an apply, a resumed apply, or a rollback."""

    id: str  # when it began, and the name of its folder
    kind: str  # apply, rollback
    plan: str  # its id
    digest: str  # its SHA-256
    author: str
    approvals: tuple[str, ...] = ()  # the people
    by: str = ""  # who ran it, and on which controller
    folder: str  # of the run; its journal is the full record
    started: str  # ISO 8601 with offset
    seconds: float
    exit_code: int | None = None  # None: it was killed, or still runs
    outcomes: Mapping[str, int] = {}  # of all its hosts
    hosts: tuple[FixHost, ...] = ()


class RecordedAction(msgspec.Struct, frozen=True, kw_only=True):
    """One resource that a run of fixes changed, or tried to change, on one host."""

    run: str  # RecordedFixRun.id
    kind: str  # apply, rollback
    plan: str  # its id
    host: str
    step: str
    fix: str  # and the check that it is for
    subjects: tuple[str, ...] = ()  # the subjects of the findings: `GPU 4`
    resource: str
    before: str
    after: str  # empty: not known
    outcome: str  # of the step, an Outcome of nodevet.fixing.result
    at: str  # ISO 8601


class FixProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of fixes proved about one check on one host: the findings that are ok on evidence
    that the run read after its last change there. Without keys the run changed something and proved
    nothing."""

    run: str  # RecordedFixRun.id
    plan: str  # its id
    host: str
    check: str
    baseline: str  # that judged
    machine_id: str | None = None
    asked: str  # when the run asked for the evidence, ISO 8601
    at: str  # when the evidence arrived
    keys: tuple[str, ...] = ()  # Finding.key
    subjects: tuple[str, ...] = ()  # labels of the fixed subjects, all of which are ok
    visit: int = 0  # number of the last visit of the host before this record; 0: none

    def covers(self, key: str, finding: Finding | None) -> bool:
        """Whether the proof includes the subject of a finding of this key. A subject without a
        lasting name, such as a group of CPUs or a process, is compared by label, since a step may
        have replaced it."""
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
    machine_id: str  # of the last visit of the host before; empty: unknown


class RecordedIncident(msgspec.Struct, frozen=True, kw_only=True):
    """The cause that `nodevet diagnose` found on one host."""

    host: str
    at: str  # ISO 8601
    cause: str
    bundle: int  # its number in the store
