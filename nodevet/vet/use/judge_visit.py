"""Judge one visit: its evidence is decoded, its baseline chosen, its findings made."""

import time
from collections.abc import Callable

import msgspec

from nodevet.base import age
from nodevet.baseline import choose, none_fits
from nodevet.baseline.choose import CHECK
from nodevet.checking.facts import facts_of
from nodevet.checking.identity import judge_hostname, own_gpus
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence, EvidenceError, open_evidence
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Visit
from nodevet.model import SHADOW, Finding, Host, HostReport, Status, unknown
from nodevet.model.baseline import Baseline
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.max_age import MaxAge

JUDGING = 5.0  # seconds of CPU time for one host; a large one takes some hundredths
GENERIC = "generic"
Save = Callable[[Visit, Host], None]
NOT_REACHED = "the run was ended before this host was done"


class Vetted(msgspec.Struct, frozen=True, kw_only=True):
    """One host's report and its evidence; None without usable evidence."""

    report: HostReport
    evidence: Evidence | None = None


def recorded(visit: Visit, context: VetContext) -> Evidence | str:
    """The earlier evidence of a host, or why it cannot be used."""
    if context.since is None or visit.evidence is None:
        return ""
    return context.since.read(visit.host)


def judge_visit(
    visit: Visit,
    host: Host,
    context: VetContext,
    earlier: Evidence | str = "",
    *,
    reopen: Callable[[], Evidence] | None = None,
) -> Vetted:
    """One visit, decoded once and judged; without usable evidence it keeps status and reason.

    `earlier`: see `recorded`. `reopen` opens the evidence of a visit that does not hold it; raises
    EvidenceError.
    """
    blank = blank_report(visit, host)
    if visit.evidence is None and reopen is None:
        return Vetted(report=blank)
    try:
        evidence = reopen() if reopen else open_evidence(visit.evidence or b"")
    except EvidenceError as error:
        failed = msgspec.structs.replace(blank, status=Status.PROBE_FAILED, why=str(error))
        return Vetted(report=failed)
    if context.since is not None:
        evidence = context.since.evidence_since(visit.host, evidence, earlier)
    return Vetted(report=_judged(evidence, blank, host, context), evidence=evidence)


def blank_report(visit: Visit, host: Host) -> HostReport:
    """The report of a visit without its findings."""
    return HostReport(
        host=visit.host,
        status=visit.status,
        why=visit.why,
        first_try=visit.first or msgspec.UNSET,
        seconds=round(visit.seconds, 3),
        groups=tuple(sorted(host.groups)),
        arrived=age.instant(visit.at),
    )


def _judged(evidence: Evidence, blank: HostReport, host: Host, context: VetContext) -> HostReport:
    data = evidence[HostInfo].data
    hostname_finding = judge_hostname(host, evidence)
    known = msgspec.structs.replace(
        blank,
        machine_id=data.machine_id if data else None,
        boot_id=data.boot_id if data else None,
        gpu_uuids=own_gpus(evidence) or msgspec.UNSET,
        clock=age.instant(data.clock_s if data else None),
        findings=(hostname_finding,) if hostname_finding else (),
        facts=facts_of(evidence),
    )
    if context.age and (why := _too_old(known, context.age)):
        old = unknown(why=why, check=age.CHECK, advice=age.ADVICE)
        return msgspec.structs.replace(known, findings=(old,))
    baseline, none = chosen_baseline(evidence, host, context)
    if none:
        known = msgspec.structs.replace(known, findings=(*known.findings, none))
    if baseline is None:
        return known
    findings = judge_by(baseline, evidence, blank.host, context)
    counted = (one for one in findings if one.severity is not SHADOW)
    return msgspec.structs.replace(
        known,
        baseline=baseline.label,
        findings=(*known.findings, *counted),
        shadow=tuple(one for one in findings if one.severity is SHADOW) or msgspec.UNSET,
    )


def chosen_baseline(
    evidence: Evidence, host: Host, context: VetContext
) -> tuple[Baseline | None, Finding | None]:
    """The baseline that judges a host, if any, and the finding that none could be chosen."""
    baseline = context.chosen or choose(context.baselines, evidence, host)
    if isinstance(baseline, Baseline):
        return baseline, None
    least = _stand_in(evidence, host, context)
    stand_in = f"; until then judged by the shipped {least.name}" if least else ""
    advice = _what_to_judge_by(least, host)
    return least, unknown(why=baseline + stand_in, check=CHECK, advice=advice)


def judge_by(
    baseline: Baseline, evidence: Evidence, host: str, context: VetContext
) -> tuple[Finding, ...]:
    """The findings of a host by a baseline; the rest is unknown once they take too long."""
    today = context.today
    return judge(evidence, baseline, context.catalog, host=host, today=today, late=_budget())


def _what_to_judge_by(least: Baseline | None, host: Host) -> str:
    """Advice for a host that no baseline fits: use the one that stood in, or write one."""
    target = "@local" if host.local else host.name
    written = f"`nodevet capture {target} -o FILE` writes one of this node as it is"
    return f"if {least.name} is enough, `-b {least.name}`; {written}" if least else written


def _stand_in(evidence: Evidence, host: Host, context: VetContext) -> Baseline | None:
    """The baseline that judges a host if none could be chosen, so that its faults show: a shipped
    one that fits, or on this machine `generic`. The host stays unknown, never ok.
    """
    if none_fits(context.baselines, evidence, host):
        baseline = choose(context.shipped_baselines(), evidence, host)
        if isinstance(baseline, Baseline):
            return baseline
    if not host.local:
        return None
    every = (*context.baselines, *context.shipped_baselines())
    return next((one for one in every if one.name == GENERIC and one.applies is None), None)


def _too_old(report: HostReport, limit: MaxAge) -> str:
    return age.age_refusal(report.arrived, report.clock, now=limit.now, most=limit.most)


def _budget() -> Callable[[], bool]:
    """Whether judging, from now on, has taken longer than one host may hold up the others.

    No more CPU time has passed than time, which is far cheaper to ask."""
    end, soonest = time.thread_time() + JUDGING, time.monotonic() + JUDGING
    return lambda: time.monotonic() > soonest and time.thread_time() > end
