"""The text of a baseline file: one entry for each check, with its title as a comment."""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.base.printable import plain
from nodevet.checking.catalog import Catalog
from nodevet.document.flow import flow, scalar
from nodevet.learn.agree import Agreement, Difference
from nodevet.model import Applies, Area, Value
from nodevet.sheet.text import nodeset, wrap

WIDTH = 96


def baseline_text(
    agreement: Agreement,
    catalog: Catalog,
    *,
    title: str,
    applies: Applies | None,
    head: Sequence[str] = (),
) -> str:
    """The text of the file. `head`: comments at its top."""
    return "\n".join(_lines(agreement, catalog, title, applies, head)) + "\n"


def _lines(
    agreement: Agreement, catalog: Catalog, title: str, applies: Applies | None, head: Sequence[str]
) -> Iterator[str]:
    yield from _comment(head, "")
    yield "nodevet: 1"
    yield f"title: {scalar(plain(title))}"
    yield from _applies(applies)
    yield ""
    yield "expect:" if agreement.expected else "expect: {}"
    notes: dict[str, list[Difference]] = {}
    for difference in agreement.differences:
        notes.setdefault(difference.check, []).append(difference)
    for area in Area:
        of_area = [entry for entry in agreement.expected if catalog.check(entry.check).area is area]
        for expected in sorted(of_area, key=lambda entry: entry.check):
            yield from _comment([catalog.title(expected.check)], "  ")
            for note in notes.pop(expected.check, ()):
                yield from _comment(
                    [f"left out, since it is not the same: {_difference_text(note)}"], "  "
                )
            yield from _entry(expected.check, expected.want)
    yield from _left_out(agreement, notes)


def _applies(applies: Applies | None) -> Iterator[str]:
    gpu = applies.gpu if applies else None
    if gpu is None:
        return
    yield ""
    yield "applies:"
    yield "  gpu:"
    yield f"    device: {flow(gpu.devices[0] if len(gpu.devices) == 1 else list(gpu.devices))}"
    if gpu.count is not None:
        yield f"    count: {gpu.count}"


def _entry(name: str, want: Value) -> Iterator[str]:
    line = f"  {name}: {flow(want)}"
    if len(line) <= WIDTH or not isinstance(want, Mapping):
        yield line
        return
    yield f"  {name}:"
    for key, value in want.items():
        yield f"    {scalar(key)}: {flow(value)}"


def _left_out(agreement: Agreement, notes: Mapping[str, Sequence[Difference]]) -> Iterator[str]:
    """The checks that are left out, with reasons."""
    if not agreement.left_out:
        return
    yield ""
    yield from _comment(["Not in it:"], "")
    for check, why in sorted(agreement.left_out.items()):
        reason = "; ".join(map(_difference_text, notes.get(check, ()))) or why
        yield from _comment([f"{check}: {reason}"], "", hanging=2)


def _difference_text(difference: Difference) -> str:
    """`governor: performance on gpu[001-006], powersave on gpu[007-008]`."""
    values = ", ".join(
        f"{'not said' if value is None else flow(value)} on {nodeset(hosts)}"
        for value, hosts in difference.values
    )
    return f"{difference.field}: {values}"


def _comment(texts: Sequence[str], margin: str, hanging: int = 0) -> Iterator[str]:
    for text in texts:
        first, *rest = wrap(plain(text), WIDTH - len(margin) - 2 - hanging)
        yield f"{margin}# {first}".rstrip()
        for line in rest:
            yield f"{margin}# {' ' * hanging}{line}"
