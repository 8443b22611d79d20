"""The run as one HTML page that needs nothing else; text from nodes is escaped by Jinja."""

from importlib.resources import files

import jinja2

from nodevet.printable import brief, plain
from nodevet.remedy.report.words import (
    LONGEST,
    change,
    facts,
    folded,
    moved,
    ran,
    summary,
    verdicts,
)
from nodevet.remedy.result import Outcome, Result
from nodevet.report.text import name

FEW = 5  # nodes; the steps of so many are shown at once


def render(result: Result) -> str:
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    ).from_string(files(__package__).joinpath("html.jinja").read_text(encoding="utf-8"))
    return template.render(
        title=f"nodevet {plain(result.kind)} {plain(result.plan)}",
        summary=summary(result),
        good=[outcome.words for outcome in Outcome if result.good(outcome)],
        few=len(result.hosts) <= FEW,
        facts=facts(result),
        folded=[(outcome.words, hosts, why) for outcome, hosts, why in folded(result)],
        hosts=[
            {
                "name": name(host.host),
                "outcome": host.outcome.words,
                "why": brief(host.why, LONGEST),
                "canary": host.canary,
                "rebooted": host.rebooted,
                "steps": [
                    {
                        "fix": plain(step.fix),
                        "change": change(step),
                        "outcome": step.outcome.words,
                        "why": brief(step.why, LONGEST),
                        "ran": [ran(one) for one in step.ran],
                        "verdicts": verdicts(step),
                        "moved": moved(step),
                    }
                    for step in host.steps
                ],
            }
            for host in result.hosts
        ],
    )
