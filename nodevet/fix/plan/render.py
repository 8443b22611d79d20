"""A plan as people read it: what changes, every action once, or each host by itself. Pure.

What came from a node, an inventory or a plan file is escaped as in every report.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby, pairwise
from typing import Any

from nodevet.base.printable import brief, plain
from nodevet.fix.model import Conflict, Plan, Step
from nodevet.fix.moments import moment
from nodevet.fix.plan import signed
from nodevet.fix.plan.alike import (
    UUID,
    AlikeStep,
    Folded,
    Passage,
    by_host,
    fold_texts,
    own_gpus,
    same_steps,
)
from nodevet.fix.settings import told
from nodevet.model import Finding, Subject, Verdict
from nodevet.resource import Contents, filled
from nodevet.resource import diff as actions_diff
from nodevet.resource.file import WriteFile
from nodevet.sheet.model import HostRow
from nodevet.sheet.text import count, cut_pair, nodeset
from nodevet.vet.findings.words import ADVICE, LIMIT, in_ranges, subjects_of, values

EFFECT = {
    "restart": "in force after a restart",
    "reset": "in force after a GPU reset",
    "reboot": "in force after a reboot",
}
OPEN, CLOSE = "‹", "›"
"""Around what stands for the UUIDs of GPUs; in every other text they are shown as escapes."""
LISTED = 8  # UUIDs that are named below the actions in which they stand
VALUES = 6  # present values of one change that have a row each in `fold`
LIKELY = 12  # values that are there now, or earlier states, that are listed with their hosts
REASONS = 5  # reasons of one change that are listed; they say why, not what is done


def _known(name: str) -> bytes | None:
    return None


class View(Enum):
    """How much of a plan is shown."""

    FOLD = "fold"  # one line per change, without what is done
    DIFF = "diff"  # each action once, for all hosts that it is done on
    FULL = "full"  # each host by itself


# --- one line per change ----------------------------------------------------------------


def changes(plan: Plan) -> list[HostRow]:
    """A row for each change, and for each present value of it."""
    return [row for steps in _changes(plan.steps) for row in _change(steps)]


def _changes(steps: Iterable[Step]) -> Iterable[list[Step]]:
    groups: dict[tuple[str, ...], list[Step]] = {}
    for step in steps:
        key = (step.fix, step.risk.value, _values(step)[1], step.effective, step.note)
        groups.setdefault(key, []).append(step)
    return groups.values()


def _change(steps: list[Step]) -> Iterator[HostRow]:
    """The rows of one change: one per present value, and one for all that are left of many."""
    by_value: dict[str, list[Step]] = {}
    for step in steps:
        by_value.setdefault(_values(step)[0], []).append(step)
    rows = sorted(by_value.values(), key=len, reverse=True)
    if len(rows) > VALUES:
        rest = [step for some in rows[VALUES - 1 :] for step in some]
        many = f"{len(rows) - VALUES + 1} other values"
        rows = [*rows[: VALUES - 1], rest]
    else:
        many = ""
    for place, some in enumerate(rows):
        first = some[0]
        old, new = cut_pair(*_values(first), LIMIT)
        was = many if many and place == len(rows) - 1 else old
        hosts = tuple(dict.fromkeys(step.host for step in some))
        what = (f"set {plain(first.fix)}", f"{was} → {new}")
        yield HostRow(what, hosts, _subjects(some)[0], _notes(first))


# --- each action once -------------------------------------------------------------------


def actions(plan: Plan, contents: Contents = _known) -> Iterator[str]:
    """Every step that is alike on several hosts once, with what differs between them."""
    gpus = {host: own_gpus(plan.nodes[host].gpus, steps) for host, steps in by_host(plan).items()}
    marks = _Marks(gpus)
    steps = same_steps(plan, contents)
    for place, each in enumerate(steps):
        yield from [""] if place else []
        yield from _heading(plan, each)
        besides = (
            lambda step: signed.declared(step, plan.nodes.get(step.host)),
            lambda step: signed.by_command(step, contents),
        )
        yield from map(_literal, _remarks(each, besides))
        yield from map(_literal, _compared(each))
        yield from _done(each, marks, contents)
    yield from [""] if marks.legend and len(steps) > 1 else []
    for place, (means, mark) in enumerate(marks.legend.items()):
        yield f"## {mark}: {means}{'' if place else '; see --full'}"


def _heading(plan: Plan, each: AlikeStep) -> Iterator[str]:
    hosts = each.hosts
    number = f"{count(len(hosts), 'host')}: " if len(hosts) > 1 else ""
    baselines = ", ".join(dict.fromkeys(plain(plan.nodes[host].baseline) for host in hosts))
    yield _literal(f"# {plain(each.first.fix)} on {number}{nodeset(hosts)} ({baselines})")


def _remarks(each: AlikeStep, besides: Iterable[Callable[[Step], str]]) -> Iterator[str]:
    """Risk and effect; what else is signed, notes and reasons, each with its hosts if they
    differ."""
    first, hosts = each.first, len(each.hosts)
    told = [f"risk {first.risk.value}", EFFECT.get(first.effective, "")]
    notes = _by_host(each, lambda step: plain(step.note))
    reasons = _by_host(each, lambda step: plain(step.reason))
    if len(reasons) > 1:  # the values are compared below
        reasons = _by_host(each, _more_than_values)
    for said in (notes, reasons):
        if len(said) == 1:
            told.append(next(iter(said)))
    yield f"## {'; '.join(filter(None, told))}"
    for said in (_by_host(each, more) for more in besides):
        if any(said):
            yield f"## {_on_hosts(said) if len(said) > 1 else next(iter(said))}"
    if len(notes) > 1:
        yield from (f"## {note} ({nodeset(some)})" for note, some in notes.items() if note)
    if len(reasons) == 1:
        return
    for reason, some in list(reasons.items())[:REASONS]:
        where = "" if len(some) == hosts else f" ({nodeset(some)})"
        yield f"## {reason}{where}"
    if len(reasons) > REASONS:
        yield f"## and {count(len(reasons) - REASONS, 'other reason')}"


def _more_than_values(step: Step) -> str:
    """A reason without the values at its beginning."""
    old, new = _values(step)
    _, found, rest = plain(step.reason).partition(f"{old}, expected {new}")
    more = rest.lstrip("; ")
    if found and more.count("(") == 1 and more[0] == "(" and more[-1] == ")":
        return more[1:-1]  # only where the baseline says it
    return more if found and more else plain(step.reason)


def _compared(each: AlikeStep) -> Iterator[str]:
    """What is, with the hosts if it differs between them, and what will be."""
    what = plain(each.first.fix)
    subjects = _by_host(each, lambda step: _subjects([step])[0])
    alike = len(subjects) == 1
    if alike and (only := next(iter(subjects))):
        what += f" {only}"

    def was(step: Step) -> str:
        subject = "" if alike else _subjects([step])[0]
        return ": ".join(filter(None, (subject, _values(step)[0])))

    for sign, words in (("-", was), ("+", lambda step: _values(step)[1])):
        told = _by_host(each, words)
        yield f"{sign}{what}: {_on_hosts(told) if len(told) > 1 else next(iter(told))}"


def _by_host(each: AlikeStep, words: Callable[[Step], str]) -> dict[str, list[str]]:
    """What is said of each step -> the hosts of which that is said, the most common first."""
    found: dict[str, list[str]] = {}
    for host, step in each.steps.items():
        found.setdefault(words(step), []).append(host)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _done(each: AlikeStep, marks: "_Marks", contents: Contents) -> Iterator[str]:
    """The actions. What files and units are now may differ between hosts: then each such part is
    there for each of those that have it in common."""
    blocks = {host: list(_blocks(step, contents)) for host, step in each.steps.items()}
    if len(blocks) == 1:
        yield from (_literal(line) for some in blocks.values() for block in some for line in block)
        return
    for place in range(max(map(len, blocks.values()))):
        block = {host: some[place] if place < len(some) else [] for host, some in blocks.items()}
        variants = _variants(block, marks)
        if len(variants) > 1 and (lines := _one_state_each(variants)):
            yield from lines
            continue
        if len(variants) > 1 and _is_file(block):
            changed = {host: [x for x in some if x[:1] != " "] for host, some in block.items()}
            if len(alone := _variants(changed, marks)) == 1:
                yield "## the lines around these, which stay, differ between the hosts; see --full"
                variants = alone
        for members in variants.values():
            yield from [f"## on {nodeset(members)}:"] if len(variants) > 1 else []
            yield from marks.lines(members)
    used = {
        host: sorted({x for some in each.uuids[host] for x in some if x in gpus}, key=gpus.index)
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
    """The hosts that share lines, but for the UUIDs in them."""
    found: dict[tuple[Passage, ...], dict[str, Folded]] = {}
    for host, lines in blocks.items():
        folded = fold_texts(_shared(lines), marks.gpus[host])
        found.setdefault(folded.parts, {})[host] = folded
    return found


def _is_file(blocks: Mapping[str, Sequence[str]]) -> bool:
    return all(lines and lines[0].startswith("--- ") for lines in blocks.values())


def _one_state_each(variants: Mapping[tuple[Passage, ...], Iterable[str]]) -> list[str]:
    """Lines of variants, each with its hosts, that differ only in what settings are now: `-a: 1 on
    n1; 2 on n2`. Empty if they differ in more, and for files."""
    hosts = [[*members] for members in variants.values()]
    rows = [[part.body[0] for part in parts] for parts in variants]
    if len({len(some) for some in rows}) > 1 or any(
        part.loop for some in variants for part in some
    ):
        return []
    found = []
    for place in zip(*rows, strict=True):
        texts = ["".join(pieces) for pieces in place]
        heads = {text.partition(": ")[0] for text in texts}
        if any(len(pieces) > 1 or pieces[0].startswith(("---", "@@")) for pieces in place):
            return []
        if len(set(texts)) == 1:
            found.append(texts[0])
        elif len(heads) == 1 and texts[0].startswith("-"):
            told: dict[str, list[str]] = {}
            for text, some in zip(texts, hosts, strict=True):
                told.setdefault(text.partition(": ")[2], []).extend(some)
            found.append(f"{heads.pop()}: {_on_hosts(told)}")
        else:
            return []
    return found


def _on_hosts(told: Mapping[str, Sequence[str]]) -> str:
    """`500 W on gpu[001-003]; 490 W on gpu004`: the most common, and how many more there are."""
    common = sorted(told.items(), key=lambda item: -len(item[1]))
    rest = common[LIKELY:] if len(common) > LIKELY + 1 else []
    parts = [f"{value} on {nodeset(hosts)}" for value, hosts in common[: len(common) - len(rest)]]
    if rest:
        others = count(sum(len(hosts) for _, hosts in rest), "other host")
        parts.append(f"{len(rest):,} other values on {others}, which --full shows")
    return "; ".join(parts)


def _shared(lines: Iterable[str]) -> Iterator[str]:
    """Lines of several hosts: at which lines of a file a hunk begins is not shown."""
    new = False
    for line in lines:
        new = new or line == "--- /dev/null"
        if not line.startswith("@@ "):
            yield _literal(line)
        elif not new:
            yield "@@"


def _literal(line: str) -> str:
    """A line in which nothing stands for anything else."""
    return line.replace(OPEN, "\\u2039").replace(CLOSE, "\\u203a")


class _Marks:
    """What stands for the UUIDs of GPUs, and what each such mark means: `legend`."""

    def __init__(self, gpus: Mapping[str, Sequence[str]]) -> None:
        self.gpus = gpus  # of each host, in the order of their numbers
        self.legend: dict[str, str] = {}  # meaning -> mark

    def lines(self, folded: Mapping[str, Folded]) -> Iterator[str]:
        """Lines that hosts share, with marks where each has the UUIDs of its own GPUs."""
        for place, part in enumerate(next(iter(folded.values())).parts):
            uuids = {host: each.uuids[place] for host, each in folded.items()}
            if part.loop:
                mark = self._mark(uuids, len(part.body))
                yield from (mark.join(pieces) for pieces in part.body)
                continue
            (pieces,) = part.body
            found = [
                self._mark({host: (some[gap],) for host, some in uuids.items()}, 1)
                for gap in range(len(pieces) - 1)
            ]
            yield "".join(a + b for a, b in zip(pieces, (*found, ""), strict=True))

    def _mark(self, uuids: Mapping[str, Sequence[str]], lines: int) -> str:
        places = {
            host: [self.gpus[host].index(one) for one in some] for host, some in uuids.items()
        }
        by_number = all(map(_rises, places.values()))
        by_uuid = not by_number and all(map(_rises, uuids.values()))
        told: dict[str, list[str]] = {}
        for host, some in places.items():
            name = _gpus(some, len(self.gpus[host]), in_order=by_number or by_uuid)
            told.setdefault(name, []).append(host)
        order = ", by UUID" if by_uuid else ""
        order += f", {lines} lines at a time" if lines > 1 else ""
        several = any(len(some) > 1 for some in uuids.values())
        these = "these lines" if lines > 1 else "this line"
        by = ", in the order of the UUIDs" if by_uuid else ""
        name, *others = told
        if others:
            who = "; ".join(f"{name} on {nodeset(hosts)}" for name, hosts in told.items())
            number = 1 + sum(" of list " in mark for mark in self.legend.values())
            name = f"GPUs of list {number}"
        else:
            who = f"{'every GPU' if name == 'each GPU' else name} of the host"
        means = f"{these} for {who}, with its UUID{by}" if several else f"the UUID of {who}"
        return self.legend.setdefault(means, f"{OPEN}{name}{order}{CLOSE}")


def _rises(some: Sequence[Any]) -> bool:
    return all(a < b for a, b in pairwise(some))


def _gpus(places: Sequence[int], number: int, *, in_order: bool) -> str:
    if not in_order:
        return f"GPU {','.join(map(str, places))} in this order"
    return "each GPU" if len(places) == number > 1 else in_ranges(f"GPU {n}" for n in places)


# --- each host --------------------------------------------------------------------------


def each_host(plan: Plan, contents: Contents = _known) -> Iterator[str]:
    """What changes on each host, line by line, and the commands; nothing stands for two hosts."""
    for place, (host, steps) in enumerate(by_host(plan).items()):
        node = plan.nodes.get(host)
        baseline = f" ({plain(node.baseline)})" if node else ""
        yield from [""] if place else []
        yield _literal(f"# {nodeset([host])}{baseline}")
        yield from [_literal(f"## {signed.identity(node)}")] if node else []
        for step in steps:
            more = (signed.declared(step, node), signed.by_command(step, contents))
            yield from map(_literal, step_lines(step, contents, more))


def step_lines(step: Step, contents: Contents = _known, more: Iterable[str] = ()) -> Iterator[str]:
    """One step: its reason, what more is signed, the value, then each action as a diff or as a
    command."""
    subjects, _ = _subjects([step])
    what = plain(f"{step.fix} {subjects}".rstrip())
    yield f"## {what}: {_notes(step)}"
    yield f"## {plain(step.reason)}"
    yield from (f"## {text}" for text in more if text)
    old, new = _values(step)
    yield f"-{what}: {old}"
    yield f"+{what}: {new}"
    for block in _blocks(step, contents):
        yield from block


def _blocks(step: Step, contents: Contents) -> Iterator[list[str]]:
    """The lines of each file, and of other actions of one type that follow one another."""
    before = filled(step.before, contents)
    for kind, some in groupby(step.actions, type):
        for alike in [[each] for each in some] if kind is WriteFile else [list(some)]:
            yield list(actions_diff(alike, before))


def _notes(step: Step) -> str:
    notes = [f"risk {step.risk.value}", EFFECT.get(step.effective, ""), plain(step.note)]
    return "; ".join(filter(None, notes))


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


# --- what stands below ------------------------------------------------------------------


def summary(plan: Plan) -> str:
    """The totals line: steps, hosts, the highest risk, who made it and until when it holds."""
    if not plan.steps:
        return "No steps"
    risk = plan.risk.value if plan.risk else "none"
    hosts = len({step.host for step in plan.steps})
    return plain(
        f"plan {plan.id}: {count(len(plan.steps), 'step')} on {count(hosts, 'host')} · risk {risk}"
        f" · by {plan.author} · expires {moment(plan.expires)}"
    )


def carried_out(plan: Plan) -> list[str]:
    """How it will be carried out, and by which nodevet: what is signed with the steps."""
    if not plan.steps:
        return []
    said = told(plan.rollout, len({step.host for step in plan.steps}))
    return [plain(f"carried out by nodevet {plan.nodevet or '?'}: {said}")]


def conflicts(found: Sequence[Conflict]) -> list[HostRow]:
    """What is not planned although there is a fix, and why; equal reasons once, whatever the UUID
    of a GPU in them."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in found:
        groups.setdefault((each.fix, _any_gpu(each.why), _any_gpu(each.advice)), []).append(
            each.host
        )
    rows = []
    for (fix, why, advice), hosts in sorted(groups.items(), key=lambda item: -len(item[1])):
        note = f"; advice: {brief(advice, ADVICE)}" if advice else ""
        rows.append(HostRow((plain(fix),), tuple(hosts), note=f"{brief(why, ADVICE)}{note}"))
    return rows


def _any_gpu(text: str) -> str:
    return re.sub(UUID, "GPU-…", text)
