"""Compare two recorded runs: what is new, fixed, gone, changed, lost and back. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.installed import InstalledPackages
from nodevet.evidence.memory import Memory
from nodevet.evidence.nvme import Nvme
from nodevet.model import NODE, Finding, Status, Verdict
from nodevet.past.moves import PartMove
from nodevet.store.records.model import (
    FindingSpan,
    RecordedAction,
    RecordedRun,
    RecordedVisit,
    SpanEnd,
)
from nodevet.store.records.parts import SECTIONS
from nodevet.store.records.spans import SERIOUS

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)
CMDLINE = "kernel command line"
READS = (*SECTIONS, "host", "installed", "memory")
"""The sections that hold parts and facts."""
MANY = 60  # facts of one host that are compared


class FindingDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host that changed between the two runs."""

    host: str
    before: Finding | None = None  # None: no such trouble
    after: Finding | None = None
    since: str = ""  # when this verdict began, ISO 8601
    by: RecordedAction | None = None  # the change that fixed it, if that is certain


class HostDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A host that one run could judge and the other could not."""

    host: str
    before: str = ""  # why it was not judged; empty: it was
    after: str = ""


class FactDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed in the same way on several hosts."""

    what: str  # driver, kernel, package tuned
    before: str  # empty: absent
    after: str
    hosts: tuple[str, ...]


class RunDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two runs."""

    before: RecordedRun
    after: RecordedRun
    new: tuple[FindingDiff, ...] = ()
    changed: tuple[FindingDiff, ...] = ()  # a trouble in both, with other values
    fixed: tuple[FindingDiff, ...] = ()  # the check says ok now
    resolved: tuple[FindingDiff, ...] = ()  # it was unknown, and the check says ok now
    gone: tuple[FindingDiff, ...] = ()  # waived, not applicable, no longer judged, replaced
    still: int = 0  # troubles that did not change
    lost: tuple[HostDiff, ...] = ()
    back: tuple[HostDiff, ...] = ()
    appeared: tuple[str, ...] = ()  # hosts of the later run only
    vanished: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  # another machine answers to this name
    rebooted: tuple[str, ...] = ()
    parts: tuple[PartMove, ...] = ()
    facts: tuple[FactDiff, ...] = ()
    thinned: int = 0  # hosts whose facts are not compared: their evidence was pruned

    @property
    def nothing(self) -> bool:
        """Whether nothing differs."""
        return not any(
            getattr(self, name)
            for name in ("new", "changed", "fixed", "resolved", "gone", "lost", "back", "appeared")
        ) and not (self.vanished or self.replaced or self.rebooted or self.parts or self.facts)


class RunRecords(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run with its visits and troubles."""

    run: RecordedRun
    visits: Mapping[str, RecordedVisit]
    spans: Mapping[str, tuple[FindingSpan, ...]]  # by host, without those of the host as a whole

    @staticmethod
    def of(
        run: RecordedRun, visits: Iterable[RecordedVisit], spans: Iterable[FindingSpan]
    ) -> "RunRecords":
        by_host: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            if span.check and span.verdict in TROUBLE:
                by_host[span.host].append(span)
        return RunRecords(
            run=run,
            visits={visit.host: visit for visit in visits},
            spans={host: tuple(host_spans) for host, host_spans in by_host.items()},
        )


VerdictsOf = Callable[[str], Mapping[str, Verdict]]
"""The verdicts of a host in the later run, by key."""
FixingAction = Callable[[FindingSpan], RecordedAction | None]
"""The change that fixed a finding, if that is certain."""


def run_diff(
    before: RunRecords,
    after: RunRecords,
    verdicts_of: VerdictsOf,
    facts: Iterable[FactDiff] = (),
    parts: Iterable[PartMove] = (),
    thinned: int = 0,
    fixing_action: FixingAction = lambda span: None,
) -> RunDiff:
    """The differences. A host that could not be judged keeps its earlier troubles."""
    new: list[FindingDiff] = []
    changed: list[FindingDiff] = []
    ended: dict[Verdict, list[FindingDiff]] = {Verdict.FAIL: [], Verdict.UNKNOWN: []}
    gone: list[FindingDiff] = []
    lost, back, replaced, rebooted = [], [], [], []
    unchanged = 0
    for host, visit in after.visits.items():
        visit_before = before.visits.get(host)
        reason_after, reason_before = (
            _reason_unjudged(visit),
            _reason_unjudged(visit_before) if visit_before else "",
        )
        if reason_after and visit_before and not reason_before:
            lost.append(HostDiff(host=host, after=reason_after))
        if reason_before and not reason_after:
            back.append(HostDiff(host=host, before=reason_before))
        if reason_after:
            continue
        is_other_machine = visit_before is not None and _other_machine(visit_before, visit)
        if is_other_machine:
            replaced.append(host)
        elif (
            visit_before
            and visit_before.boot_id
            and visit.boot_id
            and visit_before.boot_id != visit.boot_id
        ):
            rebooted.append(host)
        matched = _EarlierSpans(
            before.spans.get(host, ()) if visit_before and not reason_before else ()
        )
        for span in after.spans.get(host, ()):
            earlier = None if is_other_machine else matched.take(span)
            if earlier is None:
                new.append(_diff(host, None, span))
            elif earlier.finding == span.finding:
                unchanged += 1
            else:
                changed.append(_diff(host, earlier, span))
        unmatched = matched.left
        verdicts = verdicts_of(host) if unmatched and not is_other_machine else {}
        for earlier in unmatched:
            diff = _diff(host, earlier, None)
            replaced_since = is_other_machine or earlier.end is SpanEnd.REPLACED
            verdict = None if replaced_since else _verdict_now(earlier, verdicts)
            if verdict in (None, Verdict.WAIVED, Verdict.NOT_APPLICABLE):
                gone.append(diff)
            elif verdict is Verdict.OK:
                if earlier.ended and earlier.ended.run == after.run.id:
                    diff = msgspec.structs.replace(diff, by=fixing_action(earlier))
                ended[earlier.verdict].append(diff)
    return RunDiff(
        before=before.run,
        after=after.run,
        new=tuple(new),
        changed=tuple(changed),
        fixed=tuple(ended[Verdict.FAIL]),
        resolved=tuple(ended[Verdict.UNKNOWN]),
        gone=tuple(gone),
        still=unchanged,
        lost=tuple(lost),
        back=tuple(back),
        appeared=tuple(host for host in after.visits if host not in before.visits),
        vanished=tuple(host for host in before.visits if host not in after.visits),
        replaced=tuple(replaced),
        rebooted=tuple(rebooted),
        parts=tuple(parts),
        facts=tuple(facts),
        thinned=thinned,
    )


def _verdict_now(earlier: FindingSpan, verdicts_by_key: Mapping[str, Verdict]) -> Verdict | None:
    """The verdict of the check in the later run; None if there is none, or if it is a trouble,
    which is listed as such. A node that was unknown as a whole has the worst verdict of the check.
    """
    current = verdicts_by_key.get(earlier.key)
    if current is not None or earlier.verdict is not Verdict.UNKNOWN:
        return current if current not in TROUBLE else None
    if earlier.finding is None or earlier.finding.subject.kind != NODE.kind:
        return Verdict.OK if earlier.end is SpanEnd.OK else None
    verdicts = [
        verdict
        for key, verdict in verdicts_by_key.items()
        if key.startswith(earlier.key.removesuffix(NODE.kind))
    ]
    return min(verdicts, key=SERIOUS.index, default=None)


def _diff(host: str, before: FindingSpan | None, after: FindingSpan | None) -> FindingDiff:
    span = after or before
    since = (span.since or span.first).at if span else ""
    return FindingDiff(
        host=host,
        before=before.finding if before else None,
        after=after.finding if after else None,
        since=since,
    )


def _reason_unjudged(visit: RecordedVisit) -> str:
    if visit.status is Status.VETTED:
        return ""
    return visit.why or visit.status.value.replace("_", " ")


def _other_machine(before: RecordedVisit, after: RecordedVisit) -> bool:
    known = before.machine_id and after.machine_id
    return bool(known and before.machine_id != after.machine_id)


class _EarlierSpans:
    """The spans of the earlier run. Each is matched once, with an equal finding if there is one."""

    def __init__(self, spans: Iterable[FindingSpan]) -> None:
        self._waiting: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            self._waiting[span.key].append(span)

    def take(self, span: FindingSpan) -> FindingSpan | None:
        candidates = self._waiting.get(span.key)
        if not candidates:
            return None
        match = next(
            (candidate for candidate in candidates if candidate.finding == span.finding),
            candidates[0],
        )
        candidates.remove(match)
        return match

    @property
    def left(self) -> list[FindingSpan]:
        return [span for waiting in self._waiting.values() for span in waiting]


# --- facts ---


def facts(evidence: Evidence) -> dict[str, str]:
    """The software and settings of a host, by name, that two nights should have in common."""
    host = evidence[HostInfo].data or HostInfo()
    gpus = evidence[Gpus].data or Gpus()
    values: dict[str, str | None] = {
        "kernel": host.kernel,
        "OS": host.os_name,
        CMDLINE: host.cmdline,
        "BIOS": host.bios_version,
        "driver": gpus.driver_version,
    }
    if memory := evidence[Memory].data:
        values["memory"] = f"{memory.total_kb / 1_048_576:.0f} GiB" if memory.total_kb else None
    for gpu in gpus.gpus or ():
        slot = f"GPU {gpu.index}"
        values[f"{slot} VBIOS"] = gpu.vbios_version
        values[f"{slot} power limit"] = _watts(gpu.power_limit_mw)
    if rdma := evidence[Infiniband].data:
        for device in rdma.devices or ():
            values[f"RDMA device {device.name} firmware"] = device.fw_ver
    if nvme := evidence[Nvme].data:
        for drive in nvme.controllers or ():
            values[f"NVMe drive {drive.name} firmware"] = drive.firmware
    if installed := evidence[InstalledPackages].data:
        for query in installed.packages or ():
            for package in query.found or ():
                if package.name and package.state not in ("not-installed", "config-files"):
                    values[f"package {package.name}"] = package.version
    return {name: value for name, value in values.items() if value}


def _watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:g} W"


def fact_diffs(pairs: Iterable[tuple[str, Mapping[str, str], Mapping[str, str]]]) -> list[FactDiff]:
    """The facts that changed, each with its hosts. `pairs`: host, facts before, facts after."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for host, before, after in pairs:
        for name, old, new in list(_differing(before, after))[:MANY]:
            groups.setdefault((name, old, new), []).append(host)
    return [
        FactDiff(what=name, before=old, after=new, hosts=tuple(hosts))
        for (name, old, new), hosts in groups.items()
    ]


def _differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for name in {**before, **after}:
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            yield name, old, new
