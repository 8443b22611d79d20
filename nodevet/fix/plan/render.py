"""A plan as text: a line for each change, every action once, or each host by itself. Pure.

Text from a node, an inventory or a plan file is escaped as in every report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby, pairwise, zip_longest
from typing import Any

from nodevet.base.printable import brief, plain
from nodevet.base.ranges import in_ranges
from nodevet.base.uuids import GPU_UUID
from nodevet.fix.model import Conflict, Plan, Step
from nodevet.fix.moments import time_text
from nodevet.fix.plan import signed
from nodevet.fix.plan.alike import (
    AlikeStep,
    Folded,
    Passage,
    by_host,
    fold_texts,
    own_gpus,
    same_steps,
)
from nodevet.fix.plan.exact import exact
from nodevet.fix.settings import rollout_text
from nodevet.model import Finding, Subject, Verdict
from nodevet.resource import ONE_WAY, Contents, with_contents
from nodevet.resource import diff as actions_diff
from nodevet.resource.file import WriteFile
from nodevet.sheet.model import HostRow
from nodevet.sheet.text import count, cut_pair, nodeset
from nodevet.vet.findings.words import ADVICE, LIMIT, subjects_of, values

EFFECT = {
    "restart": "effective after a restart",
    "reset": "effective after a GPU reset",
    "reboot": "effective after a reboot",
}
KEEP = "## once the check passes after the reboot:"
OPEN, CLOSE = "‹", "›"
"""Enclose a mark that replaces the UUIDs of GPUs; every other text shows them as escapes."""
LISTED = 8  # UUIDs that are listed below the actions
VALUES = 6  # rows for different current values of one change in `fold`
LIKELY = 12  # current values, or earlier states, that are listed with their hosts
REASONS = 5  # reasons of one change that are listed


def _no_content(name: str) -> bytes | None:
    return None


class View(Enum):
    """How much of a plan is shown."""

    FOLD = "fold"  # one line per change, without actions
    DIFF = "diff"  # each action once, for all its hosts
    FULL = "full"  # each host by itself


# --- one line per change ----------------------------------------------------------------


def changes(plan: Plan) -> list[HostRow]:
    """A row for each change and each current value."""
    return [row for steps in _changes(plan.steps) for row in _change(steps)]


def _changes(steps: Iterable[Step]) -> Iterable[list[Step]]:
    groups: dict[tuple[str, ...], list[Step]] = {}
    for step in steps:
        key = (step.fix, step.risk.value, _values(step)[1], step.effective, step.note)
        groups.setdefault(key, []).append(step)
    return groups.values()


def _change(steps: list[Step]) -> Iterator[HostRow]:
    """The rows of one change: one for each current value; if there are many, one for the rest."""
    by_value: dict[str, list[Step]] = {}
    for step in steps:
        by_value.setdefault(_values(step)[0], []).append(step)
    groups = sorted(by_value.values(), key=len, reverse=True)
    if len(groups) > VALUES:
        others = [step for group in groups[VALUES - 1 :] for step in group]
        others_text = f"{len(groups) - VALUES + 1} other values"
        groups = [*groups[: VALUES - 1], others]
    else:
        others_text = ""
    for place, group in enumerate(groups):
        example = group[0]
        old, new = cut_pair(*_values(example), LIMIT)
        old_text = others_text if others_text and place == len(groups) - 1 else old
        hosts = tuple(dict.fromkeys(step.host for step in group))
        cells = (f"set {plain(example.fix)}", f"{old_text} → {new}")
        yield HostRow(cells, hosts, _subjects(group)[0], _note_text(example))


# --- each action once -------------------------------------------------------------------


def actions(plan: Plan, contents: Contents = _no_content) -> Iterator[str]:
    """Every step once for all its hosts, with what differs between them."""
    gpus = {host: own_gpus(plan.nodes[host].gpus, steps) for host, steps in by_host(plan).items()}
    marks = _Marks(gpus)
    steps = same_steps(plan, contents)
    for place, alike_step in enumerate(steps):
        yield from [""] if place else []
        yield from _heading(plan, alike_step)
        signed_texts = (
            lambda step: signed.declared_text(step, plan.nodes.get(step.host)),
            lambda step: signed.commands_text(step, contents),
        )
        yield from map(_literal, _remark_lines(alike_step, signed_texts))
        yield from map(_literal, _value_lines(alike_step))
        yield from _action_lines(alike_step, marks, contents)
    yield from [""] if marks.legend and len(steps) > 1 else []
    for place, (means, mark) in enumerate(marks.legend.items()):
        yield f"## {mark}: {means}{'' if place else '; see --full'}"


def _heading(plan: Plan, step: AlikeStep) -> Iterator[str]:
    hosts = step.hosts
    number = f"{count(len(hosts), 'host')}: " if len(hosts) > 1 else ""
    baselines = ", ".join(dict.fromkeys(plain(plan.nodes[host].baseline) for host in hosts))
    yield _literal(f"# {plain(step.first.fix)} on {number}{nodeset(hosts)} ({baselines})")


def _remark_lines(alike_step: AlikeStep, besides: Iterable[Callable[[Step], str]]) -> Iterator[str]:
    """Risk and effect, other signed facts, notes and reasons, with hosts if they differ."""
    example, hosts = alike_step.first, len(alike_step.hosts)
    parts = [f"risk {example.risk.value}", *_effects(example)]
    notes = _by_host(alike_step, lambda step: plain(step.note))
    reasons = _by_host(alike_step, lambda step: plain(step.reason))
    if len(reasons) > 1:  # the values are compared below
        reasons = _by_host(alike_step, _reason_text)
    for by_text in (notes, reasons):
        if len(by_text) == 1:
            parts.append(next(iter(by_text)))
    yield f"## {'; '.join(filter(None, parts))}"
    for by_text in (_by_host(alike_step, text_of) for text_of in besides):
        if any(by_text):
            yield f"## {_values_by_host(by_text) if len(by_text) > 1 else next(iter(by_text))}"
    if len(notes) > 1:
        yield from (f"## {note} ({nodeset(members)})" for note, members in notes.items() if note)
    if len(reasons) == 1:
        return
    for reason, members in list(reasons.items())[:REASONS]:
        hosts_text = "" if len(members) == hosts else f" ({nodeset(members)})"
        yield f"## {reason}{hosts_text}"
    if len(reasons) > REASONS:
        yield f"## and {count(len(reasons) - REASONS, 'other reason')}"


def _reason_text(step: Step) -> str:
    """A reason without the values at its beginning."""
    old, new = _values(step)
    _, match, remainder = plain(step.reason).partition(f"{old}, expected {new}")
    reason = remainder.lstrip("; ")
    if match and reason.count("(") == 1 and reason[0] == "(" and reason[-1] == ")":
        return reason[1:-1]  # only where the baseline says it
    return reason if match and reason else plain(step.reason)


def _value_lines(alike_step: AlikeStep) -> Iterator[str]:
    """The current value, with hosts if it differs between them, and the expected value."""
    label = plain(alike_step.first.fix)
    subjects = _by_host(alike_step, lambda step: _subjects([step])[0])
    same_subjects = len(subjects) == 1
    if same_subjects:
        label = f"{label} {next(iter(subjects))}".rstrip()

    def old_text(step: Step) -> str:
        prefix = "" if same_subjects else _subjects([step])[0]
        return ": ".join(filter(None, (prefix, _exact_values(step)[0])))

    for sign, text_of in (("-", old_text), ("+", lambda step: _exact_values(step)[1])):
        by_text = _by_host(alike_step, text_of)
        value = _values_by_host(by_text) if len(by_text) > 1 else next(iter(by_text))
        yield f"{sign}{label}: {value}"


def _by_host(alike_step: AlikeStep, text_of: Callable[[Step], str]) -> dict[str, list[str]]:
    """Text of the step -> hosts with this text, the most common first."""
    by_text: dict[str, list[str]] = {}
    for host, step in alike_step.steps.items():
        by_text.setdefault(text_of(step), []).append(host)
    return dict(sorted(by_text.items(), key=lambda item: -len(item[1])))


def _action_lines(alike_step: AlikeStep, marks: "_Marks", contents: Contents) -> Iterator[str]:
    """The actions. If the current state of files and units differs between hosts, each variant
    names its hosts."""
    blocks = {host: list(_blocks(step, contents)) for host, step in alike_step.steps.items()}
    if len(blocks) == 1:
        (only,) = blocks.values()
        yield from (_literal(line) for block in only for line in block)
        return
    for row in zip_longest(*blocks.values(), fillvalue=list[str]()):
        block = dict(zip(blocks, row, strict=True))
        variants = _variants(block, marks)
        if len(variants) > 1 and (lines := _merged_values(variants)):
            yield from lines
            continue
        if len(variants) > 1 and _is_file(block):
            changes = {host: [x for x in text if x[:1] != " "] for host, text in block.items()}
            if len(one_variant := _variants(changes, marks)) == 1:
                yield "## the lines around these, which stay, differ between the hosts; see --full"
                variants = one_variant
        for members in variants.values():
            yield from [f"## on {nodeset(members)}:"] if len(variants) > 1 else []
            yield from marks.lines(members)
    used = {
        host: sorted(
            {x for part in alike_step.uuids[host] for x in part if x in gpus}, key=gpus.index
        )
        for host in blocks
        if (gpus := marks.gpus[host])
    }
    if 0 < sum(map(len, used.values())) <= LISTED:
        for host, uuids in used.items():
            listed = [f"GPU {marks.gpus[host].index(uuid)} {uuid}" for uuid in uuids]
            yield f"## {nodeset([host])}: {', '.join(listed)}"


def _variants(
    blocks: Mapping[str, Iterable[str]], marks: "_Marks"
) -> dict[tuple[Passage, ...], dict[str, Folded]]:
    """Lines without UUIDs -> the hosts that share them."""
    variants: dict[tuple[Passage, ...], dict[str, Folded]] = {}
    for host, lines in blocks.items():
        folded = fold_texts(_shared_lines(lines), marks.gpus[host])
        variants.setdefault(folded.parts, {})[host] = folded
    return variants


def _is_file(blocks: Mapping[str, Sequence[str]]) -> bool:
    return all(lines and lines[0].startswith("--- ") for lines in blocks.values())


def _merged_values(variants: Mapping[tuple[Passage, ...], Iterable[str]]) -> list[str]:
    """Lines of variants that differ only in current values, each value with its hosts: `-a: 1 on
    n1; 2 on n2`. Empty if they differ in more, and for files."""
    hosts = [[*members] for members in variants.values()]
    rows = [[part.body[0] for part in parts] for parts in variants]
    has_loop = any(part.loop for parts in variants for part in parts)
    if len({len(row) for row in rows}) > 1 or has_loop:
        return []
    lines = []
    for place in zip(*rows, strict=True):
        texts = ["".join(pieces) for pieces in place]
        heads = {text.partition(": ")[0] for text in texts}
        if any(len(pieces) > 1 or pieces[0].startswith(("---", "@@")) for pieces in place):
            return []
        if len(set(texts)) == 1:
            lines.append(texts[0])
        elif len(heads) == 1 and texts[0].startswith("-"):
            by_value: dict[str, list[str]] = {}
            for text, members in zip(texts, hosts, strict=True):
                by_value.setdefault(text.partition(": ")[2], []).extend(members)
            lines.append(f"{heads.pop()}: {_values_by_host(by_value)}")
        else:
            return []
    return lines


def _values_by_host(by_value: Mapping[str, Sequence[str]]) -> str:
    """`500 W on gpu[001-003]; 490 W on gpu004`: the most common first, the rest as a count."""
    common = sorted(by_value.items(), key=lambda item: -len(item[1]))
    hidden = common[LIKELY:] if len(common) > LIKELY + 1 else []
    parts = [f"{value} on {nodeset(hosts)}" for value, hosts in common[: len(common) - len(hidden)]]
    if hidden:
        hosts_text = count(sum(len(hosts) for _, hosts in hidden), "other host")
        parts.append(f"{len(hidden):,} other values on {hosts_text}, which --full shows")
    return "; ".join(parts)


def _shared_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines for several hosts: without the line numbers of hunks."""
    new = False
    for line in lines:
        new = new or line == "--- /dev/null"
        if not line.startswith("@@ "):
            yield _literal(line)
        elif not new:
            yield "@@"


def _literal(line: str) -> str:
    """A line without marks: OPEN and CLOSE become escapes."""
    return line.replace(OPEN, "\\u2039").replace(CLOSE, "\\u203a")


class _Marks:
    """The marks that replace UUIDs of GPUs, and a `legend` with their meanings."""

    def __init__(self, gpus: Mapping[str, Sequence[str]]) -> None:
        self.gpus = gpus  # of each host, in the order of their numbers
        self.legend: dict[str, str] = {}  # meaning -> mark

    def lines(self, folded: Mapping[str, Folded]) -> Iterator[str]:
        """Lines that hosts share, with marks instead of the UUIDs of their GPUs."""
        for place, part in enumerate(next(iter(folded.values())).parts):
            uuids = {host: text.uuids[place] for host, text in folded.items()}
            if part.loop:
                mark = self._mark(uuids, len(part.body))
                yield from (mark.join(pieces) for pieces in part.body)
                continue
            (pieces,) = part.body
            marks = [
                self._mark({host: (host_uuids[gap],) for host, host_uuids in uuids.items()}, 1)
                for gap in range(len(pieces) - 1)
            ]
            yield "".join(a + b for a, b in zip(pieces, (*marks, ""), strict=True))

    def _mark(self, uuids: Mapping[str, Sequence[str]], lines: int) -> str:
        numbers = {
            host: [self.gpus[host].index(uuid) for uuid in own] for host, own in uuids.items()
        }
        by_number = all(map(_is_ascending, numbers.values()))
        by_uuid = not by_number and all(map(_is_ascending, uuids.values()))
        by_name: dict[str, list[str]] = {}
        for host, own in numbers.items():
            name = _gpus(own, len(self.gpus[host]), in_order=by_number or by_uuid)
            by_name.setdefault(name, []).append(host)
        order = ", by UUID" if by_uuid else ""
        order += f", {lines} lines at a time" if lines > 1 else ""
        name, *other_names = by_name
        if other_names:
            owner = "; ".join(f"{name} on {nodeset(hosts)}" for name, hosts in by_name.items())
            number = 1 + sum(" of list " in mark for mark in self.legend.values())
            name = f"GPUs of list {number}"
        else:
            owner = f"{'every GPU' if name == 'each GPU' else name} of the host"
        meaning = f"the UUID of {owner}"
        if any(len(own) > 1 for own in uuids.values()):
            meaning = f"{'these lines' if lines > 1 else 'this line'} for {owner}, with its UUID"
            meaning += ", in the order of the UUIDs" if by_uuid else ""
        return self.legend.setdefault(meaning, f"{OPEN}{name}{order}{CLOSE}")


def _is_ascending(items: Sequence[Any]) -> bool:
    return all(a < b for a, b in pairwise(items))


def _gpus(places: Sequence[int], number: int, *, in_order: bool) -> str:
    if not in_order:
        return f"GPU {','.join(map(str, places))} in this order"
    return "each GPU" if len(places) == number > 1 else in_ranges(f"GPU {n}" for n in places)


# --- each host --------------------------------------------------------------------------


def each_host(plan: Plan, contents: Contents = _no_content) -> Iterator[str]:
    """Every change and command of each host, line by line, without grouping."""
    for place, (host, steps) in enumerate(by_host(plan).items()):
        node = plan.nodes.get(host)
        baseline = f" ({plain(node.baseline)})" if node else ""
        yield from [""] if place else []
        yield _literal(f"# {nodeset([host])}{baseline}")
        yield from [_literal(f"## {signed.identity_text(node)}")] if node else []
        for step in steps:
            signed_texts = (signed.declared_text(step, node), signed.commands_text(step, contents))
            yield from map(_literal, step_lines(step, contents, signed_texts))


def step_lines(
    step: Step, contents: Contents = _no_content, signed_texts: Iterable[str] = ()
) -> Iterator[str]:
    """One step: its reason, other signed facts, the value, then its actions as diffs or words."""
    subjects, _ = _subjects([step])
    label = plain(f"{step.fix} {subjects}".rstrip())
    yield f"## {label}: {_note_text(step)}"
    yield f"## {plain(step.reason)}"
    yield from (f"## {text}" for text in signed_texts if text)
    old, new = _exact_values(step)
    yield f"-{label}: {old}"
    yield f"+{label}: {new}"
    for block in _blocks(step, contents):
        yield from block


def _blocks(step: Step, contents: Contents) -> Iterator[list[str]]:
    """The lines of each file, and of consecutive other actions of one type."""
    before = with_contents(step.before, contents)
    for heading, actions in (("", step.actions), (KEEP, step.keep)):
        yield from [[heading]] if heading and actions else []
        for kind, group in groupby(actions, type):
            for actions_of_block in (
                [[action] for action in group] if kind is WriteFile else [list(group)]
            ):
                yield list(actions_diff(actions_of_block, before))


def _note_text(step: Step) -> str:
    notes = [f"risk {step.risk.value}", *_effects(step), plain(step.note)]
    return "; ".join(filter(None, notes))


def _effects(step: Step) -> tuple[str, str]:
    """Whether it can be undone, and when it is effective; empty if both are usual."""
    return (ONE_WAY if step.is_one_way else "", EFFECT.get(step.effective, ""))


def _values(step: Step) -> tuple[str, str]:
    """The current and the expected value, printable."""
    new, old = values(
        Finding(verdict=Verdict.FAIL, expected=step.expected, actual=step.actual, unit=step.unit)
    )
    return old, new


def _exact_values(step: Step) -> tuple[str, str]:
    """Like `_values`, and no two values are alike."""
    unit = f" {exact(step.unit)}" if step.unit else ""
    old, new = (
        f"{exact(value)}{'' if value is None else unit}" for value in (step.actual, step.expected)
    )
    return old, new


def _subjects(steps: Iterable[Step]) -> tuple[str, bool]:
    """Like `subjects_of`, from the labels of the steps."""
    members = []
    for step in steps:
        for label in step.subjects or ("",):
            kind, _, identity = label.partition(" ")
            subject = Subject(kind={"": "node", "GPU": "gpu"}.get(kind, kind), id=identity)
            members.append((step.host, Finding(verdict=Verdict.FAIL, subject=subject)))
    return subjects_of(members)


# --- what stands below ------------------------------------------------------------------


def summary(plan: Plan) -> str:
    """The totals line: steps, hosts, highest risk, author and expiry."""
    if not plan.steps:
        return "No steps"
    risk = plan.risk.value if plan.risk else "none"
    hosts = len({step.host for step in plan.steps})
    return plain(
        f"plan {plan.id}: {count(len(plan.steps), 'step')} on {count(hosts, 'host')} · risk {risk}"
        f" · by {plan.author} · expires {time_text(plan.expires)}"
    )


def rollout_lines(plan: Plan) -> list[str]:
    """How nodevet applies the plan, and which version: signed with the steps."""
    if not plan.steps:
        return []
    text = rollout_text(plan.rollout, len({step.host for step in plan.steps}))
    return [plain(f"applied by nodevet {plan.nodevet or '?'}: {text}")]


def conflicts(entries: Sequence[Conflict]) -> list[HostRow]:
    """A row for each reason why a fix is not planned; reasons that differ only in UUIDs of GPUs
    share a row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for conflict in entries:
        groups.setdefault(
            (conflict.fix, _any_gpu(conflict.why), _any_gpu(conflict.advice)), []
        ).append(conflict.host)
    rows = []
    for (fix, why, advice), hosts in sorted(groups.items(), key=lambda item: -len(item[1])):
        note = f"; advice: {brief(advice, ADVICE)}" if advice else ""
        rows.append(HostRow((plain(fix),), tuple(hosts), note=f"{brief(why, ADVICE)}{note}"))
    return rows


def _any_gpu(text: str) -> str:
    return GPU_UUID.sub("GPU-…", text)
