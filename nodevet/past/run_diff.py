"""Two recorded runs compared: what is new, fixed, gone, changed, lost and back. Pure."""

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
"""The sections that parts and facts are of."""
MANY = 60  # facts of one host that are told


class FindingDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host that is not what it was."""

    host: str
    before: Finding | None = None  # None: no such trouble
    after: Finding | None = None
    since: str = ""  # when this verdict began, ISO 8601
    by: RecordedAction | None = (
        None  # of what is fixed: the change that fixed it, if that is certain
    )


class HostDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A host that could be judged in one of the runs and not in the other."""

    host: str
    before: str = ""  # why it could not be judged; empty: it could
    after: str = ""


class FactDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What several hosts are, that they were not."""

    what: str  # driver, kernel, package tuned
    before: str  # empty: not there
    after: str
    hosts: tuple[str, ...]


class RunDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What is not in the later run as it was in the earlier one."""

    before: RecordedRun
    after: RecordedRun
    new: tuple[FindingDiff, ...] = ()
    changed: tuple[FindingDiff, ...] = ()  # a trouble in both, with other values
    fixed: tuple[FindingDiff, ...] = ()  # the check says ok now
    resolved: tuple[FindingDiff, ...] = ()  # it was unknown, and the check says ok now
    gone: tuple[FindingDiff, ...] = ()  # waived, not applicable, no longer asked, replaced
    still: int = 0  # troubles that are as they were
    lost: tuple[HostDiff, ...] = ()
    back: tuple[HostDiff, ...] = ()
    appeared: tuple[str, ...] = ()  # hosts of the later run alone
    vanished: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  # another machine answers: nothing goes on
    rebooted: tuple[str, ...] = ()
    parts: tuple[PartMove, ...] = ()
    facts: tuple[FactDiff, ...] = ()
    thinned: int = 0  # hosts whose evidence is no longer kept, so that no facts are told

    @property
    def nothing(self) -> bool:
        """Whether all is as it was."""
        return not any(
            getattr(self, name)
            for name in ("new", "changed", "fixed", "resolved", "gone", "lost", "back", "appeared")
        ) and not (self.vanished or self.replaced or self.rebooted or self.parts or self.facts)


class RunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was recorded: its hosts, and what was found on them."""

    run: RecordedRun
    visits: Mapping[str, RecordedVisit]
    spans: Mapping[str, tuple[FindingSpan, ...]]  # by host; not those of hosts as a whole

    @staticmethod
    def of(
        run: RecordedRun, visits: Iterable[RecordedVisit], spans: Iterable[FindingSpan]
    ) -> "RunSeen":
        found: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            if span.check and span.verdict in TROUBLE:
                found[span.host].append(span)
        return RunSeen(
            run=run,
            visits={visit.host: visit for visit in visits},
            spans={host: tuple(some) for host, some in found.items()},
        )


Settled = Callable[[str], Mapping[str, Verdict]]
"""Of a host, what every key was judged in the later run."""
By = Callable[[FindingSpan], RecordedAction | None]
"""What fixed a finding, if that is certain."""


def run_diff(
    before: RunSeen,
    after: RunSeen,
    settled: Settled,
    facts: Iterable[FactDiff] = (),
    parts: Iterable[PartMove] = (),
    thinned: int = 0,
    by: By = lambda span: None,
) -> RunDiff:
    """What differs. A host that could not be judged keeps its earlier troubles."""
    new: list[FindingDiff] = []
    changed: list[FindingDiff] = []
    over: dict[Verdict, list[FindingDiff]] = {Verdict.FAIL: [], Verdict.UNKNOWN: []}
    gone: list[FindingDiff] = []
    lost, back, replaced, rebooted = [], [], [], []
    still = 0
    for host, visit in after.visits.items():
        was = before.visits.get(host)
        now, then = _unjudged(visit), _unjudged(was) if was else ""
        if now and was and not then:
            lost.append(HostDiff(host=host, after=now))
        if then and not now:
            back.append(HostDiff(host=host, before=then))
        if now:
            continue
        other = was is not None and _other_machine(was, visit)
        if other:
            replaced.append(host)
        elif was and was.boot_id and visit.boot_id and was.boot_id != visit.boot_id:
            rebooted.append(host)
        matched = _Matched(before.spans.get(host, ()) if was and not then else ())
        for span in after.spans.get(host, ()):
            past = None if other else matched.take(span)
            if past is None:
                new.append(_diff(host, None, span))
            elif past.finding == span.finding:
                still += 1
            else:
                changed.append(_diff(host, past, span))
        left = matched.left
        judged = settled(host) if left and not other else {}
        for past in left:
            diff = _diff(host, past, None)
            replaced_since = other or past.end is SpanEnd.REPLACED
            verdict = None if replaced_since else _judged_now(past, judged)
            if verdict in (None, Verdict.WAIVED, Verdict.NOT_APPLICABLE):
                gone.append(diff)
            elif verdict is Verdict.OK:
                if past.ended and past.ended.run == after.run.id:
                    diff = msgspec.structs.replace(diff, by=by(past))
                over[past.verdict].append(diff)
    return RunDiff(
        before=before.run,
        after=after.run,
        new=tuple(new),
        changed=tuple(changed),
        fixed=tuple(over[Verdict.FAIL]),
        resolved=tuple(over[Verdict.UNKNOWN]),
        gone=tuple(gone),
        still=still,
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


def _judged_now(past: FindingSpan, judged: Mapping[str, Verdict]) -> Verdict | None:
    """What the check says of it in the later run; of what was unknown of the whole node, the worst
    of what it says there. A trouble that it is now is told as that."""
    now = judged.get(past.key)
    if now is not None or past.verdict is not Verdict.UNKNOWN:
        return now if now not in TROUBLE else None
    if past.finding is None or past.finding.subject.kind != NODE.kind:
        return Verdict.OK if past.end is SpanEnd.OK else None
    said = [
        verdict
        for key, verdict in judged.items()
        if key.startswith(past.key.removesuffix(NODE.kind))
    ]
    return min(said, key=SERIOUS.index, default=None)


def _diff(host: str, before: FindingSpan | None, after: FindingSpan | None) -> FindingDiff:
    told = after or before
    since = (told.since or told.first).at if told else ""
    return FindingDiff(
        host=host,
        before=before.finding if before else None,
        after=after.finding if after else None,
        since=since,
    )


def _unjudged(visit: RecordedVisit) -> str:
    if visit.status is Status.VETTED:
        return ""
    return visit.why or visit.status.value.replace("_", " ")


def _other_machine(before: RecordedVisit, after: RecordedVisit) -> bool:
    known = before.machine_id and after.machine_id
    return bool(known and before.machine_id != after.machine_id)


class _Matched:
    """Spans of the earlier run, each taken once: first one that says the same."""

    def __init__(self, spans: Iterable[FindingSpan]) -> None:
        self._waiting: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            self._waiting[span.key].append(span)

    def take(self, span: FindingSpan) -> FindingSpan | None:
        some = self._waiting.get(span.key)
        if not some:
            return None
        found = next((each for each in some if each.finding == span.finding), some[0])
        some.remove(found)
        return found

    @property
    def left(self) -> list[FindingSpan]:
        return [span for some in self._waiting.values() for span in some]


# --- facts ---


def facts(evidence: Evidence) -> dict[str, str]:
    """What a host runs, and how its parts are set, that two nights should have in common:
    name -> value."""
    host = evidence[HostInfo].data or HostInfo()
    gpus = evidence[Gpus].data or Gpus()
    found: dict[str, str | None] = {
        "kernel": host.kernel,
        "OS": host.os_name,
        CMDLINE: host.cmdline,
        "BIOS": host.bios_version,
        "driver": gpus.driver_version,
    }
    if memory := evidence[Memory].data:
        found["memory"] = f"{memory.total_kb / 1_048_576:.0f} GiB" if memory.total_kb else None
    for gpu in gpus.gpus or ():
        slot = f"GPU {gpu.index}"
        found[f"{slot} VBIOS"] = gpu.vbios_version
        found[f"{slot} power limit"] = _watts(gpu.power_limit_mw)
    if rdma := evidence[Infiniband].data:
        for device in rdma.devices or ():
            found[f"RDMA device {device.name} firmware"] = device.fw_ver
    if nvme := evidence[Nvme].data:
        for drive in nvme.controllers or ():
            found[f"NVMe drive {drive.name} firmware"] = drive.firmware
    if installed := evidence[InstalledPackages].data:
        for asked in installed.packages or ():
            for each in asked.found or ():
                if each.name and each.state not in ("not-installed", "config-files"):
                    found[f"package {each.name}"] = each.version
    return {name: value for name, value in found.items() if value}


def _watts(milliwatts: int | None) -> str | None:
    return None if milliwatts is None else f"{milliwatts / 1000:g} W"


def fact_diffs(pairs: Iterable[tuple[str, Mapping[str, str], Mapping[str, str]]]) -> list[FactDiff]:
    """What differs on which hosts: (host, facts before, facts after)."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for host, before, after in pairs:
        for what, old, new in list(_differing(before, after))[:MANY]:
            groups.setdefault((what, old, new), []).append(host)
    return [
        FactDiff(what=what, before=old, after=new, hosts=tuple(hosts))
        for (what, old, new), hosts in groups.items()
    ]


def _differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for what in {**before, **after}:
        old, new = before.get(what, ""), after.get(what, "")
        if old != new:
            yield what, old, new
