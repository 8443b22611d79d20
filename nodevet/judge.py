"""Evidence × Baseline → Findings. Pure: no I/O, no clock; today is an argument."""

from collections.abc import Iterator
from datetime import date

from msgspec.structs import replace

from nodevet.catalog import Catalog
from nodevet.evidence import Evidence
from nodevet.model import Baseline, Expectation, Finding, Verdict, Waiver, unknown


def judge(
    evidence: Evidence, baseline: Baseline, catalog: Catalog, *, host: str, today: date
) -> tuple[Finding, ...]:
    """Every finding of every check that the baseline asks for, in its order."""
    return tuple(
        _waive(replace(finding, **_stamp(wish)), baseline.waivers, host, today)
        for wish in baseline.expectations
        for finding in _ask(evidence, wish, catalog)
    )


def _stamp(wish: Expectation) -> dict[str, object]:
    return {"check": wish.check, "severity": wish.severity, "origin": wish.origin}


def _ask(evidence: Evidence, wish: Expectation, catalog: Catalog) -> Iterator[Finding]:
    """A check's findings; one that fails or says nothing is unknown, never silent."""
    said = False
    try:
        for finding in catalog.check(wish.check).judge(evidence, wish.want):
            said = True
            yield finding
    except (
        Exception,
        SystemExit,
    ) as error:  # one check's fault costs no other
        said = True
        yield unknown(why=f"the check itself failed: {type(error).__name__}: {error}")
    if not said:
        yield unknown(why="the check said nothing")


def _waive(finding: Finding, waivers: tuple[Waiver, ...], host: str, today: date) -> Finding:
    """A wrong finding under a waiver in force becomes waived; an expired one says so."""
    if finding.verdict is not Verdict.WRONG:
        return finding
    covering = [waiver for waiver in waivers if waiver.covers(host, finding)]
    if not covering:
        return finding
    latest = max(covering, key=lambda waiver: waiver.until)
    words = f"{latest.owner}: {latest.reason}"
    if latest.until < today:
        return replace(finding, waiver=f"expired {latest.until} ({words})")
    return replace(finding, verdict=Verdict.WAIVED, waiver=f"until {latest.until} ({words})")
