"""Output of a Nagios plug-in: a status line with performance data, then the findings.

`exit_code` is the exit code of the plug-in. The severity decides between WARNING and CRITICAL, even
if `fail_on` lets a warning pass.
"""

from collections.abc import Iterator

from nodevet.model import Severity, Verdict
from nodevet.model.run import Run
from nodevet.sheet import plugin
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.ages import evidence_age
from nodevet.vet.findings.fold import lines
from nodevet.vet.findings.suspected import suspicions
from nodevet.vet.findings.totals import Totals, findings_in_words, second_tries, totals
from nodevet.vet.news import count_new, fixed_troubles, words


def exit_code(run: Run) -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. A run without hosts is UNKNOWN. A failure wins over
    an unknown finding."""
    troubles = {
        (verdict, severity)
        for host in run.summaries
        for verdict, severity, _ in host.findings
        if verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    }
    if (Verdict.FAIL, Severity.CRITICAL) in troubles:
        return 2
    if run.exit_code == 1:
        return 1
    if run.exit_code == 3 or run.interrupted:
        return 3
    return int(any(severity is not Severity.INFO for _, severity in troubles))


def pieces(run: Run) -> Iterator[str]:
    run_totals = totals(run)
    yield plugin.page(
        exit_code(run), _headline(run, run_totals), _performance(run, run_totals), _details(run)
    )


def _headline(run: Run, run_totals: Totals) -> str:
    counts = [f"{number:,} {word}" for word, number in run_totals.outcomes]
    if not counts:
        return "no hosts: nothing was vetted"
    hosts = count(len(run.hosts), "host")
    parts = (
        f"{', '.join(counts)} of {hosts}",
        words(run),
        findings_in_words(run_totals),
        second_tries(run),
        evidence_age(run),
    )
    return ", ".join(part for part in parts if part)


def _performance(run: Run, run_totals: Totals) -> Iterator[str]:
    yield f"hosts={len(run.hosts)};;;0"
    for outcome, number in run_totals.hosts.items():
        yield f"{outcome.value}={number};;;0;{len(run.hosts)}"
    for verdict, number in run_totals.findings.items():
        yield f"findings_{verdict.value}={number};;;0"
    if run.news:
        yield f"new={count_new(run.news)};;;0"
        yield f"fixed={len(fixed_troubles(run.news))};;;0"
    yield f"time={run.seconds:.3f}s;;;0"


def _details(run: Run) -> Iterator[str]:
    yield from (f"baseline: {label}" for label in run.baselines if label.endswith(")"))
    yield from suspicions(run)
    for line in lines(run):
        new = f"NEW ({line.new:,})" if line.new else ""
        where = (nodeset(line.hosts), line.subjects)
        parts = (line.label, line.check, line.what, *where, new, line.note)
        yield " ".join(part for part in parts if part)
