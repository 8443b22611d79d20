"""Notify people of new and fixed findings through Apprise; silent if nothing changed."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from nodevet.base import typed
from nodevet.base.errors import UserError
from nodevet.base.files import read_input
from nodevet.base.printable import brief, plain
from nodevet.model import HostReport, Severity
from nodevet.model.run import Run, RunNews
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import Line, lines
from nodevet.vet.findings.suspected import sentence
from nodevet.vet.findings.totals import totals
from nodevet.vet.news import fixed_troubles, rejudged_hosts, resolved_troubles
from nodevet.vet.use.sending import Answer, Sending

SECONDS = 30.0  # for all that are told, together
PROGRAM = "nodevet.vet.use.sending"
_ANSWER = typed.decoder(Answer)
HOSTS = 300  # columns of the hosts of one line
WHAT = 160  # columns of one difference
ENV, FILE = "env:", "file:"
MOST_BYTES = 64 << 10  # of a file of addresses


class Notice(Struct, frozen=True, kw_only=True):
    """A message to send."""

    title: str
    body: str


class NewsFilter(Struct, frozen=True, kw_only=True):
    """Which news to send."""

    new: bool = True
    fixed: bool = True
    severity: Severity = Severity.WARNING
    link: str = ""
    length: int = 2000


def message(run: Run, name: str, wanted: NewsFilter) -> Notice | None:
    """New and fixed findings, a line for each fault; None if there are none."""
    news = run.news
    if not news:
        return None
    suspected = {check for suspicion in news.suspicions for check in suspicion.checks or ("",)}
    rows = [sentence(suspicion) for suspicion in news.suspicions]
    new = [*_new_lines(run, news, wanted, suspected)] if wanted.new else []
    ended = [*_ended_lines(news, wanted)] if wanted.fixed else []
    if not rows and not new and not ended:
        return None
    rows += [*new, *ended]
    run_totals = totals(run)
    counts = ", ".join(f"{number:,} {word}" for word, number in run_totals.outcomes)
    heads = [f"{len(new):,} new" if new else "", f"{len(ended):,} fixed" if ended else ""]
    heads.insert(0, "SUSPICIOUS" if news.suspicions else "")
    title = f"nodevet {plain(name)}: {', '.join(filter(None, heads))}"
    end = [
        f"{count(len(run.hosts), 'host')}: {counts}",
        *([plain(wanted.link)] if wanted.link else []),
    ]
    return Notice(title=brief(title, 200), body=_bounded_text(rows, end, wanted.length))


def _bounded_text(rows: Sequence[str], end: Sequence[str], length: int) -> str:
    """The lines that fit, the number of the others, and the end."""
    room = length - sum(len(row) + 1 for row in end) - 40
    lines_kept: list[str] = []
    for row in rows:
        if room < len(row) + 1:
            break
        lines_kept.append(row)
        room -= len(row) + 1
    if hidden := len(rows) - len(lines_kept):
        lines_kept.append(f"and {count(hidden, 'line')} more, in the reports")
    return "\n".join([*lines_kept, *end])[:length]


def _new_lines(run: Run, news: RunNews, wanted: NewsFilter, suspected: set[str]) -> Iterator[str]:
    """The faults that are new, each with the hosts on which it is."""
    fresh: dict[str, set[int]] = {}
    for trouble in news.standing:
        counts = trouble.place < 0 or trouble.severity.rank >= wanted.severity.rank
        if trouble.new and counts and trouble.check not in suspected:
            fresh.setdefault(trouble.host, set()).add(trouble.place)
    hosts = [
        _narrow_report(run.hosts[place], fresh[summary.host])
        for place, summary in enumerate(run.summaries)
        if summary.host in fresh
    ]
    alone = structs.replace(run, hosts=tuple(hosts), news=RunNews())
    yield from (_row("NEW", line) for line in lines(alone))


def _narrow_report(report: HostReport, places: set[int]) -> HostReport:
    kept = tuple(host for place, host in enumerate(report.findings) if place in places)
    return structs.replace(report, findings=kept)


def _row(word: str, line: Line) -> str:
    where = " ".join(filter(None, (brief(nodeset(line.hosts), HOSTS), line.subjects)))
    parts = (word, line.label, line.check, brief(line.what, WHAT), where)
    return " ".join(filter(None, parts))


def _ended_lines(news: RunNews, wanted: NewsFilter) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for word, ended in (("FIXED", fixed_troubles(news)), ("RESOLVED", resolved_troubles(news))):
        for end in ended:
            if end.severity.rank >= wanted.severity.rank and not end.began:
                groups.setdefault((word, end.check, end.what), []).append(end.host)
    for end in rejudged_hosts(news):
        groups.setdefault(("VETTED AGAIN", "", f"was: {end.what}"), []).append(end.host)
    for (kind, check, what), hosts in groups.items():
        where = brief(nodeset(list(dict.fromkeys(hosts))), HOSTS)
        yield " ".join(filter(None, (kind, brief(check, WHAT), brief(what, WHAT), where)))


def addresses(urls: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The addresses; those that are in the environment or in a file are read. Raises UserError,
    which repeats none of them."""
    urls_found: list[str] = []
    for number, url in enumerate(urls, 1):
        if url.startswith(ENV):
            name = url.removeprefix(ENV)
            if not (text := os.environ.get(name, "")).strip():
                raise UserError(f"notify: the environment has no {plain(name)}")
            urls_found += text.split()
        elif url.startswith(FILE) and not url.startswith("file://"):
            path = folder / url.removeprefix(FILE)
            try:
                text = read_input(path, MOST_BYTES).decode()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not text"
                raise UserError(f"notify: {path}: cannot be read: {why}") from error
            rows = (row.strip() for row in text.splitlines())
            urls_found += [row for row in rows if row and not row.startswith("#")]
        else:
            urls_found.append(url)
        if "://" not in (urls_found[-1] if urls_found else ""):
            raise UserError(f"notify: address {number} is not an Apprise URL such as mailto://…")
    return tuple(urls_found)


def notify(urls: Sequence[str], notice: Notice) -> tuple[str, ...]:
    """Send to every address, in a process of its own that ends after SECONDS, whatever a server
    does. Returns the addresses that failed, as `2 (slack)`, never the address itself."""
    request = msgspec.json.encode(Sending(urls=tuple(urls), title=notice.title, body=notice.body))
    command = [sys.executable, "-I", "-m", PROGRAM]
    try:
        done = subprocess.run(
            command,
            input=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # plug-ins and libraries write addresses
            timeout=SECONDS,
            check=False,
        )
        answers, unsent = done.stdout, f"its process ended with {done.returncode}"
    except subprocess.TimeoutExpired as error:
        answers, unsent = error.stdout or b"", f"not done within {SECONDS:g} s"
    except OSError as error:
        answers, unsent = b"", f"no process can be started: {error.strerror}"
    failed = dict.fromkeys(range(1, len(urls) + 1), unsent)
    failed |= dict(map(_ANSWER.decode, answers.splitlines()))
    return tuple(
        f"{number} ({_kind(urls[number - 1])}): {why}" for number, why in failed.items() if why
    )


def _kind(url: str) -> str:
    """`slack`: the part of an address that is not secret."""
    kind = url.partition("://")[0]
    return kind if kind.isalnum() and len(kind) < 20 else "?"
