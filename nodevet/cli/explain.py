"""`nodevet explain`: what a check is about, and what is wanted of a host and why."""

from pathlib import Path
from typing import Any

import click

from nodevet import age, identity
from nodevet.baseline import Resolved, Statement, choose, load_resolved, provenance
from nodevet.baseline.choose import CHECK as CHOICE
from nodevet.baseline.choose import PAGE as OF_CHOICE
from nodevet.catalog import Catalog
from nodevet.cli import UserError, options, session
from nodevet.cli.speech import say
from nodevet.fleet import Options
from nodevet.model import Expectation, Host, show

PAGES = {**identity.PAGES, age.CHECK: age.PAGE, CHOICE: OF_CHOICE}


@click.command("explain")
@click.argument("check")
@click.option("--host", metavar="HOST", help="Say what is wanted of this host, and where.")
@click.option(
    "-i",
    "--inventory",
    "inventories",
    multiple=True,
    metavar="FILE",
    help="Inventory that names the host.",
)
@options.baselines
@options.reach
@options.project
def command(
    check: str,
    host: str | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    project: Path,
    **reach: Any,
) -> None:
    """Print the pages of a CHECK and of its fix; with --host or -b also what is wanted, and
    from which line.

    A host is only visited where its baseline depends on what it is: name one with -b, and
    nothing is read from it.

    CHECK may be the name of what every run looks at, with no baseline asking for it:
    host_identity, hostname, evidence_age, baseline.
    """
    catalog, folders = session.open_project(project)
    if check in PAGES and check not in catalog.ids:
        click.echo(PAGES[check])
        return
    click.echo(catalog.page(check))
    click.echo()
    click.echo(_fix(check, catalog))
    if not host and not names:
        return
    wanted = list(names) or session.candidates(folders)
    resolved = load_resolved(wanted, folders=folders, catalog=catalog)
    if host and len(names) != 1:
        hosts = session.inventory([host], inventories, ())
        if len(hosts) > 1:
            raise UserError(f"--host: {host} stands for {len(hosts):,} hosts; name one")
        (node,) = hosts
        resolved = (_fitting(resolved, node, session.fleet_options(**reach)),)
    for one in resolved:
        click.echo()
        click.echo("\n".join(_wanted(one, check, catalog)))


def _fix(check: str, catalog: Catalog) -> str:
    """What there is to put it right: the fix's risk and page."""
    fix = catalog.fix(check)
    if fix is None:
        return "There is no fix for it."
    return f"There is a fix, at risk {fix.risk.value} or below.\n\n{catalog.fix_page(check)}"


def _fitting(resolved: tuple[Resolved, ...], node: Host, reach: Options) -> Resolved:
    """The baseline for a host, from what it is. Raises UserError where that cannot be told."""
    from nodevet.evidence.document import decode
    from nodevet.fleet import visit
    from nodevet.identity import in_words, judge_hostname

    (one,) = visit([node], reach)
    if one.evidence is None:
        raise UserError(f"{node.name}: {one.status.value}: {one.why}; name its baseline with -b")
    evidence = decode(one.evidence)
    if doubt := judge_hostname(node, evidence):
        say(f"{node.name}: {in_words(doubt)}; {doubt.advice}")
    chosen = choose([each.baseline for each in resolved], evidence, node)
    if isinstance(chosen, str):
        raise UserError(f"{node.name}: {chosen}")
    return next(each for each in resolved if each.baseline is chosen)


def _wanted(resolved: Resolved, check: str, catalog: Catalog) -> list[str]:
    """The value that a baseline wants, and every line that had a say in it."""
    baseline = resolved.baseline
    lines = [f"{baseline.name} ({baseline.path}) wants:"]
    found = [wish for wish in baseline.expectations if wish.check == check]
    lines += [f"  {line}" for wish in found for line in _values(wish)] or ["  nothing of it"]
    said = provenance(resolved, check)
    if said:
        width = max(len(_said(one)) for one in said)
        lines.append("because:")
        lines += [
            f"  {_said(one):{width}}  ← {one.origin}{'' if one.stands else '  (overridden)'}"
            for one in said
        ]
    if found and not any(one.key == "severity" for one in said):
        lines.append(f"  severity: {catalog.check(check).severity.value} is the check's own")
    return lines


def _values(wish: Expectation) -> list[str]:
    fields = wish.want.model_dump(exclude_none=True)
    return [f"{name}: {show(value)}" for name, value in fields.items()] + [
        f"severity: {wish.severity.value}"
    ]


def _said(one: Statement) -> str:
    subject = f"{one.check}.{one.field}" if one.field else one.check
    removed = one.key == "expect" and one.value is None
    return f"{one.key}.{subject}: {'removed' if removed else show(one.value)}"
