"""Per host a unified diff, from before a fix to after: one hunk or more per fix.

Hosts that differ in the same way share one diff under their nodeset. Lines that start with `#`
belong to no diff: the commands of fixes, and the totals.
"""

from collections.abc import Iterator

from nodevet.base.printable import brief, plain
from nodevet.fix import result_text
from nodevet.fixing.result import HostResult, Result, StepResult
from nodevet.resource import Contents, State, describe, kind_of, with_contents
from nodevet.sheet.hunks import Pair, labelled_hunks
from nodevet.sheet.text import nodeset

CONTEXT = 1  # unchanged lines around a difference
ENDING = ".diff"


def render(result: Result, contents: Contents) -> str:
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host in result.hosts:
        hosts.setdefault((*_notes(host), "", *_fix_hunks(host, contents)), []).append(host.host)
    lines = [
        f"# nodevet {plain(result.kind)}",
        *(f"# {key}: {value}" for key, value in result_text.facts(result)),
    ]
    for body, members in hosts.items():
        members_text = nodeset(members)
        lines += ["", f"# {members_text}: {body[0]}", *body[1 : body.index("")]]
        if hunks := body[body.index("") + 1 :]:
            lines += [f"--- {members_text} before", f"+++ {members_text} after", *hunks]
    return "\n".join([*lines, "", f"# {result_text.summary(result)}"]) + "\n"


def _notes(host: HostResult) -> Iterator[str]:
    why = f": {brief(host.why, result_text.LONGEST)}" if host.why else ""
    yield f"{host.outcome.words}{why}"
    for step in host.steps:
        yield f"#   {plain(step.fix)} {result_text.change(step)}: {step.outcome.words}"
        if step.why and step.why != host.why:
            yield f"#     {brief(step.why, result_text.LONGEST)}"
        yield from (f"#     ran {result_text.action_text(action)}" for action in step.ran)
        if step.verdicts:
            yield f"#     the check says {result_text.verdicts(step)}"


def _fix_hunks(host: HostResult, contents: Contents) -> Iterator[str]:
    """One hunk or more for each step that changed something."""
    return labelled_hunks(
        ((plain(step.fix), _sides(step, contents)) for step in host.steps), CONTEXT
    )


def _sides(step: StepResult, contents: Contents) -> list[Pair]:
    return [
        (list(_state_lines(before)), list(_state_lines(after)))
        for before, after in (
            with_contents(pair, contents) for pair in result_text.changed_states(step)
        )
    ]


def _state_lines(state: State) -> Iterator[str]:
    """A resource that does not exist has no lines."""
    if state.why:
        yield f"{plain(state.resource.label)}: {plain(describe(state))}"
    elif state.exists:
        yield from kind_of(state.resource).lines(state)
