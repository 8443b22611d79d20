"""A run in numbers. Pure."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from nodevet.base.durations import elapsed
from nodevet.model import HostOutcome, Status, Verdict
from nodevet.model.run import Run
from nodevet.sheet.text import count
from nodevet.vet.findings.ages import evidence_age
from nodevet.vet.findings.words import listed


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. The values of `hosts` add up to the hosts of the run."""

    hosts: Mapping[HostOutcome, int]
    findings: Mapping[Verdict, int]

    @property
    def judged(self) -> int:
        """Findings that say something about the node: neither unknown nor not applicable."""
        unsaid = self.findings.get(Verdict.UNKNOWN, 0) + self.findings.get(
            Verdict.NOT_APPLICABLE, 0
        )
        return sum(self.findings.values()) - unsaid

    @property
    def all_ok(self) -> bool:
        """Every host, and at least one."""
        return 0 < self.hosts[HostOutcome.OK] == sum(self.hosts.values())

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """The outcomes in words, each with its number of hosts."""
        return [(outcome.words, number) for outcome, number in self.hosts.items() if number]


def totals(run: Run) -> Totals:
    hosts = run.summaries
    outcomes = Counter(host.outcome for host in hosts)
    verdicts: Counter[Verdict] = Counter()
    for host in hosts:
        for verdict, _, number in host.findings:
            verdicts[verdict] += number
    return Totals(
        hosts={outcome: outcomes[outcome] for outcome in HostOutcome},
        findings={verdict: verdicts[verdict] for verdict in Verdict},
    )


def summary(run: Run) -> str:
    """The totals line: `128 hosts: 84 ok, 44 fail · new since last run: 1 · 4.1 s`."""
    run_totals = totals(run)
    parts = [findings_in_words(run_totals)]
    if not run.hosts:
        head = "No hosts: nothing was vetted"
        parts = []
    elif run_totals.all_ok:
        word = "Ok as far as judged" if narrowing(run) else "All ok"
        head = f"{word}: {count(len(run.hosts), 'host')}"
    else:
        counts = [f"{number:,} {word}" for word, number in run_totals.outcomes]
        head = f"{count(len(run.hosts), 'host')}: {', '.join(counts)}"
        parts = []
    parts += [
        narrowing(run),
        _news_in_words(run),
        second_tries(run),
        evidence_age(run),
        elapsed(run.seconds),
    ]
    parts.append("the run was interrupted" if run.interrupted else "")
    return " · ".join(part for part in (head, *parts) if part)


def _news_in_words(run: Run) -> str:
    if not run.news:
        return ""
    from nodevet.vet.news import words  # a run that is not recorded does not pay for it

    return words(run)


def narrowing(run: Run) -> str:
    """`only pcie_link judged`, `xid not judged`; empty if no check was left out."""
    parts = (
        f"only {listed(run.only)} judged" if run.only else "",
        f"{listed(run.skip)} not judged" if run.skip else "",
    )
    return ", ".join(filter(None, parts))


def second_tries(run: Run) -> str:
    """`second try: 42 hosts, 40 of them vetted`; empty if there was none."""
    again = [host for host in run.summaries if host.first_try]
    vetted = sum(host.status is Status.VETTED for host in again)
    return f"second try: {count(len(again), 'host')}, {vetted:,} of them vetted" if again else ""


def findings_in_words(run_totals: Totals) -> str:
    """`1,920 findings judged, 3 unknown, 40 not applicable`."""
    not_applicable = run_totals.findings.get(Verdict.NOT_APPLICABLE, 0)
    unknown = run_totals.findings.get(Verdict.UNKNOWN, 0)
    words = f"{count(run_totals.judged, 'finding')} judged"
    words += f", {unknown:,} unknown" if unknown else ""
    return words + (f", {not_applicable:,} not applicable" if not_applicable else "")
