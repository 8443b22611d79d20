"""Steps of a plan that do the same on many hosts, but for what is particular to each. Pure.

An approver signs every action on every host. `same_steps` shows each of them once and loses none:
`AlikeStep.actions` gives every host's back as they are in the plan. Particular is what has the form
of a UUID and is a GPU of that very host, and of a file the lines that stay as they are there;
anything else that differs, differs.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from nodevet.base import typed
from nodevet.fix.model import Plan, Step
from nodevet.resource import Actions, Contents, RestoreError, State, filled
from nodevet.resource.file import WriteFile, text_of

UUID = re.compile(r"(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_GPU = re.compile(r"GPU (\d{1,4})")
_ACTION, _FILE, _LINE = "A", "F", "L"  # what a text of an action begins with
_GONE, _STAYS = "-", "="  # a line of the file that goes; lines that stay
LINES = 2000  # of a file that is compared line by line

Pieces = tuple[str, ...]
"""A text, split at the UUIDs that it holds."""


class Passage(NamedTuple):
    """Texts that are there once, or one after the other for each of some GPUs."""

    body: tuple[Pieces, ...]
    loop: bool


STAYS = Passage(body=((_STAYS, ""),), loop=False)
"""Lines of a file that stay as they are."""


class Folded(NamedTuple):
    """Texts without UUIDs, and for each part the UUIDs that stand in it: of a loop one for each
    time, else one for each gap; of `STAYS` the lines."""

    parts: tuple[Passage, ...]
    uuids: tuple[tuple[str, ...], ...]


def fold_texts(texts: Iterable[str], own: Collection[str]) -> Folded:
    """Texts without the UUIDs that are among `own`; `unfold` gives them back."""
    parts: list[Passage] = []
    uuids: list[list[str]] = []
    for body, found in _stanzas(texts, own):
        part = Passage(body, loop=len(set(found)) == 1 and body != STAYS.body)
        if not part.loop:
            parts.append(part)
            uuids.append(found)
        elif parts and parts[-1] == part:
            uuids[-1] += found[:1]
        else:
            parts.append(part)
            uuids.append(found[:1])
    return Folded(tuple(parts), tuple(map(tuple, uuids)))


def unfold(folded: Folded) -> Iterator[str]:
    """The texts of which `fold_texts` made this."""
    for part, uuids in zip(*folded, strict=True):
        if part.loop:
            yield from (uuid.join(pieces) for uuid in uuids for pieces in part.body)
        else:
            yield "".join(a + b for a, b in zip(part.body[0], (*uuids, ""), strict=True))


def _stanzas(
    texts: Iterable[str], own: Collection[str]
) -> Iterator[tuple[tuple[Pieces, ...], list[str]]]:
    """Texts that follow one another, are of one kind and name one and the same GPU; else one text.

    What a text is of is its first character.
    """
    body: list[Pieces] = []
    found: list[str] = []
    for text in texts:
        if text[:1] == _STAYS:
            if body:
                yield tuple(body), found
                body, found = [], []
            yield STAYS.body, [text[1:]]
            continue
        pieces, uuids = _split(text, own)
        goes_on = len({*uuids, *found}) == 1 and body and text[:1] == body[0][0][:1] and uuids
        if body and not (goes_on and found):
            yield tuple(body), found
            body, found = [], []
        body.append(pieces)
        found = [*found, *uuids]
    if body:
        yield tuple(body), found


def _split(text: str, own: Collection[str]) -> tuple[Pieces, list[str]]:
    pieces, uuids = [""], []
    for place, piece in enumerate(UUID.split(text)):
        if place % 2 and piece in own:
            uuids.append(piece)
            pieces.append("")
        else:
            pieces[-1] += piece
    return tuple(pieces), uuids


class AlikeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of many hosts, each with its own."""

    steps: Mapping[str, Step]  # by host, in the order of the plan
    parts: tuple[Passage, ...]  # of the texts of the actions
    uuids: Mapping[str, tuple[tuple[str, ...], ...]]

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.steps)

    @property
    def first(self) -> Step:
        return next(iter(self.steps.values()))

    def actions(self, host: str) -> Actions:
        """What is done on one of the hosts, whole."""
        return _actions(unfold(Folded(self.parts, self.uuids[host])))


def same_steps(plan: Plan, contents: Contents = lambda name: None) -> tuple[AlikeStep, ...]:
    """Every step of every host once, in an order that is that of each host. `contents`: what files
    held when the plan was made; without it files are alike only as a whole."""
    steps = by_host(plan)
    own = {host: own_gpus(plan.nodes[host].gpus, some) for host, some in steps.items()}
    folded = {step.id: fold_texts(_texts(step.actions), own[step.host]) for step in plan.steps}
    keys = {step.id: (*_key(step), folded[step.id].parts) for step in plan.steps}
    times = Counter(keys.values())
    for step in plan.steps:
        if times[keys[step.id]] == 1 and (texts := _changed(step, contents)):
            folded[step.id] = fold_texts(texts, own[step.host])
            keys[step.id] = (*_key(step), folded[step.id].parts)
    ordered = _ordered({host: [keys[step.id] for step in some] for host, some in steps.items()})
    return tuple(
        AlikeStep(
            steps={host: steps[host][place] for host, place in places},
            parts=folded[steps[places[0][0]][places[0][1]].id].parts,
            uuids={host: folded[steps[host][place].id].uuids for host, place in places},
        )
        for places in ordered
    )


def by_host(plan: Plan) -> dict[str, list[Step]]:
    """The steps of each host; one may stand in a plan behind one of another host."""
    steps: dict[str, list[Step]] = {}
    for step in plan.steps:
        steps.setdefault(step.host, []).append(step)
    return steps


def own_gpus(gpus: Sequence[str], steps: Iterable[Step]) -> Sequence[str]:
    """The UUIDs of a host's GPUs, as the plan has them, in the order of their numbers; none if its
    steps contradict that order, or if they are not UUIDs."""
    if len(set(gpus)) < len(gpus) or not all(map(UUID.fullmatch, gpus)):
        return ()
    for step in steps:
        labels = [_GPU.fullmatch(label) for label in step.subjects]
        names = [each.name for each in step.resources if each.kind == "gpu"]
        named = list(dict.fromkeys(name.rpartition(":")[0] for name in names))
        if len(labels) != len(named):
            continue
        for label, uuid in zip(labels, named, strict=True):
            if label and tuple(gpus[int(label[1]) : int(label[1]) + 1]) != (uuid,):
                return ()
    return gpus


def _key(step: Step) -> tuple[Any, ...]:
    """What must be one and the same, besides the actions."""
    return (
        step.fix,
        step.risk,
        step.effective,
        step.services,
        step.options,
        step.holders,
        step.unit,
        not step.gpus,
        json.dumps(msgspec.to_builtins(step.expected)),
    )


Place = tuple[str, int]
"""A host, and which of its steps."""


def _ordered(keys: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[list[Place]]:
    """The steps that share a key, in an order that is that of each host; if there is none, only
    hosts all of whose steps are alike share them."""
    groups: dict[tuple[Any, ...], list[Place]] = {}
    for host, mine in keys.items():
        for place, key in enumerate(mine):
            groups.setdefault(key, []).append((host, place))
    turns = _turns({tuple(dict.fromkeys(key[0] for key in mine)) for mine in keys.values()})
    if turns:
        ordered = sorted(groups, key=lambda key: turns[key[0]])
        at = {key: place for place, key in enumerate(ordered)}
        every = [[at[key] for key in mine] for mine in keys.values()]
        if all(a < b for some in every for a, b in pairwise(some)):
            return [groups[key] for key in ordered]
    whole: dict[tuple[tuple[Any, ...], ...], list[str]] = {}
    for host, mine in keys.items():
        whole.setdefault(tuple(mine), []).append(host)
    return [
        [(host, place) for host in hosts]
        for mine, hosts in whole.items()
        for place in range(len(mine))
    ]


def _turns(sequences: Collection[tuple[str, ...]]) -> Mapping[str, int]:
    """The fixes in one order that is that of each host; empty if there is none."""
    before: dict[str, set[str]] = {fix: set() for some in sorted(sequences) for fix in some}
    for some in sequences:
        for one, other in pairwise(some):
            before[other].add(one)
    try:
        return {fix: turn for turn, fix in enumerate(TopologicalSorter(before).static_order())}
    except CycleError:
        return {}


# --- actions as texts -------------------------------------------------------------------


def _texts(actions: Actions) -> Iterator[str]:
    """Each action as one text, and each line of a file as one more."""
    for action in actions:
        if isinstance(action, WriteFile) and action.content is not None:
            yield _FILE + _encoded(msgspec.structs.replace(action, content=""))
            yield from (_LINE + line for line in action.content.split("\n"))
        else:
            yield _ACTION + _encoded(action)


def _changed(step: Step, contents: Contents) -> list[str]:
    """The same with the lines of each file that stay as they are; none if no file has any."""
    before = {seen.resource: seen for seen in filled(step.before, contents)}
    texts: list[str] = []
    stays = False
    for action in step.actions:
        old = _held(before.get(action.resource) if action.resource else None)
        if not isinstance(action, WriteFile) or action.content is None or old is None:
            texts += _texts((action,))
            continue
        stays = True
        new = action.content.split("\n")
        texts.append(_FILE + _encoded(msgspec.structs.replace(action, content="")))
        for tag, low, high, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag == "equal":
                texts.append(_STAYS + "\n".join(new[start:end]))
            else:
                texts += [_GONE + line for line in old[low:high]]
                texts += [_LINE + line for line in new[start:end]]
    return texts if stays else []


def _held(before: State | None) -> list[str] | None:
    """The lines of a file; None if they are not known, or too many."""
    try:
        text = text_of(before) if before and before.exists else None
    except RestoreError:
        return None
    return None if text is None or text.count("\n") > LINES else text.split("\n")


def _encoded(action: Any) -> str:
    return json.dumps(msgspec.to_builtins(action))


def _actions(texts: Iterable[str]) -> Actions:
    """The actions of which `_texts` made these."""
    found: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for text in texts:
        if text[:1] in (_LINE, _STAYS):
            lines[-1].append(text[1:])
        elif text[:1] != _GONE:
            found.append(json.loads(text[1:]))
            lines.append([])
    for action, some in zip(found, lines, strict=True):
        if some:
            action["content"] = "\n".join(some)
    return typed.convert(found, Actions)
