"""Evidence × Baseline → Findings. Pure: no I/O, no clock; today is an argument.

One host's evidence must not delay other hosts: a check returns at most MOST findings for a host,
and judging ends when the caller says that it is `late`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from itertools import chain, islice

from msgspec.structs import replace

from nodevet.base import typed
from nodevet.checking.catalog import Catalog
from nodevet.checking.needed import needed_action
from nodevet.evidence.document import Evidence
from nodevet.evidence.transient import transient
from nodevet.model import (
    FAIL,
    MORE,
    SHADOW,
    UNKNOWN,
    Finding,
    NeededAction,
    Severity,
    Verdict,
    unknown,
)
from nodevet.model.baseline import CUT, Baseline, Expectation, Waiver

MOST = 256  # findings of one check on one host; no machine has more GPUs
LONGEST = 4096  # characters of a reason, of advice or of a detail
MOST_DETAILS = 32
LATE = "judging this host took too long, so nodevet stopped it"
NO_ACTION = NeededAction.NONE
WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED, Verdict.OK, Verdict.NOT_APPLICABLE)


def judge(
    evidence: Evidence,
    baseline: Baseline,
    catalog: Catalog,
    *,
    host: str,
    today: date,
    late: Callable[[], bool] = lambda: False,
    most: int | None = MOST,
) -> tuple[Finding, ...]:
    """The findings of every check that the baseline asks for, in its order.

    If a check has more than `most` findings: the most important ones, and for each verdict the
    number of the others. Findings of severity shadow count separately. Once `late` returns true,
    the rest is unknown; it is called between findings.
    """
    findings: list[Finding] = []
    for wish in baseline.expectations:
        of_check = _stamp_findings(evidence, wish, catalog, late)
        if baseline.waivers:
            of_check = (_waive(finding, baseline.waivers, host, today) for finding in of_check)
        first = list(islice(of_check, most))
        findings += first if len(first) != most else _limit_findings(chain(first, of_check), most)
    _add_causes(findings, catalog)
    return tuple(findings)


def _stamp_findings(
    evidence: Evidence, wish: Expectation, catalog: Catalog, late: Callable[[], bool]
) -> Iterator[Finding]:
    """A check's findings with the expectation's check, severity and origin, and what a failure
    needs; a subject may have its own severity."""
    check, usual, origin = wish.check, wish.severity, wish.origin
    own: Mapping[str, Severity] = {}
    actions: Mapping[str, NeededAction] = {}
    findings = _ask(evidence, wish, catalog, late)
    try:
        actions = catalog.actions(check)
        if severities := catalog.check(check).severities:
            own = typed.convert(severities(wish.params), dict[str, Severity])
    except (Exception, SystemExit) as error:
        findings = iter((_check_failure(error),))
    for finding in findings:
        severity = own.get(finding.subject.id, usual) if own else usual
        fails = finding.verdict is FAIL
        action = needed_action(finding, check, actions, catalog) if fails else NO_ACTION
        stamped = replace(finding, check=check, severity=severity, origin=origin, action=action)
        if finding.verdict is UNKNOWN and (passes := transient(finding, evidence)):
            stamped = replace(stamped, why=f"{finding.why}, {passes}", transient=True)
        yield stamped


def _add_causes(findings: list[Finding], catalog: Catalog) -> None:
    """Give findings the cause that their check declares, if the cause fails on the same part. A
    finding in shadow neither is a cause nor has one.
    """
    failed = [
        place
        for place, finding in enumerate(findings)
        if finding.verdict is FAIL and finding.severity is not SHADOW
    ]
    parts = {(findings[place].check, findings[place].subject) for place in failed}
    for place in failed:
        finding = findings[place]
        follows = () if finding.cause else _follows(finding.check, catalog)
        cause = next((follow for follow in follows if (follow, finding.subject) in parts), None)
        if cause:
            findings[place] = replace(finding, cause=cause)


def _follows(check: str, catalog: Catalog) -> tuple[str, ...]:
    try:
        return catalog.check(check).follows
    except (Exception, SystemExit):  # its own finding says that it cannot be loaded
        return ()


def _limit_findings(findings: Iterable[Finding], most: int) -> Iterator[Finding]:
    """At most `most` findings of a check, and the numbers of the others; the same for findings in
    shadow."""
    shown, shadow = _MostFindings(most), _MostFindings(most)
    for place, finding in enumerate(findings):
        (shadow if finding.severity is Severity.SHADOW else shown).take(place, finding)
    yield from shown.listed_findings()
    yield from shadow.listed_findings()


class _MostFindings:
    """Findings of one check: at most `most` of each verdict, and the number of all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Verdict, list[tuple[int, Finding]]] = {verdict: [] for verdict in WORST}
        self._counts: Counter[Verdict] = Counter()
        self._severest = Severity.SHADOW
        self._action = NeededAction.NONE  # what needs most
        self._last: Finding | None = None

    def take(self, place: int, finding: Finding) -> None:
        self._last = finding
        self._counts[finding.verdict] += 1
        self._severest = max(self._severest, finding.severity, key=lambda severity: severity.rank)
        self._action = max(self._action, finding.action, key=lambda action: action.rank)
        if len(self._kept[finding.verdict]) < self._most:
            self._kept[finding.verdict].append((place, finding))

    def listed_findings(self) -> Iterator[Finding]:
        """The worst findings in their order, and for each verdict the number of the others."""
        worst_first = [entry for verdict in WORST for entry in self._kept[verdict]]
        listed = sorted(worst_first[: self._most], key=lambda entry: entry[0])
        yield from (finding for _, finding in listed)
        more = self._counts - Counter(finding.verdict for _, finding in listed)
        for verdict in WORST:
            if self._last and more[verdict]:
                yield Finding(
                    verdict=verdict,
                    subject=MORE,
                    why=f"{more[verdict]:,} more {verdict.value}, not listed",
                    check=self._last.check,
                    severity=self._severest,
                    origin=self._last.origin,
                    action=self._action if verdict is Verdict.FAIL else NeededAction.NONE,
                )


def _ask(
    evidence: Evidence, wish: Expectation, catalog: Catalog, late: Callable[[], bool]
) -> Iterator[Finding]:
    """A check's findings. A check that raises, returns nothing or is late is unknown, never
    silent."""
    if late():
        yield unknown(why=LATE)
        return
    has_finding = False
    try:
        for finding in catalog.check(wish.check).judge(evidence, wish.params):
            has_finding = True
            yield _short(finding)
            if late():
                yield unknown(why=LATE)
                break
    except (
        Exception,
        SystemExit,
    ) as error:  # a fault in one check does not stop the others
        has_finding = True
        yield _check_failure(error)
    if not has_finding:
        yield unknown(why="the check returned no finding")


def _check_failure(error: BaseException) -> Finding:
    return _short(unknown(why=f"the check itself failed: {type(error).__name__}: {error}"))


def _short(finding: Finding) -> Finding:
    """The finding with its reason, advice and details cut to a readable length; values stay
    whole."""
    all_details = finding.details or {}
    if not all_details and len(finding.why) <= LONGEST and len(finding.advice) <= LONGEST:
        return finding
    texts = (finding.why, finding.advice, *all_details, *all_details.values())
    if len(all_details) <= MOST_DETAILS and all(len(text) <= LONGEST for text in texts):
        return finding
    details = {_cut(key): _cut(text) for key, text in [*all_details.items()][:MOST_DETAILS]}
    return replace(
        finding,
        why=_cut(finding.why),
        advice=_cut(finding.advice),
        details=details or finding.details,
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}{CUT}"


def _waive(finding: Finding, waivers: tuple[Waiver, ...], host: str, today: date) -> Finding:
    """A failed finding under a waiver in force becomes waived.

    If the waiver has expired, or accepts another value, the finding says so.
    """
    if finding.verdict is not Verdict.FAIL:
        return finding
    covering = [waiver for waiver in waivers if waiver.covers(host, finding)]
    if not covering:
        return finding
    accepting = [waiver for waiver in covering if waiver.admits(finding)]
    latest = max(accepting or covering, key=lambda waiver: waiver.until)
    words = f"{latest.owner}: {latest.reason}"
    if not accepting:
        until = "expired" if latest.until < today else "until"
        covered = finding.text(latest.accepts)
        text = f"waiver covers {covered}, not this; {until} {latest.until} ({words})"
        return replace(finding, waiver=text)
    if latest.until < today:
        return replace(finding, waiver=f"expired {latest.until} ({words})")
    until = f"until {latest.until} ({words})"
    return replace(finding, verdict=Verdict.WAIVED, waiver=until, action=NeededAction.NONE)
