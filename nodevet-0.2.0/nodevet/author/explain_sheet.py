"""A check, its fix, and the expectations of baselines, as a document and as a sheet."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from nodevet.author.use.explain import PAGES
from nodevet.baseline import Resolved, Statement, provenance
from nodevet.baseline.param_fields import ParamField, examples, param_fields
from nodevet.checking.catalog import Catalog
from nodevet.checking.needed import advised_actions, usual_action
from nodevet.model import Check, Expectation, HostReport, NeededAction, show
from nodevet.sheet.model import AnyBlock, GroupBlock, ListBlock, ListItem, Medium, ProseBlock, Sheet
from nodevet.vet.findings.needs import needs_of


class ExplainedLine(Struct, frozen=True, kw_only=True):
    """One line of a file about an expectation."""

    says: str
    origin: str
    stands: bool  # no later line overrides it


class ExplainedExpectation(Struct, frozen=True, kw_only=True):
    """What one baseline expects of a check. `values` None: nothing."""

    baseline: str
    path: str
    values: Any = None
    severity: str = ""
    commands: tuple[str, ...] = ()  # that every host runs
    because: tuple[ExplainedLine, ...] = ()


class ExplainedCheck(Struct, frozen=True, kw_only=True):
    """A check: its page, in Markdown, and what baselines expect of it."""

    check: str
    page: str
    severity: str = ""  # "": every run checks it, whatever the baseline
    area: str = ""
    fix: str = ""  # its highest risk; "": no fix
    actions: tuple[NeededAction, ...] = ()  # what its failures may need
    expected: tuple[ExplainedExpectation, ...] = ()


class CheckOnHost(ExplainedCheck, frozen=True, kw_only=True):
    """A check, and its findings on one host of a run."""

    run: str
    host: HostReport  # with the findings of this check alone


def explained(check: str, catalog: Catalog, baselines: Sequence[Resolved] = ()) -> ExplainedCheck:
    """A check, or a page about what every run checks. Raises CatalogError."""
    if check in PAGES and check not in catalog.ids:
        return ExplainedCheck(check=check, page=PAGES[check])
    definition, fix = catalog.check(check), catalog.fix(check)
    parts = [
        catalog.page(check),
        *_params(definition, check),
        if_it_fails(check, catalog),
        _fix(check, catalog),
    ]
    may_need = {*advised_actions(check, catalog), usual_action(check, catalog)}
    return ExplainedCheck(
        check=check,
        page="\n\n".join(parts),
        severity=definition.severity.value,
        area=definition.area.value,
        fix=fix.risk.value if fix else "",
        actions=tuple(action for action in NeededAction if action in may_need),
        expected=tuple(_expected(resolved, check, definition) for resolved in baselines),
    )


def check_sheet(explanation: ExplainedCheck, host_blocks: Sequence[AnyBlock] = ()) -> Sheet:
    """The page of a check, then what baselines expect. `host_blocks`: its findings on a host."""
    return Sheet(
        title=explanation.check,
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=(
            ProseBlock(text=explanation.page),
            *host_blocks,
            *(block for item in explanation.expected for block in _blocks(item, explanation)),
        ),
    )


def _params(check: Check, name: str) -> Iterator[str]:
    """The examples, fields and severity of a check."""
    lines = "".join(f"\n    {line}" for line in examples(check.params) or [f"{name}: {{}}"])
    yield f"**In a baseline**, under `expect`:\n{lines}"
    fields = [_field(field) for field in param_fields(check.params)]
    yield "\n".join(fields) if fields else "It takes no fields."
    yield (
        f"**Severity** {check.severity.value}, unless the baseline says otherwise. "
        f"**Area** {check.area.value}."
    )


def if_it_fails(check: str, catalog: Catalog) -> str:
    """What a failure of a check needs, as a sentence. Raises CatalogError."""
    usual = usual_action(check, catalog)
    advised = [each for each in advised_actions(check, catalog) if each is not usual]
    usual_words = f"it {'is ' if usual.words.startswith('fixable') else ''}{usual.words}"
    if not advised:
        return f"**If it fails** {usual_words}."
    all_but_last, comma, last = needs_of(advised).rpartition(", ")
    words = f"{all_but_last}{' or ' if comma else ''}{last}"
    return f"**If it fails** it {words}, if the advice says so; otherwise {usual_words}."


def _field(field: ParamField) -> str:
    """`- watts: number or default; required; a plain value fills it. In watts.`"""
    parts = [
        f"- {field.name or 'any name'}: {field.form}",
        "required" if field.required else "",
        f"default {field.default}" if field.default else "",
        "a plain value fills it" if field.bare else "",
    ]
    text = "; ".join(part for part in parts if part)
    return f"{text}. {' '.join(field.note.split())}" if field.note else text


def _fix(check: str, catalog: Catalog) -> str:
    """The risk and the page of a check's fix."""
    fix = catalog.fix(check)
    if fix is None:
        return "No fix available."
    return f"Fix available, at risk {fix.risk.value} or below.\n\n{catalog.fix_page(check)}"


def _expected(resolved: Resolved, check: str, definition: Check) -> ExplainedExpectation:
    """The value that a baseline expects, and every line about it."""
    baseline = resolved.baseline
    expectation = next((item for item in baseline.expectations if item.check == check), None)
    runs = definition.runs
    return ExplainedExpectation(
        baseline=baseline.name,
        path=str(baseline.path),
        values=_values(expectation) if expectation else None,
        severity=expectation.severity.value if expectation else "",
        commands=tuple(runs(expectation.params)) if expectation and runs else (),
        because=tuple(
            ExplainedLine(
                says=_statement_text(statement), origin=statement.origin, stands=statement.stands
            )
            for statement in provenance(resolved, check)
        ),
    )


def _values(expectation: Expectation) -> Any:
    fields = to_builtins(expectation.params)
    return fields[expectation.params.whole] if expectation.params.whole else fields


def _statement_text(statement: Statement) -> str:
    subject = f"{statement.check}.{statement.field}" if statement.field else statement.check
    null = statement.key == "expect" and statement.value is None
    null_text = "off" if statement.off else "removed"
    return f"{statement.key}.{subject}: {null_text if null else show(statement.value)}"


def _blocks(expectation: ExplainedExpectation, check: ExplainedCheck) -> Iterator[AnyBlock]:
    values = expectation.values or {}
    lines = [f"{name}: {show(value)}" for name, value in values.items() if value is not None]
    lines.append("nothing" if expectation.values is None else f"severity: {expectation.severity}")
    yield _list_group(f"{expectation.baseline} ({expectation.path}) expects:", lines)
    if expectation.commands:
        head = "and runs these commands on every host (as user nobody when nodevet is root):"
        yield _list_group(head, expectation.commands)
    width = max((len(line.says) for line in expectation.because), default=0)
    because = [
        f"{line.says:{width}}  ← {line.origin}{'' if line.stands else '  (overridden)'}"
        for line in expectation.because
    ]
    if expectation.values is not None and not any(
        line.says.startswith("severity.") for line in expectation.because
    ):
        because.append(f"severity: {check.severity} is the check's own")
    if because:
        yield _list_group("because:", because)


def _list_group(title: str, lines: Sequence[str]) -> GroupBlock:
    return GroupBlock(title=title, blocks=(ListBlock(items=tuple(map(ListItem, lines))),))
