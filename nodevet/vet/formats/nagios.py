"""Output of a Nagios plug-in: a status line with performance data, then what it is about.

`exit_code` is the plug-in's. Of a run of checks, severity decides between WARNING and CRITICAL; a
warning is one even if `fail_on` lets it pass. Of a run of fixes, a host whose rollback failed, or
whose state is unknown, is CRITICAL: a person must look at it. One that failed and was rolled back,
was refused or was not attempted is a WARNING.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nodevet.base.printable import plain
from nodevet.fix import result_text as fixes
from nodevet.model import Run, Severity, Verdict
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.ages import evidence_age
from nodevet.vet.findings.fold import Totals, findings_in_words, lines, second_tries, totals
from nodevet.vet.findings.suspected import suspicions
from nodevet.vet.news import count_new, fixed, words

if TYPE_CHECKING:
    from nodevet.fixing.result import Result

ENDING = ".nagios"
CODES = {0: 0, 1: 1, 3: 2}  # exit code of the run -> of a plug-in
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
ROOM = 7500  # bytes; Nagios reads no more than 8 KiB


def exit_code(document: "Run | Result") -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN; a run over no host is UNKNOWN.

    Of checks, a failure wins over what is unknown.
    """
    if not isinstance(document, Run):
        return CODES[document.exit_code] if document.hosts else 3
    return _of_checks(document)


def _of_checks(run: Run) -> int:
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


def render_checks(run: Run) -> str:
    found = totals(run)
    return _page(exit_code(run), _headline(run, found), _performance(run, found), _details(run))


def _page(code: int, headline: str, performance: Iterable[str], details: Iterable[str]) -> str:
    """A plug-in's output: `code` in words and the headline, performance data, then the details,
    as many as Nagios reads."""
    head = f"NODEVET {WORDS[code]} - {_harmless(headline)}"
    text = f"{head} | {' '.join(performance)}\n"
    rest = [_harmless(line) for line in details]
    for place, line in enumerate(rest):
        if len((text + line).encode()) > ROOM:
            return text + f"and {count(len(rest) - place, 'line')} more\n"
        text += line + "\n"
    return text


def _headline(run: Run, found: Totals) -> str:
    told = [f"{number:,} {word}" for word, number in found.told]
    if not told:
        return "no hosts: nothing was vetted"
    hosts = count(len(run.hosts), "host")
    parts = (
        f"{', '.join(told)} of {hosts}",
        words(run),
        findings_in_words(found),
        second_tries(run),
        evidence_age(run),
    )
    return ", ".join(part for part in parts if part)


def _performance(run: Run, found: Totals) -> Iterator[str]:
    yield f"hosts={len(run.hosts)};;;0"
    for outcome, number in found.hosts.items():
        yield f"{outcome.value}={number};;;0;{len(run.hosts)}"
    for verdict, number in found.findings.items():
        yield f"findings_{verdict.value}={number};;;0"
    if run.news:
        yield f"new={count_new(run.news)};;;0"
        yield f"fixed={len(fixed(run.news))};;;0"
    yield f"time={run.seconds:.3f}s;;;0"


def _details(run: Run) -> Iterator[str]:
    yield from (f"baseline: {label}" for label in run.baselines if label.endswith(")"))
    yield from suspicions(run)
    for line in lines(run):
        new = f"NEW ({line.new:,})" if line.new else ""
        where = (nodeset(line.hosts), line.subjects)
        parts = (line.label, line.check, line.what, *where, new, line.note)
        yield " ".join(part for part in parts if part)


def _harmless(text: str) -> str:
    """One line without the pipe that begins performance data."""
    return plain(text).replace("|", "\\x7c")


def render_fixes(result: "Result") -> str:
    headline = f"{result.kind} {result.plan}: {fixes.summary(result)}"
    return _page(exit_code(result), headline, _fix_performance(result), _fix_details(result))


def _fix_performance(result: "Result") -> Iterator[str]:
    yield f"hosts={len(result.hosts)};;;0"
    for outcome, number in fixes.tally(result).items():
        yield f"{outcome.value}={number};;;0;{len(result.hosts)}"
    yield f"time={result.seconds:.3f}s;;;0"


def _fix_details(result: "Result") -> Iterator[str]:
    for outcome, hosts, why in fixes.folded(result):
        yield " ".join(filter(None, (outcome.words.upper(), hosts, why)))
    yield from (f"{key}: {value}" for key, value in fixes.facts(result))
