"""A check, its fix, and what is expected by it, as a document and as a sheet."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from nodevet.author.use.explain import PAGES
from nodevet.baseline import Resolved, Statement, provenance
from nodevet.baseline.param_fields import ParamField, examples, param_fields
from nodevet.checking.catalog import Catalog
from nodevet.model import Check, Expectation, show
from nodevet.sheet.model import AnyBlock, GroupBlock, ListBlock, ListItem, Medium, ProseBlock, Sheet


class ExplainedLine(Struct, frozen=True, kw_only=True):
    """One line of a file that had a say in what is expected."""

    says: str
    origin: str
    stands: bool  # no later line took its place


class ExplainedExpectation(Struct, frozen=True, kw_only=True):
    """What one baseline expects by a check. `values` None: nothing."""

    baseline: str
    path: str
    values: Any = None
    severity: str = ""
    commands: tuple[str, ...] = ()  # that every host runs
    because: tuple[ExplainedLine, ...] = ()


class ExplainedCheck(Struct, frozen=True, kw_only=True):
    """A check: its page, in Markdown, and what baselines expect by it."""

    check: str
    page: str
    severity: str = ""  # empty: every run looks at it, whatever a baseline says
    area: str = ""
    fix: str = ""  # its highest risk; empty: it has none
    expected: tuple[ExplainedExpectation, ...] = ()


def explained(check: str, catalog: Catalog, baselines: Sequence[Resolved] = ()) -> ExplainedCheck:
    """A check, or what every run looks at. Raises CatalogError."""
    if check in PAGES and check not in catalog.ids:
        return ExplainedCheck(check=check, page=PAGES[check])
    own, fix = catalog.check(check), catalog.fix(check)
    parts = [catalog.page(check), *_params(own, check), _fix(check, catalog)]
    return ExplainedCheck(
        check=check,
        page="\n\n".join(parts),
        severity=own.severity.value,
        area=own.area.value,
        fix=fix.risk.value if fix else "",
        expected=tuple(_expected(one, check, own) for one in baselines),
    )


def check_sheet(found: ExplainedCheck, more: Sequence[AnyBlock] = ()) -> Sheet:
    """Its page, then what baselines expect. `more`: what it said of a host."""
    return Sheet(
        title=found.check,
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=(
            ProseBlock(text=found.page),
            *more,
            *(block for one in found.expected for block in _blocks(one, found)),
        ),
    )


def _params(check: Check, name: str) -> Iterator[str]:
    """Examples, fields and severity."""
    told = "".join(f"\n    {line}" for line in examples(check.params) or [f"{name}: {{}}"])
    yield f"**In a baseline**, under `expect`:\n{told}"
    fields = [_field(each) for each in param_fields(check.params)]
    yield "\n".join(fields) if fields else "It takes no fields."
    yield (
        f"**Severity** {check.severity.value}, unless the baseline says otherwise. "
        f"**Area** {check.area.value}."
    )


def _field(field: ParamField) -> str:
    """`- watts: number or default; required; a plain value fills it. In watts.`"""
    said = [
        f"- {field.name or 'any name'}: {field.form}",
        "required" if field.required else "",
        f"default {field.default}" if field.default else "",
        "a plain value fills it" if field.bare else "",
    ]
    told = "; ".join(part for part in said if part)
    return f"{told}. {' '.join(field.note.split())}" if field.note else told


def _fix(check: str, catalog: Catalog) -> str:
    """The fix's risk and page."""
    fix = catalog.fix(check)
    if fix is None:
        return "No fix available."
    return f"Fix available, at risk {fix.risk.value} or below.\n\n{catalog.fix_page(check)}"


def _expected(resolved: Resolved, check: str, own: Check) -> ExplainedExpectation:
    """The value that a baseline expects, and every line that had a say in it."""
    baseline = resolved.baseline
    wish = next((wish for wish in baseline.expectations if wish.check == check), None)
    return ExplainedExpectation(
        baseline=baseline.name,
        path=str(baseline.path),
        values=_values(wish) if wish else None,
        severity=wish.severity.value if wish else "",
        commands=tuple(own.runs(wish.params)) if wish and own.runs else (),
        because=tuple(
            ExplainedLine(says=_said(one), origin=one.origin, stands=one.stands)
            for one in provenance(resolved, check)
        ),
    )


def _values(wish: Expectation) -> Any:
    fields = to_builtins(wish.params)
    return fields[wish.params.whole] if wish.params.whole else fields


def _said(one: Statement) -> str:
    subject = f"{one.check}.{one.field}" if one.field else one.check
    null = one.key == "expect" and one.value is None
    gone = "off" if one.off else "removed"
    return f"{one.key}.{subject}: {gone if null else show(one.value)}"


def _blocks(one: ExplainedExpectation, check: ExplainedCheck) -> Iterator[AnyBlock]:
    values = one.values or {}
    lines = [f"{name}: {show(value)}" for name, value in values.items() if value is not None]
    lines += [f"severity: {one.severity}"] if one.values is not None else ["nothing"]
    yield _listed(f"{one.baseline} ({one.path}) expects:", lines)
    if one.commands:
        head = "and runs these commands on every host, where it is root as nobody:"
        yield _listed(head, one.commands)
    width = max((len(line.says) for line in one.because), default=0)
    because = [
        f"{line.says:{width}}  ← {line.origin}{'' if line.stands else '  (overridden)'}"
        for line in one.because
    ]
    if one.values is not None and not any(
        line.says.startswith("severity.") for line in one.because
    ):
        because.append(f"severity: {check.severity} is the check's own")
    if because:
        yield _listed("because:", because)


def _listed(title: str, lines: Sequence[str]) -> GroupBlock:
    return GroupBlock(title=title, blocks=(ListBlock(items=tuple(map(ListItem, lines))),))
