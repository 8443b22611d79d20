"""Output of a Nagios plug-in: a status line with performance data, then the differences.

`status` is the plug-in's exit code. Severity decides between WARNING and
CRITICAL; a warning is one also where `fail_on` lets it pass.
"""

from collections.abc import Iterable, Iterator

from nodevet.model import Run, Severity, Verdict
from nodevet.printable import plain
from nodevet.report.ages import evidence_age
from nodevet.report.fold import Totals, findings_in_words, lines, totals
from nodevet.report.text import count, nodeset

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
ROOM = 7500  # bytes; Nagios reads no more than 8 KiB


def status(run: Run) -> int:
    """0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. What is wrong wins over what is unknown."""
    troubles = {
        (finding.verdict, finding.severity)
        for report in run.hosts
        for finding in report.findings
        if finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    }
    if (Verdict.FAIL, Severity.CRITICAL) in troubles:
        return 2
    if run.exit_code == 1:
        return 1
    if run.exit_code == 3 or run.interrupted:
        return 3
    return int(any(severity is not Severity.INFO for _, severity in troubles))


def render(run: Run) -> str:
    found = totals(run)
    return page(status(run), _headline(run, found), _performance(run, found), _details(run))


def page(code: int, headline: str, performance: Iterable[str], details: Iterable[str]) -> str:
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
    told = [f"{number:,} {word}" for word, number in found.hosts.items() if number]
    if not told:
        return "no hosts: nothing was vetted"
    hosts = count(len(run.hosts), "host")
    parts = (f"{', '.join(told)} of {hosts}", findings_in_words(found), evidence_age(run))
    return ", ".join(part for part in parts if part)


def _performance(run: Run, found: Totals) -> Iterator[str]:
    yield f"hosts={len(run.hosts)};;;0"
    for word, number in found.hosts.items():
        yield f"{word.replace(' ', '_')}={number};;;0;{len(run.hosts)}"
    for verdict, number in found.findings.items():
        yield f"findings_{verdict.value}={number};;;0"
    yield f"time={run.seconds:.3f}s;;;0"


def _details(run: Run) -> Iterator[str]:
    for line in lines(run):
        parts = (line.label, line.check, line.what, nodeset(line.hosts), line.subjects, line.note)
        yield " ".join(part for part in parts if part)


def _harmless(text: str) -> str:
    """One line without the pipe that begins performance data."""
    return plain(text).replace("|", "\\x7c")
