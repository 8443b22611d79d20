"""A run as one HTML page that works without a network.

Of checks: totals, differences, hosts × checks. Of fixes: outcomes, and what was done on each host.
Text from a node goes through `plain`, then either through Jinja's autoescape or into the page as
JSON that the script shows with textContent alone. The page's policy runs exactly the script and
style below, by hash.
"""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from nodevet.changes import Changes, changes
from nodevet.durations import elapsed
from nodevet.model import HostOutcome, Run
from nodevet.printable import brief, plain
from nodevet.report import table
from nodevet.report.parts import fixes
from nodevet.report.parts.ages import evidence_age
from nodevet.report.parts.fold import findings_in_words, totals
from nodevet.report.parts.page_data import data
from nodevet.report.parts.text import count, name, nodeset
from nodevet.result import HostResult, Outcome, Result

ENDING = ".html"
FEW = 5  # hosts; the steps of so many are shown at once
QUIET = (
    Outcome.CHANGED,
    Outcome.UNCHANGED,
    Outcome.VERIFIED_AFTER_REBOOT,
    Outcome.NOT_ATTEMPTED,
)
"""Of many hosts, the steps of those that ended so are folded away."""


def render_checks(run: Run, *, previous: Run | None = None) -> str:
    since = changes(previous, run) if previous else None
    return _page(
        "checks",
        script=_source("script"),
        data=Markup(_embedded(data(run, since))),  # noqa: S704 - no < > & left in it
        headline=_headline(run),
        facts=_facts(run),
        baselines=[(plain(key), plain(sha256)) for key, sha256 in run.baselines.items()],
        started=plain(run.started),
        told=findings_in_words(totals(run)),
        since=_since(since),
        text=table.render_checks(run, previous=previous),
    )


def render_fixes(result: Result) -> str:
    """The steps of a host are open if few hosts are there, or if it did not end as was asked."""
    return _page(
        "fixes",
        title=f"nodevet {plain(result.kind)} {plain(result.plan)}",
        summary=fixes.summary(result),
        good=[outcome.words for outcome in Outcome if result.good(outcome)],
        facts=fixes.facts(result),
        folded=[(outcome.words, hosts, why) for outcome, hosts, why in fixes.folded(result)],
        hosts=[_fixed(host, few=len(result.hosts) <= FEW) for host in result.hosts],
    )


def _page(template: str, *, script: str = "", **given: Any) -> str:
    """A page of the skeleton `page.jinja`, with the one style of all and with this script."""
    style = _source("style")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        loader=jinja2.FunctionLoader(_source),
    )
    return environment.get_template(template).render(
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        **given,
    )


def _source(name: str) -> str:
    file = files("nodevet.report.parts").joinpath(f"{name}.jinja")
    return file.read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    runs = f"; script-src '{_hash(script)}'" if script else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src '{_hash(style)}'{runs}"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


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
        return f"All ok: {hosts}"
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
    more = (evidence_age(run), "interrupted" if run.interrupted else "")
    return [*facts, *filter(None, more)]


def _since(since: Changes | None) -> dict[str, Any] | None:
    if since is None:
        return None
    groups = {
        "New": [change.host for change in since.new],
        "Changed": [change.host for change in since.changed],
        "Fixed": [change.host for change in since.fixed],
        "No longer judged": [change.host for change in since.lost],
        "Judged again": [change.host for change in since.back],
        "Appeared": since.appeared,
        "Vanished": since.vanished,
    }
    rows = [(word, f"{len(hosts):,}", nodeset(hosts)) for word, hosts in groups.items() if hosts]
    return {"when": plain(since.since), "rows": rows, "words": since.words}


def _fixed(host: HostResult, *, few: bool) -> dict[str, Any]:
    return {
        "name": name(host.host),
        "outcome": host.outcome.words,
        "open": few or host.outcome not in QUIET,
        "why": brief(host.why, fixes.LONGEST),
        "canary": host.canary,
        "rebooted": host.rebooted,
        "steps": [
            {
                "fix": plain(step.fix),
                "change": fixes.change(step),
                "outcome": step.outcome.words,
                "why": brief(step.why, fixes.LONGEST),
                "ran": [fixes.ran(one) for one in step.ran],
                "verdicts": fixes.verdicts(step),
                "moved": fixes.moved(step),
            }
            for step in host.steps
        ],
    }
