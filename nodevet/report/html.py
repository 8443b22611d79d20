"""A run as one HTML page that works without a network: of checks and of fixes in one design.

Totals, hosts × checks (or fixes), what differs (or how it ended), each host in a panel of its own.
Text from a node goes through `plain`, then either through Jinja's autoescape or into the page as
JSON that the script shows with textContent alone. The page's policy runs exactly the script and
style below, by hash.
"""

import json
from typing import Any

from markupsafe import Markup

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.fix import result_text as fixes
from nodevet.fixing.result import Result
from nodevet.model import HostOutcome, Run
from nodevet.report import table
from nodevet.report.parts import fix_data, page_data
from nodevet.resource import Contents
from nodevet.sheet import page
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.findings.ages import evidence_age
from nodevet.vet.findings.fold import Line, findings_in_words, narrowing, totals
from nodevet.vet.findings.shadow import SHADOW, shadowed
from nodevet.vet.findings.suspected import suspicions
from nodevet.vet.news import again, fixed, flapping, resolved, words

ENDING = ".html"
HERE = "nodevet.report.parts"  # the templates


def render_checks(run: Run) -> str:
    return _page(
        page_data.data(run),
        title=f"{_headline(run)} · nodevet {plain(run.started)}",
        headline=_headline(run),
        facts=[plain(run.started).replace("T", " "), *_facts(run), findings_in_words(totals(run))],
        named=[("baseline", plain(key), plain(sha256)) for key, sha256 in run.baselines.items()],
        rows=[],
        since=_since(run),
        suspicions=suspicions(run),
        shadow=[_in_shadow(line) for line in shadowed(run)],
        text=table.render_checks(run),
    )


def render_fixes(
    result: Result, *, contents: Contents = lambda name: None, folder: str = ""
) -> str:
    """`contents`: what files held before and after; `folder`: the run's, as a shell takes it."""
    facts = fixes.facts(result)
    back = result.kind == "apply" and any(map(fixes.acted_on, result.hosts))
    return _page(
        fix_data.data(result, contents),
        title=f"nodevet {plain(result.kind)} {plain(result.plan)}",
        headline=_ended(result),
        facts=[f"nodevet {plain(result.kind)} {plain(result.plan)}", fixes.summary(result)],
        named=[],
        rows=facts,
        command=f"nodevet rollback {plain(folder)}" if folder and back else "",
        since=None,
        text=table.render_fixes(result),
    )


def _ended(result: Result) -> str:
    """`8 hosts changed`, `Done: 7 changed, 1 unchanged`, `1 of 8 hosts: refused`."""
    hosts = count(len(result.hosts), "host")
    if not result.hosts:
        return "No hosts: nothing to do"
    bad = [host for host in result.hosts if not result.good(host.outcome)]
    if result.unknown:
        return "How this run ended is not known"
    if not bad:
        told = [f"{number:,} {outcome.words}" for outcome, number in fixes.tally(result).items()]
        words = [each for each in told if not each.startswith("0 ")]
        same = len(words) == 1
        return f"{hosts} {result.hosts[0].outcome.words}" if same else f"Done: {', '.join(words)}"
    worst = min((host.outcome for host in bad), key=lambda outcome: outcome.rank)
    number = sum(host.outcome is worst for host in bad)
    return f"{number:,} of {hosts}: {worst.words}"


def _page(data: dict[str, Any], **given: Any) -> str:
    """The page of this data, with the one style and the one script of all."""
    style = page.source("nodevet.sheet", "base") + page.source(HERE, "style")
    script = page.source(HERE, "script")
    return page.template(HERE, "page").render(
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        data=Markup(_embedded(data)),  # noqa: S704 - no < > & left in it
        fixes=data["kind"] == "fixes",
        grouped=any(host.get("groups") for host in data["hosts"]),
        **{"command": "", "shadow": [], "suspicions": (), **given},
    )


def _policy(style: str, script: str) -> str:
    return f"{page.NOTHING}; style-src '{page.hash_of(style)}'; script-src '{page.hash_of(script)}'"


def _embedded(data: Any) -> str:
    """JSON that HTML cannot end early: ASCII, and without `<`, `>` and `&`."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _headline(run: Run) -> str:
    found = totals(run)
    hosts = count(len(run.hosts), "host")
    if not run.hosts:
        return "No hosts: nothing was vetted"
    if found.all_ok:
        return f"{'Ok as far as judged' if narrowing(run) else 'All ok'}: {hosts}"
    if len(run.hosts) == 1:
        return f"{brief(name(run.hosts[0].host), 80)}: {run.hosts[0].outcome.words}"
    if failed := found.hosts[HostOutcome.FAIL]:
        return f"{failed:,} of {hosts} {'fails' if failed == 1 else 'fail'}"
    unsaid = len(run.hosts) - found.hosts[HostOutcome.OK] - found.hosts[HostOutcome.WAIVED]
    if unsaid:
        return f"{unsaid:,} of {hosts} could not be judged"
    return f"No failures: {found.hosts[HostOutcome.WAIVED]:,} of {hosts} under a waiver"


def _facts(run: Run) -> list[str]:
    facts = [
        f"took {elapsed(run.seconds)}",
        f"run {plain(run.id)}",
        f"nodevet {plain(run.nodevet)}",
        f"fails on {run.fail_on.value}",
    ]
    more = (narrowing(run), evidence_age(run), "interrupted" if run.interrupted else "")
    return [*facts, *filter(None, more)]


def _in_shadow(line: Line) -> dict[str, str]:
    where = " ".join(filter(None, (nodeset(line.hosts), line.subjects)))
    return {
        "label": line.label.removeprefix(SHADOW).strip().lower(),
        "check": line.check,
        "what": line.what,
        "note": line.note,
        "hosts": where,
    }


def _since(run: Run) -> dict[str, Any] | None:
    news = run.news
    if not news or not news.since:
        return None
    standing = news.standing
    groups = {
        "New": [each.host for each in standing if each.new and each.place >= 0],
        "Changed": [each.host for each in standing if each.changed],
        "Fixed": [each.host for each in fixed(news)],
        "Resolved": [each.host for each in resolved(news)],
        "Flapping": flapping(news),
        "No longer judged": [each.host for each in standing if each.new and each.place < 0],
        "Judged again": [each.host for each in again(news)],
        "Appeared": news.appeared,
        "Replaced": news.replaced,
        "Vanished": news.vanished,
    }
    rows = [(word, f"{len(hosts):,}", nodeset(hosts)) for word, hosts in groups.items() if hosts]
    return {"when": plain(news.since), "rows": rows, "words": words(run)}
