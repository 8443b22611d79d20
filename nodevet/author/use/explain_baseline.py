"""Explain a baseline: which hosts it is for, what it extends, and what it expects, by check."""

import textwrap
from collections.abc import Iterator, Mapping

from nodevet.baseline import Resolved, Statement
from nodevet.baseline.files import File
from nodevet.baseline.remarks import remarks
from nodevet.checking.catalog import Catalog
from nodevet.document.tree import Mapping as Tree
from nodevet.model import Applies, Area, Expectation, Waiver, show
from nodevet.sheet.text import count, nodeset

NEVER = "It is never chosen by itself: name it with -b, or extend it."
OTHERS_WIN = "One that is more specific wins."


def page_of(resolved: Resolved, catalog: Catalog, columns: int = 100) -> str:
    """What a baseline is, in paragraphs; sentences are at most so many columns wide."""
    return "\n\n".join(_parts(resolved, catalog, columns))


def _parts(resolved: Resolved, catalog: Catalog, columns: int) -> Iterator[str]:
    baseline = resolved.baseline
    yield "\n".join(filter(None, (f"{baseline.name} ({baseline.path})", baseline.title)))
    yield _filled(applies_in_words(baseline.applies), columns)
    if len(resolved.files) > 1:
        yield "\n".join(("It extends, the nearest first:", *_extended(resolved)))
    total = count(len(baseline.expectations), "check")
    yield f"It asks for {total}. `nodevet explain CHECK` tells all of one."
    notes = {file.source.shown: remarks(file.source.text) for file in resolved.files}
    for area in Area:
        own = [wish for wish in baseline.expectations if catalog.check(wish.check).area is area]
        if own:
            head = f"{area.value[0].upper()}{area.value[1:]}"
            told = (_expected(wish, resolved, catalog, notes, columns) for wish in own)
            yield "\n".join((head, *map("\n".join, told)))
    if removed := _removed(resolved):
        yield "\n".join(("It does not ask for what it inherits:", *removed))
    if baseline.waivers:
        yield "\n".join(("It waives:", *(f"  {_waiver(each)}" for each in baseline.waivers)))


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


def _extended(resolved: Resolved) -> Iterator[str]:
    for file in reversed(resolved.files[:-1]):
        title = file.part.title if file.part else ""
        yield f"  {file.source.shown}" + (f": {title}" if title else "")


def _filled(text: str, columns: int, indent: str = "") -> str:
    return textwrap.fill(
        text, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


Notes = Mapping[str, Mapping[int, str]]  # what a file remarks, by its name and line


def _expected(
    wish: Expectation, resolved: Resolved, catalog: Catalog, notes: Notes, columns: int
) -> Iterator[str]:
    """A check: its severity, what it is about, what is expected, by which line, and why."""
    fix = ", may be fixed" if wish.fix else ""
    yield f"  {wish.check}  {wish.severity.value}{fix}"
    yield _filled(catalog.title(wish.check), columns, "    ")
    said = [one for one in resolved.statements if one.check == wish.check and one.stands]
    for one in said:
        yield f"    {_said(one)}  ← {one.origin}"
    for why in dict.fromkeys(_why(wish.check, said, resolved, notes)):
        yield _filled(why, columns, "    # ")


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


def _removed(resolved: Resolved) -> list[str]:
    asked = {wish.check for wish in resolved.baseline.expectations}
    return [
        f"  {one.check}  ← {one.origin}"
        for one in resolved.statements
        if one.key == "expect" and one.stands and one.value is None and one.check not in asked
    ]


def _waiver(waiver: Waiver) -> str:
    part = f" of {waiver.subject}" if waiver.subject else ""
    hosts = f" on {nodeset(sorted(waiver.hosts))}" if waiver.hosts is not None else ""
    accepts = "any value" if waiver.any else show(waiver.accepts)
    return (
        f"{waiver.check}{part}{hosts}: {accepts}, until {waiver.until} "
        f"({waiver.owner}: {waiver.reason})  ← {waiver.origin}"
    )
