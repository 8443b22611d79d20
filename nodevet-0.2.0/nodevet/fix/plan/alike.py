"""Groups steps of a plan that do the same on many hosts, except for each host's own details. Pure.

An approver signs every action on every host. `same_steps` shows each of them once and loses none:
`AlikeStep.actions` returns every host's actions exactly as in the plan. A host's own details are
the UUIDs of its GPUs, and the lines of a file that do not change. Steps that differ in anything
else are different.
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
from nodevet.resource import Actions, Contents, RestoreError, State, with_contents
from nodevet.resource.file import WriteFile, text_of

UUID = re.compile(r"(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_GPU = re.compile(r"GPU (\d{1,4})")
_ACTION, _FILE, _LINE = "A", "F", "L"  # what a text of an action begins with
_GONE, _STAYS = "-", "="  # a line of the file that goes; lines that stay
LINES = 2000  # of a file that is compared line by line

Pieces = tuple[str, ...]
"""A text, split at the UUIDs that it holds."""


class Passage(NamedTuple):
    """Texts that occur once, or in turn for each of several GPUs (`loop`)."""

    body: tuple[Pieces, ...]
    loop: bool


STAYS = Passage(body=((_STAYS, ""),), loop=False)
"""Lines of a file that stay as they are."""


class Folded(NamedTuple):
    """Texts without UUIDs, and the UUIDs of each part: for a loop one for each round, else one for
    each gap; for `STAYS` the lines."""

    parts: tuple[Passage, ...]
    uuids: tuple[tuple[str, ...], ...]


def fold_texts(texts: Iterable[str], gpus: Collection[str]) -> Folded:
    """Texts without the UUIDs of `gpus`; `unfold` restores them."""
    parts: list[Passage] = []
    uuids: list[list[str]] = []
    for body, stanza_uuids in _split_stanzas(texts, gpus):
        part = Passage(body, loop=len(set(stanza_uuids)) == 1 and body != STAYS.body)
        if not part.loop:
            parts.append(part)
            uuids.append(stanza_uuids)
        elif parts and parts[-1] == part:
            uuids[-1] += stanza_uuids[:1]
        else:
            parts.append(part)
            uuids.append(stanza_uuids[:1])
    return Folded(tuple(parts), tuple(map(tuple, uuids)))


def unfold(folded: Folded) -> Iterator[str]:
    """The texts that `fold_texts` folded."""
    for part, uuids in zip(*folded, strict=True):
        if part.loop:
            yield from (uuid.join(pieces) for uuid in uuids for pieces in part.body)
        else:
            yield "".join(a + b for a, b in zip(part.body[0], (*uuids, ""), strict=True))


def _split_stanzas(
    texts: Iterable[str], gpus: Collection[str]
) -> Iterator[tuple[tuple[Pieces, ...], list[str]]]:
    """Consecutive texts of one kind that name the same GPU; else single texts.

    The first character of a text is its kind.
    """
    body: list[Pieces] = []
    body_uuids: list[str] = []
    for text in texts:
        if text[:1] == _STAYS:
            if body:
                yield tuple(body), body_uuids
                body, body_uuids = [], []
            yield STAYS.body, [text[1:]]
            continue
        pieces, uuids = _split_uuids(text, gpus)
        goes_on = len({*uuids, *body_uuids}) == 1 and body and text[:1] == body[0][0][:1] and uuids
        if body and not (goes_on and body_uuids):
            yield tuple(body), body_uuids
            body, body_uuids = [], []
        body.append(pieces)
        body_uuids = [*body_uuids, *uuids]
    if body:
        yield tuple(body), body_uuids


def _split_uuids(text: str, gpus: Collection[str]) -> tuple[Pieces, list[str]]:
    pieces, uuids = [""], []
    for place, piece in enumerate(UUID.split(text)):
        if place % 2 and piece in gpus:
            uuids.append(piece)
            pieces.append("")
        else:
            pieces[-1] += piece
    return tuple(pieces), uuids


class AlikeStep(msgspec.Struct, frozen=True, kw_only=True):
    """The same step of many hosts."""

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
        """All actions on one of the hosts, with those of `keep` last."""
        return _actions(unfold(Folded(self.parts, self.uuids[host])))


def same_steps(plan: Plan, contents: Contents = lambda name: None) -> tuple[AlikeStep, ...]:
    """Every step once, with its hosts, in an order that fits each host. `contents`: of files when
    the plan was made; without it only files that are the same as a whole count as alike."""
    steps = by_host(plan)
    gpus = {host: own_gpus(plan.nodes[host].gpus, host_steps) for host, host_steps in steps.items()}
    folded = {step.id: fold_texts(_texts(step.all_actions), gpus[step.host]) for step in plan.steps}
    keys = {step.id: (*_key(step), folded[step.id].parts) for step in plan.steps}
    times = Counter(keys.values())
    for step in plan.steps:
        if times[keys[step.id]] == 1 and (texts := _texts_with_unchanged(step, contents)):
            folded[step.id] = fold_texts(texts, gpus[step.host])
            keys[step.id] = (*_key(step), folded[step.id].parts)
    ordered = _order_steps(
        {host: [keys[step.id] for step in host_steps] for host, host_steps in steps.items()}
    )
    return tuple(
        AlikeStep(
            steps={host: steps[host][place] for host, place in places},
            parts=folded[steps[places[0][0]][places[0][1]].id].parts,
            uuids={host: folded[steps[host][place].id].uuids for host, place in places},
        )
        for places in ordered
    )


def by_host(plan: Plan) -> dict[str, list[Step]]:
    """The steps of each host, which need not be consecutive in the plan."""
    steps: dict[str, list[Step]] = {}
    for step in plan.steps:
        steps.setdefault(step.host, []).append(step)
    return steps


def own_gpus(gpus: Sequence[str], steps: Iterable[Step]) -> Sequence[str]:
    """The UUIDs of a host's GPUs in the order of their numbers; empty if they are not UUIDs, or if
    the host's steps contradict that order."""
    if len(set(gpus)) < len(gpus) or not all(map(UUID.fullmatch, gpus)):
        return ()
    for step in steps:
        labels = [_GPU.fullmatch(label) for label in step.subjects]
        names = [resource.name for resource in step.resources if resource.kind == "gpu"]
        changed_gpus = list(dict.fromkeys(name.rpartition(":")[0] for name in names))
        if len(labels) != len(changed_gpus):
            continue
        for label, uuid in zip(labels, changed_gpus, strict=True):
            if label and tuple(gpus[int(label[1]) : int(label[1]) + 1]) != (uuid,):
                return ()
    return gpus


def _key(step: Step) -> tuple[Any, ...]:
    """What similar steps must share besides the actions."""
    return (
        step.fix,
        step.risk,
        step.effective,
        step.services,
        step.options,
        step.holders,
        step.unit,
        not step.gpus,
        len(step.keep),
        json.dumps(msgspec.to_builtins(step.expected)),
    )


Place = tuple[str, int]
"""A host, and the index of one of its steps."""


def _order_steps(keys: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[list[Place]]:
    """The steps that share a key, in an order that fits each host. If there is none, only hosts
    with the same steps share them.
    """
    groups: dict[tuple[Any, ...], list[Place]] = {}
    for host, host_keys in keys.items():
        for place, key in enumerate(host_keys):
            groups.setdefault(key, []).append((host, place))
    turns = _fix_order(
        {tuple(dict.fromkeys(key[0] for key in host_keys)) for host_keys in keys.values()}
    )
    if turns:
        ordered = sorted(groups, key=lambda key: turns[key[0]])
        positions = {key: place for place, key in enumerate(ordered)}
        sequences = [[positions[key] for key in host_keys] for host_keys in keys.values()]
        if all(a < b for sequence in sequences for a, b in pairwise(sequence)):
            return [groups[key] for key in ordered]
    hosts_by_keys: dict[tuple[tuple[Any, ...], ...], list[str]] = {}
    for host, host_keys in keys.items():
        hosts_by_keys.setdefault(tuple(host_keys), []).append(host)
    return [
        [(host, place) for host in hosts]
        for host_keys, hosts in hosts_by_keys.items()
        for place in range(len(host_keys))
    ]


def _fix_order(sequences: Collection[tuple[str, ...]]) -> Mapping[str, int]:
    """The turn of each fix in an order that fits each host; empty if there is none."""
    before: dict[str, set[str]] = {fix: set() for sequence in sorted(sequences) for fix in sequence}
    for sequence in sequences:
        for fix_before, fix_after in pairwise(sequence):
            before[fix_after].add(fix_before)
    try:
        return {fix: turn for turn, fix in enumerate(TopologicalSorter(before).static_order())}
    except CycleError:
        return {}


# --- actions as texts -------------------------------------------------------------------


def _texts(actions: Actions) -> Iterator[str]:
    """Each action as one text, and each line of a file as another."""
    for action in actions:
        if isinstance(action, WriteFile) and action.content is not None:
            yield _FILE + _encoded(msgspec.structs.replace(action, content=""))
            yield from (_LINE + line for line in action.content.split("\n"))
        else:
            yield _ACTION + _encoded(action)


def _texts_with_unchanged(step: Step, contents: Contents) -> list[str]:
    """The texts of a step's actions with the unchanged lines of files; empty if no file has any."""
    before = {state.resource: state for state in with_contents(step.before, contents)}
    texts: list[str] = []
    has_unchanged = False
    for action in step.all_actions:
        old = _old_lines(before.get(action.resource) if action.resource else None)
        if not isinstance(action, WriteFile) or action.content is None or old is None:
            texts += _texts((action,))
            continue
        has_unchanged = True
        new = action.content.split("\n")
        texts.append(_FILE + _encoded(msgspec.structs.replace(action, content="")))
        for tag, low, high, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag == "equal":
                texts.append(_STAYS + "\n".join(new[start:end]))
            else:
                texts += [_GONE + line for line in old[low:high]]
                texts += [_LINE + line for line in new[start:end]]
    return texts if has_unchanged else []


def _old_lines(before: State | None) -> list[str] | None:
    """The lines of a file; None if they are unknown or too many."""
    try:
        text = text_of(before) if before and before.exists else None
    except RestoreError:
        return None
    return None if text is None or text.count("\n") > LINES else text.split("\n")


def _encoded(action: Any) -> str:
    return json.dumps(msgspec.to_builtins(action))


def _actions(texts: Iterable[str]) -> Actions:
    """The actions that `_texts` encoded."""
    documents: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    for text in texts:
        if text[:1] in (_LINE, _STAYS):
            lines[-1].append(text[1:])
        elif text[:1] != _GONE:
            documents.append(json.loads(text[1:]))
            lines.append([])
    for action, content in zip(documents, lines, strict=True):
        if content:
            action["content"] = "\n".join(content)
    return typed.convert(documents, Actions)
