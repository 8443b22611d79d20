"""A run of fixes in words, for all formats: its facts, its hosts folded, its steps. Pure."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.base.ranges import in_ranges
from nodevet.model import Finding, Verdict
from nodevet.sheet.hunks import hunks
from nodevet.sheet.text import count, name, nodeset

if TYPE_CHECKING:
    from nodevet.fixing.result import HostResult, Outcome, Ran, Result, StepResult
    from nodevet.resource import Contents, State

LONGEST = 240  # columns of one reason
CONTEXT = 2  # unchanged lines around a change of a file


def summary(result: "Result") -> str:
    """`3 hosts: 2 changed, 1 refused`, and why the run's outcome is unknown, if it is."""
    parts = [
        f"{number:,} {outcome.words}"
        for outcome, number in reversed(tally(result).items())
        if number
    ]
    hosts = f"{count(len(result.hosts), 'host')}: {', '.join(parts) or 'nothing to do'}"
    return f"{hosts}; UNKNOWN: {plain(result.unknown)}" if result.unknown else hosts


def line(host: "HostResult") -> str:
    """One line about a host that ended, for the display of a running run."""
    return "  ".join(filter(None, (name(host.host), host.outcome.words, brief(host.why, LONGEST))))


def facts(result: "Result") -> list[tuple[str, str]]:
    """(label, text): plan, author, approvals, start."""
    approved = [f"{plain(approval.who)} ({plain(approval.key)})" for approval in result.approvals]
    return [
        ("plan", f"{plain(result.plan)}, sha256 {plain(result.digest)}"),
        ("author", plain(result.author)),
        ("approved by", ", ".join(approved) or "not required"),
        ("started", f"{plain(result.started)}, took {elapsed(result.seconds)}"),
        *[("override", plain(str(approval))) for approval in result.options.get("overrides", ())],
        *([("stopped", plain(result.stopped))] if result.stopped else []),
    ]


def fold_hosts(result: "Result") -> "list[tuple[Outcome, str, str]]":
    """(outcome, hosts, why), worst first; hosts with the same outcome and reason share one."""
    groups: dict[tuple[Outcome, str], list[str]] = {}
    for host in sorted(result.hosts, key=lambda host: (host.outcome.rank, host.why)):
        why = without_host(host.host, brief(host.why, LONGEST))
        groups.setdefault((host.outcome, why), []).append(host.host)
    return [(outcome, nodeset(hosts), why) for (outcome, why), hosts in groups.items()]


def without_host(host: str, text: str) -> str:
    """A reason without the host in its step ids: `power_limit/1`, not `gpu1/power_limit/1`."""
    return re.sub(rf"(?<![^\s(;,:]){re.escape(name(host))}/", "", text)


def has_changes(host: "HostResult") -> bool:
    """Whether a step of the host was begun or rolled back; then reports show all its steps."""
    return any(step.ran or step.before for step in host.steps)


def change(step: "StepResult") -> str:
    """`500 W → 700 W on GPU 0-1`."""
    as_finding = Finding(verdict=Verdict.FAIL, unit=step.unit)
    before, after = as_finding.text(step.actual), as_finding.text(step.expected)
    subjects = f" on {in_ranges(step.subjects)}" if any(step.subjects) else ""
    return brief(f"{before} → {after}{subjects}", LONGEST)


def action_text(action: "Ran") -> str:
    """An action and how it ended."""
    from nodevet.fixing.result import ending_text

    if action.ok is None:
        return f"{plain(action.action.label)}: its end is not known"
    if action.ok:
        return plain(action.action.label)
    return brief(f"{action.action.short_label}: {ending_text(action.code, action.output)}", LONGEST)


def verdicts(step: "StepResult") -> str:
    """`ok: GPU 0-1`, with other verdicts first; empty if the check did not run."""
    subjects: dict[str, list[str]] = {}
    for subject, verdict in step.verdicts.items():
        subjects.setdefault(verdict, []).append(subject)
    worst_first = sorted(subjects.items(), key=lambda item: item[0] == Verdict.OK.value)
    return brief(
        "; ".join(
            f"{word}: {in_ranges(subjects_of_word)}" for word, subjects_of_word in worst_first
        ),
        LONGEST,
    )


def changed_states(step: "StepResult") -> "list[tuple[State, State]]":
    """(before, after) of each resource that is not as before."""
    from nodevet.resource import has_ended, is_same

    after_by_resource = {state.resource: state for state in step.after}
    return [
        (before, after)
        for before in step.before
        if (after := after_by_resource.get(before.resource))
        and not is_same(before, after)
        and not has_ended(before, after)
    ]


def changes_text(step: "StepResult") -> list[tuple[str, str, str]]:
    """(resource, before, after) in words, of each resource that is not as before."""
    from nodevet.resource import describe

    rows = []
    for state_before, state_after in changed_states(step):
        before, after = plain(describe(state_before)), plain(describe(state_after))
        after_text = f"{after}, other content" if after == before else after
        rows.append((plain(state_before.resource.label), before, after_text))
    return rows


def diffs(step: "StepResult", contents: "Contents") -> dict[str, tuple[str, ...]]:
    """Label of each changed file -> printable lines of a unified diff without its head. Files whose
    text is not known are left out.

    `contents`: of files, by SHA-256.
    """
    from nodevet.resource import kind_of, with_contents

    lines_by_file = {}
    for before, after in (with_contents(pair, contents) for pair in changed_states(step)):
        kind = kind_of(before.resource)
        sides = [kind.text(state) if state.exists else [] for state in (before, after)]
        if sides[0] is not None and sides[1] is not None and sides[0] != sides[1]:
            lines_by_file[plain(before.resource.label)] = tuple(
                hunks([(sides[0], sides[1])], CONTEXT)
            )
    return lines_by_file


def tally(result: "Result") -> "dict[Outcome, int]":
    """The number of hosts for every outcome, worst first."""
    from nodevet.fixing.result import Outcome

    counted = Counter(host.outcome for host in result.hosts)
    return {outcome: counted[outcome] for outcome in Outcome}
