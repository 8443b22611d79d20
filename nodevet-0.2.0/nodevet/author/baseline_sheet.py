"""Explain a baseline: its hosts, the baselines that it extends, and its expectations by check."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodevet.baseline import Resolved, Statement
from nodevet.baseline.files import File
from nodevet.baseline.notes import remarks
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

NEVER = "nodevet never chooses it by itself: name it with -b, or extend it."
OTHERS_WIN = "One that is more specific wins."


class ExplainedSetting(Struct, frozen=True, kw_only=True):
    """What a baseline expects of one check: lines, each with its origin, and their comments."""

    check: str
    title: str
    area: str
    severity: str
    may_be_fixed: bool
    lines: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]


class ExplainedBaseline(Struct, frozen=True, kw_only=True):
    """A baseline, explained."""

    name: str
    path: str
    title: str
    applies: str
    extends: tuple[tuple[str, str], ...]  # file and title, the nearest first
    expects: tuple[ExplainedSetting, ...]
    removed: tuple[tuple[str, str], ...]  # check and origin
    waivers: tuple[str, ...]


class ExplainedBaselines(Struct, frozen=True, kw_only=True):
    """Baselines, explained."""

    baselines: tuple[ExplainedBaseline, ...]


def explained_baseline(resolved: Resolved, catalog: Catalog) -> ExplainedBaseline:
    """A baseline, with the comments of its files."""
    baseline = resolved.baseline
    notes = {file.source.shown: remarks(file.source.text) for file in resolved.files}
    return ExplainedBaseline(
        name=baseline.name,
        path=str(baseline.path),
        title=baseline.title,
        applies=applies_text(baseline.applies),
        extends=tuple(
            (file.source.shown, file.part.title if file.part else "")
            for file in reversed(resolved.files[:-1])
        ),
        expects=tuple(_setting(item, resolved, catalog, notes) for item in baseline.expectations),
        removed=tuple(_removed(resolved)),
        waivers=tuple(map(_waiver, baseline.waivers)),
    )


def baselines_sheet(explained: Sequence[ExplainedBaseline]) -> Sheet:
    """Each baseline: its hosts, the baselines that it extends, and its expectations by area."""
    return Sheet(
        title=", ".join(baseline.name for baseline in explained),
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=tuple(block for baseline in explained for block in _blocks(baseline)),
    )


def _blocks(baseline: ExplainedBaseline) -> Iterator[AnyBlock]:
    yield _list((f"{baseline.name} ({baseline.path})", *filter(None, (baseline.title,))))
    yield TextBlock(text=baseline.applies)
    if baseline.extends:
        files = (f"{file}: {title}" if title else file for file, title in baseline.extends)
        yield _group("It extends, the nearest first:", _list(files))
    total = count(len(baseline.expects), "check")
    yield TextBlock(text=f"It has {total}. `nodevet explain CHECK` explains a check.")
    for area in Area:
        if settings := [setting for setting in baseline.expects if setting.area == area.value]:
            head = f"{area.value[0].upper()}{area.value[1:]}"
            yield _group(head, *map(_setting_block, settings))
    if baseline.removed:
        removed = (f"{check}  ← {origin}" for check, origin in baseline.removed)
        yield _group("It removes these inherited checks:", _list(removed))
    if baseline.waivers:
        yield _group("It waives:", _list(baseline.waivers))


def _group(title: str, *blocks: AnyBlock) -> GroupBlock:
    return GroupBlock(title=title, blocks=blocks)


def _list(texts: Iterable[str]) -> ListBlock:
    return ListBlock(items=tuple(map(ListItem, texts)))


def _setting_block(setting: ExplainedSetting) -> GroupBlock:
    """A check: its severity and title, the expectations with their origins, and comments."""
    fix = ", may be fixed" if setting.may_be_fixed else ""
    return _group(
        f"{setting.check}  {setting.severity}{fix}",
        TextBlock(text=setting.title),
        _list(f"{text}  ← {origin}" for text, origin in setting.lines),
        *(TextBlock(text=f"# {remark}", tone="quiet") for remark in setting.remarks),
    )


def applies_text(applies: Applies | None) -> str:
    """A sentence about the hosts of a baseline.

    >>> applies_in_words(Applies(groups=frozenset({"training"})))
    'It is for hosts of the group training. One that is more specific wins.'
    """
    if applies is None:
        return NEVER
    parts = []
    if applies.hosts is not None:
        parts.append(f"named {nodeset(sorted(applies.hosts))}")
    if applies.groups is not None:
        parts.append(f"of the group {_either(applies.groups)}")
    gpu = applies.gpu
    if gpu:
        ids = f"whose GPUs are all {_either(gpu.devices)}" if gpu.devices else "with GPUs"
        boards = f" of the subsystem {_either(gpu.subsystems)}" if gpu.subsystems else ""
        parts.append(ids + boards)
    tie = (
        f" On nodes of {gpu.count} GPUs it wins over equally specific baselines."
        if gpu and gpu.count
        else ""
    )
    return f"It is for hosts {', '.join(parts)}. {OTHERS_WIN}{tie}"


def _either(words: frozenset[str] | tuple[str, ...]) -> str:
    return " or ".join(sorted(words))


Notes = Mapping[str, Mapping[int, str]]  # comments by file and line


def _setting(
    expectation: Expectation, resolved: Resolved, catalog: Catalog, notes: Notes
) -> ExplainedSetting:
    statements = [
        statement
        for statement in resolved.statements
        if statement.check == expectation.check and statement.stands
    ]
    return ExplainedSetting(
        check=expectation.check,
        title=catalog.title(expectation.check),
        area=catalog.check(expectation.check).area.value,
        severity=expectation.severity.value,
        may_be_fixed=bool(expectation.fix),
        lines=tuple((_statement_text(statement), statement.origin) for statement in statements),
        remarks=tuple(dict.fromkeys(_remarks(expectation.check, statements, resolved, notes))),
    )


def _statement_text(statement: Statement) -> str:
    if statement.key != "expect":
        return f"{statement.key}: {show(statement.value)}"
    if not statement.field:
        return "the check's defaults"
    return f"{statement.field}: {'not asked' if statement.value is None else show(statement.value)}"


def _remarks(
    check: str, statements: list[Statement], resolved: Resolved, notes: Notes
) -> Iterator[str]:
    """The comments of files on these lines, and on the check as a whole."""
    origins = {statement.origin for statement in statements}
    for file in resolved.files:
        lines = tuple(_lines(file, check))
        if any(f"{file.source.shown}:{line}" in origins for line in lines):
            comments = (notes[file.source.shown].get(line, "") for line in lines)
            yield from filter(None, comments)


def _lines(file: File, check: str) -> Iterator[int]:
    """The lines of a check and its fields under `expect` in a file."""
    for entry in file.entries("expect"):
        if entry.key == check:
            yield entry.place.line
            if isinstance(entry.value, Tree):
                yield from (inner.place.line for inner in entry.value.entries)


def _removed(resolved: Resolved) -> Iterator[tuple[str, str]]:
    checks = {expectation.check for expectation in resolved.baseline.expectations}
    for statement in resolved.statements:
        is_removal = statement.key == "expect" and statement.stands and statement.value is None
        if is_removal and statement.check not in checks:
            yield statement.check, statement.origin


def _waiver(waiver: Waiver) -> str:
    part = f" of {waiver.subject}" if waiver.subject else ""
    hosts = f" on {nodeset(sorted(waiver.hosts))}" if waiver.hosts is not None else ""
    accepts = "any value" if waiver.any else show(waiver.accepts)
    return (
        f"{waiver.check}{part}{hosts}: {accepts}, until {waiver.until} "
        f"({waiver.owner}: {waiver.reason})  ← {waiver.origin}"
    )
