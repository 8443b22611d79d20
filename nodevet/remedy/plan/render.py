"""A plan as people read it: folded over hosts, or as a diff of each host. Pure.

What came from a node, an inventory or somebody's plan file is escaped as in every report.
"""

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ClusterShell.RangeSet import RangeSet

from nodevet.model import Finding, Subject, Verdict
from nodevet.printable import brief, cells, plain
from nodevet.remedy.model import Conflict, Plan, Step
from nodevet.remedy.rollout.undo import UndoError, chosen, text_of
from nodevet.remedy.settings import told
from nodevet.report.parts.text import count, cut_pair, nodeset, pad
from nodevet.report.parts.words import ADVICE, LIMIT, SENTENCE, subjects_of, values
from nodevet.resource import Resource, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

GAP = "  "
WIDEST = 64  # columns that a column aligns to; a longer cell pushes its own line only
EFFECT = {
    "restart": "in force after a restart",
    "reset": "in force after a GPU reset",
    "reboot": "in force after a reboot",
}
CONTEXT = 3  # unchanged lines around a change of a file

_NUMBERS = re.compile(r"(\d+)")


def fold(plan: Plan) -> str:
    """One line per change and everything that shares it, then conflicts and the totals."""
    groups: dict[tuple[str, ...], list[Step]] = {}
    for step in plan.steps:
        key = (step.fix, step.risk.value, *_values(step), step.effective, step.note)
        groups.setdefault(key, []).append(step)
    rows = []
    for steps in groups.values():
        first = steps[0]
        old, new = cut_pair(*_values(first), LIMIT)
        subjects, named = _subjects(steps)
        where = nodeset(step.host for step in steps)
        notes = [f"risk {first.risk.value}", EFFECT.get(first.effective, ""), plain(first.note)]
        rows.append(
            [
                f"set {plain(first.fix)}",
                f"{old} → {new}",
                f"{where} {subjects}" if named and subjects else where,
                "" if named else subjects,
                "; ".join(filter(None, notes)),
            ]
        )
    return _whole(plan, table(rows))


def diff(plan: Plan) -> str:
    """For each host what changes, line by line, and the commands; hosts alike share one."""
    bodies: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_host = {host: list(steps) for host, steps in groupby(plan.steps, lambda step: step.host)}
    for host, steps in by_host.items():
        node = plan.nodes.get(host)
        body = tuple(line for step in steps for line in step_lines(step))
        bodies.setdefault((node.baseline if node else "", body), []).append(host)
    out = []
    for (baseline, body), hosts in bodies.items():
        out += [f"# {nodeset(hosts)}" + (f" ({plain(baseline)})" if baseline else ""), *body, ""]
    return _whole(plan, out[:-1])


def step_lines(step: Step) -> Iterator[str]:
    """One step: its reason, the value, then each action as a diff or as a command."""
    subjects, _ = _subjects([step])
    what = plain(f"{step.fix} {subjects}".rstrip())
    notes = [f"risk {step.risk.value}", EFFECT.get(step.effective, ""), step.note]
    yield f"## {what}: {plain('; '.join(filter(None, notes)))}"
    yield f"## {plain(step.reason)}"
    old, new = _values(step)
    yield f"-{what}: {old}"
    yield f"+{what}: {new}"
    before = {seen.resource: seen for seen in step.before}
    for kind, actions in groupby(step.actions, type):
        if kind is WriteKernel:
            yield from _kernel(
                [action for action in actions if isinstance(action, WriteKernel)], before
            )
            continue
        for action in actions:
            if isinstance(action, WriteFile):
                yield from _file(action, before.get(Resource(kind="file", name=action.path)))
            elif isinstance(action, SetUnit):
                yield from _unit(action, before.get(Resource(kind="unit", name=action.name)))
            elif not isinstance(action, WriteKernel):
                yield f"$ {plain(shlex.join(action.words))}"


def _file(action: WriteFile, before: State | None) -> Iterator[str]:
    path = plain(action.path)
    old, about = _content(before)
    new = None if action.content is None else action.content
    if new is None and before and not before.exists:
        return
    head = "/dev/null" if before and not before.exists else f"{path}{about}"
    yield f"--- {head}"
    yield f"+++ {'/dev/null' if new is None else path}"
    changed = list(difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=CONTEXT))[2:]
    yield from (line if line.startswith("@@") else plain(line) for line in changed)
    if before and before.exists and isinstance(before.value, Mapping):
        was = _owned(*(before.value.get(key) for key in ("mode", "owner", "group")))
    else:
        was = _owned(0o644, 0, 0)
    now = _owned(action.mode, action.owner, action.group)
    if new is not None and now != was:
        if before and before.exists:
            yield f"-{path}: {was}"
        yield f"+{path}: {now}"


def _content(before: State | None) -> tuple[str | None, str]:
    """What a file holds now, and what is to be said of it."""
    if before is None:
        return None, "  (what it holds now was not looked at)"
    if not before.exists:
        return None, ""
    try:
        text = text_of(before)
    except UndoError:
        return None, "  (what it holds now was not seen)"
    return text, "  (what it holds now is not text)" if text is None else ""


def _lines(text: str | None) -> list[str]:
    if not text:
        return []
    rows = text.split("\n")
    return rows[:-1] if rows[-1] == "" else [*rows[:-1], f"{rows[-1]}  (no newline at its end)"]


def _owned(mode: Any, owner: Any, group: Any) -> str:
    shown = f"{mode:04o}" if isinstance(mode, int) else "not seen"
    return plain(f"mode {shown}, owner {owner}, group {group}")


def _kernel(actions: Sequence[WriteKernel], before: Mapping[Resource, State]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for action in actions:
        seen = before.get(Resource(kind="kernel", name=action.path))
        groups.setdefault((_held(seen), plain(action.value)), []).append(action.path)
    for (old, new), paths in groups.items():
        for where in folded(paths):
            yield f"-{where}: {old}"
            yield f"+{where}: {new}"


def _held(seen: State | None) -> str:
    if seen is None:
        return "(not looked at)"
    try:
        return plain(chosen(seen)) if seen.exists else "(not there)"
    except UndoError:
        return plain(str(seen.value))


def folded(paths: Sequence[str]) -> Iterator[str]:
    """Paths that differ in one number as one: /sys/.../policy[0-223]/scaling_governor."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for path in dict.fromkeys(paths):
        pieces = _NUMBERS.split(path)
        groups.setdefault(tuple(pieces[::2]), []).append(pieces)
    for members in groups.values():
        differ = [place for place in range(len(members[0])) if len({m[place] for m in members}) > 1]
        if len(members) == 1 or len(differ) != 1:
            yield from (plain("".join(pieces)) for pieces in members)
            continue
        (place,) = differ
        numbers = RangeSet.fromlist([pieces[place] for pieces in members])
        head, tail = "".join(members[0][:place]), "".join(members[0][place + 1 :])
        yield plain(f"{head}[{numbers}]{tail}")


def _unit(action: SetUnit, before: State | None) -> Iterator[str]:
    name = plain(action.name)
    yield f"-{name}: {_unit_before(before)}"
    parts = {
        "enabled": action.enabled,
        "disabled": _negated(action.enabled),
        "running": action.running,
        "stopped": _negated(action.running),
        "masked": action.masked,
        "not masked": _negated(action.masked),
        "restarted where it runs": action.restart,
    }
    yield f"+{name}: {', '.join(part for part, on in parts.items() if on) or 'as it is'}"


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _unit_before(before: State | None) -> str:
    if before is None or (before.exists and not isinstance(before.value, Mapping)):
        return "(not looked at)"
    if not before.exists:
        return "(not there)"
    value = before.value
    words = {"enabled": ("enabled", "disabled"), "active": ("running", "stopped")}
    told = [
        words[key][not value[key]] if isinstance(value[key], bool) else str(value[key])
        for key in ("enabled", "active")
        if value.get(key) is not None
    ]
    return plain(", ".join([*told, *(["masked"] if value.get("masked") is True else [])]))


def _values(step: Step) -> tuple[str, str]:
    """What is and what will be, printable."""
    new, old = values(
        Finding(verdict=Verdict.FAIL, expected=step.expected, actual=step.actual, unit=step.unit)
    )
    return old, new


def _subjects(steps: Iterable[Step]) -> tuple[str, bool]:
    """As `subjects_of`, from the labels of the steps."""
    members = []
    for step in steps:
        for label in step.subjects or ("",):
            kind, _, identity = label.partition(" ")
            subject = Subject(kind={"": "node", "GPU": "gpu"}.get(kind, kind), id=identity)
            members.append((step.host, Finding(verdict=Verdict.FAIL, subject=subject)))
    return subjects_of(members)


def _whole(plan: Plan, body: list[str]) -> str:
    left_out = [*conflicts(plan.conflicts)]
    parts = [body, left_out, [summary(plan), *carried_out(plan)]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def summary(plan: Plan) -> str:
    """The totals line: steps, hosts, the highest risk, who made it and until when it holds."""
    if not plan.steps:
        return "No steps"
    risk = plan.risk.value if plan.risk else "none"
    hosts = len({step.host for step in plan.steps})
    return plain(
        f"plan {plan.id}: {count(len(plan.steps), 'step')} on {count(hosts, 'host')} · risk {risk}"
        f" · by {plan.author} · expires {plan.expires}"
    )


def carried_out(plan: Plan) -> list[str]:
    """How it will be carried out, and by which nodevet: what is signed with the steps."""
    if not plan.steps:
        return []
    return [plain(f"carried out by nodevet {plan.nodevet or '?'}: {told(plan.rollout)}")]


def conflicts(found: Sequence[Conflict]) -> Iterator[str]:
    """What is not planned although a fix is there, and why; equal ones once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        groups.setdefault((each.fix, each.why, each.advice), []).append(each.host)
    if not groups:
        return
    yield "not planned:"
    rows = []
    for (fix, why, advice), hosts in groups.items():
        note = f"advice: {brief(advice, ADVICE)}" if advice else ""
        rows.append([f"  {plain(fix)}", brief(why, SENTENCE), nodeset(hosts), note])
    yield from table(rows)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of printable cells under one another; the last column is as long as it is."""
    widths = [
        max((cells(cell) for cell in column if cells(cell) <= WIDEST), default=0)
        for column in zip(*rows, strict=True)
    ]
    padded = (
        [pad(cell, width) for cell, width in zip(row, widths, strict=True) if width or cell]
        for row in rows
    )
    return [GAP.join(row).rstrip() for row in padded]
