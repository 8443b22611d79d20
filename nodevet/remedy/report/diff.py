"""What was there before and what is there after, as unified diffs; files line by line.

Lines that start with `#` belong to no diff: what the run was, how each node ended and which
commands ran there. Nodes where the same was done in the same words share one diff.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping

from nodevet.printable import brief, plain
from nodevet.remedy.report.words import LONGEST, change, changed, facts, ran, summary, verdicts
from nodevet.remedy.result import HostResult, Result, StepResult
from nodevet.remedy.rollout.session import state
from nodevet.report.diff import labelled
from nodevet.report.hunks import Pair
from nodevet.report.text import nodeset
from nodevet.resource import State

LINES = 2000  # of one file; a longer one, or one that is no text, is told by its checksum


def render(result: Result) -> str:
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host in result.hosts:
        hosts.setdefault((*_notes(host), "", *_hunks(host)), []).append(host.host)
    told = [
        f"# nodevet {plain(result.kind)}",
        *(f"# {key}: {value}" for key, value in facts(result)),
    ]
    for body, members in hosts.items():
        where = nodeset(members)
        told += ["", f"# {where}: {body[0]}", *body[1 : body.index("")]]
        if hunks := body[body.index("") + 1 :]:
            told += [f"--- {where} before", f"+++ {where} after", *hunks]
    return "\n".join([*told, "", f"# {summary(result)}"]) + "\n"


def _notes(host: HostResult) -> Iterator[str]:
    why = f": {brief(host.why, LONGEST)}" if host.why else ""
    yield f"{host.outcome.words}{why}"
    for step in host.steps:
        yield f"#   {plain(step.fix)} {change(step)}: {step.outcome.words}"
        if step.why and step.why != host.why:
            yield f"#     {brief(step.why, LONGEST)}"
        yield from (f"#     ran {ran(one)}" for one in step.ran)
        if step.verdicts:
            yield f"#     the check says {verdicts(step)}"


def _hunks(host: HostResult) -> Iterator[str]:
    """Of each step that left something other than it found, one hunk or more."""
    return labelled((plain(step.fix), _sides(step)) for step in host.steps)


def _sides(step: StepResult) -> list[Pair]:
    return [(list(_lines(then)), list(_lines(now))) for then, now in changed(step)]


def _lines(seen: State) -> Iterator[str]:
    """What is not there has no lines."""
    label = plain(seen.resource.label)
    if seen.why or not (seen.exists and isinstance(seen.value, Mapping)):
        if seen.why or seen.exists:
            yield f"{label}: {plain(state(seen))}"
    elif seen.resource.kind == "file":
        yield f"{label}: {_properties(seen.value)}"
        yield from (f"  {line}" for line in _content(seen.value))
    else:
        yield from (f"{label} {plain(f'{key}: {value}')}" for key, value in seen.value.items())


def _properties(value: Mapping[str, object]) -> str:
    mode = value.get("mode")
    shown = f"mode {mode:o}" if isinstance(mode, int) else "mode unknown"
    return f"{shown}, owner {value.get('owner')}, group {value.get('group')}"


def _content(value: Mapping[str, object]) -> list[str]:
    content = base64.b64decode(str(value.get("content") or ""))
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) > LINES or (content and not lines):
        return [f"{len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}"]
    return [plain(line) for line in lines]
