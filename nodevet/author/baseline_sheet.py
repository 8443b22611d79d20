"""Explain a baseline: which hosts it is for, what it extends, and what it expects, by check."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodevet.baseline import Resolved, Statement
from nodevet.baseline.files import File
from nodevet.baseline.remarks import remarks
from nodevet.checking.catalog import Catalog
from nodevet.document.tree import Mapping as Tree
from nodevet.model import Applies, Area, Expectation, Waiver, show
from nodevet.sheet.model import (
    AnyBlock,
    GroupBlock,
    ListBlock,
    ListItem,
    Medium,
    Sheet,
    TextBlock,
)
from nodevet.sheet.text import count, nodeset

NEVER = "It is never chosen by itself: name it with -b, or extend it."
OTHERS_WIN = "One that is more specific wins."


class ExplainedWish(Struct, frozen=True, kw_only=True):
    """What a baseline expects by one check: lines, each with its origin, and remarks on them."""

    check: str
    title: str
    area: str
    severity: str
    may_be_fixed: bool
    lines: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]


class ExplainedBaseline(Struct, frozen=True, kw_only=True):
    """What a baseline is."""

    name: str
    path: str
    title: str
    applies: str
    extends: tuple[tuple[str, str], ...]  # file and title, the nearest first
    expects: tuple[ExplainedWish, ...]
    removed: tuple[tuple[str, str], ...]  # check and origin
    waivers: tuple[str, ...]


def explained_baseline(resolved: Resolved, catalog: Catalog) -> ExplainedBaseline:
    """A baseline, with what its files remark."""
    baseline = resolved.baseline
    notes = {file.source.shown: remarks(file.source.text) for file in resolved.files}
    return ExplainedBaseline(
        name=baseline.name,
        path=str(baseline.path),
        title=baseline.title,
        applies=applies_in_words(baseline.applies),
        extends=tuple(
            (file.source.shown, file.part.title if file.part else "")
            for file in reversed(resolved.files[:-1])
        ),
        expects=tuple(_wish(wish, resolved, catalog, notes) for wish in baseline.expectations),
        removed=tuple(_removed(resolved)),
        waivers=tuple(map(_waiver, baseline.waivers)),
    )


def baselines_sheet(found: Sequence[ExplainedBaseline]) -> Sheet:
    """Each baseline: whom it is for, what it extends, and what it expects, by area."""
    return Sheet(
        title=", ".join(one.name for one in found),
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=tuple(block for one in found for block in _blocks(one)),
    )


def _blocks(one: ExplainedBaseline) -> Iterator[AnyBlock]:
    yield _list((f"{one.name} ({one.path})", *filter(None, (one.title,))))
    yield TextBlock(text=one.applies)
    if one.extends:
        files = (f"{file}: {title}" if title else file for file, title in one.extends)
        yield _group("It extends, the nearest first:", _list(files))
    total = count(len(one.expects), "check")
    yield TextBlock(text=f"It asks for {total}. `nodevet explain CHECK` tells all of one.")
    for area in Area:
        if own := [wish for wish in one.expects if wish.area == area.value]:
            head = f"{area.value[0].upper()}{area.value[1:]}"
            yield _group(head, *map(_expected, own))
    if one.removed:
        told = (f"{check}  ← {origin}" for check, origin in one.removed)
        yield _group("It does not ask for what it inherits:", _list(told))
    if one.waivers:
        yield _group("It waives:", _list(one.waivers))


def _group(title: str, *blocks: AnyBlock) -> GroupBlock:
    return GroupBlock(title=title, blocks=blocks)


def _list(texts: Iterable[str]) -> ListBlock:
    return ListBlock(items=tuple(map(ListItem, texts)))


def _expected(wish: ExplainedWish) -> GroupBlock:
    """A check: its severity, what it is about, what is expected, by which line, and why."""
    fix = ", may be fixed" if wish.may_be_fixed else ""
    return _group(
        f"{wish.check}  {wish.severity}{fix}",
        TextBlock(text=wish.title),
        _list(f"{says}  ← {origin}" for says, origin in wish.lines),
        *(TextBlock(text=f"# {remark}", tone="quiet") for remark in wish.remarks),
    )


def applies_in_words(applies: Applies | None) -> str:
    """Which hosts a baseline is for.

    >>> applies_in_words(Applies(groups=frozenset({"training"})))
    'It is for hosts of the group training. One that is more specific wins.'
    """
    if applies is None:
        return NEVER
    said = []
    if applies.hosts is not None:
        said.append(f"named {nodeset(sorted(applies.hosts))}")
    if applies.groups is not None:
        said.append(f"of the group {_either(applies.groups)}")
    gpu = applies.gpu
    if gpu:
        ids = f"all of whose GPUs are {_either(gpu.devices)}" if gpu.devices else "with GPUs"
        boards = f" of the subsystem {_either(gpu.subsystems)}" if gpu.subsystems else ""
        said.append(ids + boards)
    few = f" On nodes of {gpu.count} GPUs it wins over its equals." if gpu and gpu.count else ""
    return f"It is for hosts {', '.join(said)}. {OTHERS_WIN}{few}"


def _either(words: frozenset[str] | tuple[str, ...]) -> str:
    return " or ".join(sorted(words))


Notes = Mapping[str, Mapping[int, str]]  # what a file remarks, by its name and line


def _wish(wish: Expectation, resolved: Resolved, catalog: Catalog, notes: Notes) -> ExplainedWish:
    said = [one for one in resolved.statements if one.check == wish.check and one.stands]
    return ExplainedWish(
        check=wish.check,
        title=catalog.title(wish.check),
        area=catalog.check(wish.check).area.value,
        severity=wish.severity.value,
        may_be_fixed=bool(wish.fix),
        lines=tuple((_said(one), one.origin) for one in said),
        remarks=tuple(dict.fromkeys(_why(wish.check, said, resolved, notes))),
    )


def _said(one: Statement) -> str:
    if one.key != "expect":
        return f"{one.key}: {show(one.value)}"
    if not one.field:
        return "the check's defaults"
    return f"{one.field}: {'not asked' if one.value is None else show(one.value)}"


def _why(check: str, said: list[Statement], resolved: Resolved, notes: Notes) -> Iterator[str]:
    """What the files remark on these lines, and on the check as a whole where they speak of it."""
    origins = {one.origin for one in said}
    for file in resolved.files:
        lines = tuple(_lines(file, check))
        if any(f"{file.source.shown}:{line}" in origins for line in lines):
            told = (notes[file.source.shown].get(line, "") for line in lines)
            yield from filter(None, told)


def _lines(file: File, check: str) -> Iterator[int]:
    """The lines on which a file names a check under `expect`, and its fields."""
    for entry in file.entries("expect"):
        if entry.key == check:
            yield entry.place.line
            if isinstance(entry.value, Tree):
                yield from (inner.place.line for inner in entry.value.entries)


def _removed(resolved: Resolved) -> Iterator[tuple[str, str]]:
    asked = {wish.check for wish in resolved.baseline.expectations}
    for one in resolved.statements:
        gone = one.key == "expect" and one.stands and one.value is None
        if gone and one.check not in asked:
            yield one.check, one.origin


def _waiver(waiver: Waiver) -> str:
    part = f" of {waiver.subject}" if waiver.subject else ""
    hosts = f" on {nodeset(sorted(waiver.hosts))}" if waiver.hosts is not None else ""
    accepts = "any value" if waiver.any else show(waiver.accepts)
    return (
        f"{waiver.check}{part}{hosts}: {accepts}, until {waiver.until} "
        f"({waiver.owner}: {waiver.reason})  ← {waiver.origin}"
    )
