"""A plan as people read it: folded over hosts, or as a diff of each host. Pure.

What came from a node, an inventory or a plan file is escaped as in every report.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from nodevet.model import Finding, Subject, Verdict
from nodevet.printable import brief, plain
from nodevet.remedy.model import Conflict, Plan, Step
from nodevet.remedy.settings import told
from nodevet.report.parts.text import columns, count, cut_pair, nodeset
from nodevet.report.parts.words import ADVICE, LIMIT, SENTENCE, subjects_of, values
from nodevet.resource import Contents, filled
from nodevet.resource import diff as actions_diff

EFFECT = {
    "restart": "in force after a restart",
    "reset": "in force after a GPU reset",
    "reboot": "in force after a reboot",
}


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
    return _whole(plan, columns(rows))


def diff(plan: Plan, contents: Contents = lambda name: None) -> str:
    """For each host what changes, line by line, and the commands; hosts alike share one.

    `contents`: what files held when it was made.
    """
    bodies: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    by_host = {host: list(steps) for host, steps in groupby(plan.steps, lambda step: step.host)}
    for host, steps in by_host.items():
        node = plan.nodes.get(host)
        body = tuple(line for step in steps for line in step_lines(step, contents))
        bodies.setdefault((node.baseline if node else "", body), []).append(host)
    out = []
    for (baseline, body), hosts in bodies.items():
        out += [f"# {nodeset(hosts)}" + (f" ({plain(baseline)})" if baseline else ""), *body, ""]
    return _whole(plan, out[:-1])


def step_lines(step: Step, contents: Contents = lambda name: None) -> Iterator[str]:
    """One step: its reason, the value, then each action as a diff or as a command."""
    subjects, _ = _subjects([step])
    what = plain(f"{step.fix} {subjects}".rstrip())
    notes = [f"risk {step.risk.value}", EFFECT.get(step.effective, ""), step.note]
    yield f"## {what}: {plain('; '.join(filter(None, notes)))}"
    yield f"## {plain(step.reason)}"
    old, new = _values(step)
    yield f"-{what}: {old}"
    yield f"+{what}: {new}"
    yield from actions_diff(step.actions, filled(step.before, contents))


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
    """What is not planned although there is a fix, and why; equal ones once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        groups.setdefault((each.fix, each.why, each.advice), []).append(each.host)
    if not groups:
        return
    yield "Not planned:"
    rows = []
    for (fix, why, advice), hosts in groups.items():
        note = f"advice: {brief(advice, ADVICE)}" if advice else ""
        rows.append([f"  {plain(fix)}", brief(why, SENTENCE), nodeset(hosts), note])
    yield from columns(rows)
