"""What formats say of a run of fixes: its facts, its hosts folded, its steps in words. Pure."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.model import Finding, Verdict
from nodevet.sheet.hunks import hunks
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.findings.words import in_ranges

if TYPE_CHECKING:
    from nodevet.fixing.result import HostResult, Outcome, Ran, Result, StepResult
    from nodevet.resource import Contents, State

LONGEST = 240  # columns of one reason
CONTEXT = 2  # unchanged lines around a change of a file


def summary(result: "Result") -> str:
    """`3 hosts: 2 changed, 1 refused`; and why the run's own is unknown, if it is."""
    told = [
        f"{number:,} {outcome.words}"
        for outcome, number in reversed(tally(result).items())
        if number
    ]
    hosts = f"{count(len(result.hosts), 'host')}: {', '.join(told) or 'nothing to do'}"
    return f"{hosts}; UNKNOWN: {plain(result.unknown)}" if result.unknown else hosts


def line(host: "HostResult") -> str:
    """One host that ended, as it is told while the run goes on."""
    return "  ".join(filter(None, (name(host.host), host.outcome.words, brief(host.why, LONGEST))))


def facts(result: "Result") -> list[tuple[str, str]]:
    """What the run was: plan, author, who approved, when."""
    approved = [f"{plain(one.who)} ({plain(one.key)})" for one in result.approvals]
    return [
        ("plan", f"{plain(result.plan)}, sha256 {plain(result.digest)}"),
        ("author", plain(result.author)),
        ("approved by", ", ".join(approved) or "not required"),
        ("started", f"{plain(result.started)}, took {elapsed(result.seconds)}"),
        *[("override", plain(str(one))) for one in result.options.get("overrides", ())],
        *([("stopped", plain(result.stopped))] if result.stopped else []),
    ]


def folded(result: "Result") -> "list[tuple[Outcome, str, str]]":
    """(outcome, hosts, why), worst first; hosts with the same words on one line."""
    found: dict[tuple[Outcome, str], list[str]] = {}
    for host in sorted(result.hosts, key=lambda host: (host.outcome.rank, host.why)):
        why = without_host(host.host, brief(host.why, LONGEST))
        found.setdefault((host.outcome, why), []).append(host.host)
    return [(outcome, nodeset(hosts), why) for (outcome, why), hosts in found.items()]


def without_host(host: str, text: str) -> str:
    """A reason that names steps of its own host, `gpu1/power_limit/1`, without that host."""
    return re.sub(rf"(?<![^\s(;,:]){re.escape(name(host))}/", "", text)


def acted_on(host: "HostResult") -> bool:
    """Whether a step of it was begun, or rolled back: then all of them are shown."""
    return any(step.ran or step.before for step in host.steps)


def change(step: "StepResult") -> str:
    """`500 W → 700 W on GPU 0-1`."""
    as_finding = Finding(verdict=Verdict.FAIL, unit=step.unit)
    before, after = as_finding.text(step.actual), as_finding.text(step.expected)
    where = f" on {in_ranges(step.subjects)}" if any(step.subjects) else ""
    return brief(f"{before} → {after}{where}", LONGEST)


def ran(one: "Ran") -> str:
    """An action and how it ended."""
    from nodevet.fixing.result import said

    if one.ok is None:
        return f"{plain(one.action.label)}: its end is not known"
    if one.ok:
        return plain(one.action.label)
    return brief(f"{one.action.label}: {said(one.code, one.output)}", LONGEST)


def verdicts(step: "StepResult") -> str:
    """`ok: GPU 0-1`, what is not ok first; empty if the check was not asked."""
    subjects: dict[str, list[str]] = {}
    for subject, verdict in step.verdicts.items():
        subjects.setdefault(verdict, []).append(subject)
    worst_first = sorted(subjects.items(), key=lambda each: each[0] == Verdict.OK.value)
    return brief("; ".join(f"{word}: {in_ranges(of)}" for word, of in worst_first), LONGEST)


def changed(step: "StepResult") -> "list[tuple[State, State]]":
    """(before, after) of what is not as it was."""
    from nodevet.resource import ended, same

    after = {seen.resource: seen for seen in step.after}
    return [
        (then, after[then.resource])
        for then in step.before
        if then.resource in after
        and not same(then, after[then.resource])
        and not ended(then, after[then.resource])
    ]


def moved(step: "StepResult") -> list[tuple[str, str, str]]:
    """(resource, before, after) of what is not as it was, in words."""
    from nodevet.resource import describe

    rows = []
    for then, now in changed(step):
        before, after = plain(describe(then)), plain(describe(now))
        other = f"{after}, other content" if after == before else after
        rows.append((plain(then.resource.label), before, other))
    return rows


def diffs(step: "StepResult", contents: "Contents") -> dict[str, tuple[str, ...]]:
    """The lines of a unified diff, printable and without its head, of what each file held before
    and after; by the file's label, as `moved` has it. A file whose text is not known is not there.

    `contents`: what files held, by SHA-256.
    """
    from nodevet.resource import filled, kind_of

    found = {}
    for then, now in (filled(pair, contents) for pair in changed(step)):
        kind = kind_of(then.resource)
        sides = [kind.text(one) if one.exists else [] for one in (then, now)]
        if sides[0] is not None and sides[1] is not None and sides[0] != sides[1]:
            found[plain(then.resource.label)] = tuple(hunks([(sides[0], sides[1])], CONTEXT))
    return found


def tally(result: "Result") -> "dict[Outcome, int]":
    """How many hosts ended in each way; worst first, and every way is there."""
    from nodevet.fixing.result import Outcome

    counted = Counter(host.outcome for host in result.hosts)
    return {outcome: counted[outcome] for outcome in Outcome}
