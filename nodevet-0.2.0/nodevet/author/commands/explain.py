"""`nodevet explain`: a check, what is expected by it and why; a baseline; or a host, in full."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.cli.speech import say
from nodevet.vet import options as vetting

if TYPE_CHECKING:
    from nodevet.baseline import Resolved
    from nodevet.checking.catalog import Catalog
    from nodevet.model import Host, HostReport, Run
    from nodevet.sheet.model import AnyBlock

WRITTEN = 100  # columns of the pages, and of what is not a terminal


@click.command(
    "explain",
    cls=Command,
    group="Vet",
    order=4,
    examples=(
        ("A check", "nodevet explain pcie_link"),
        ("A baseline", "nodevet explain nvidia-h100-sxm"),
        (
            "The values expected of gpu001, and the line that sets each",
            "nodevet explain pcie_link --host gpu001 -i fleet.yaml",
        ),
        ("All findings of a run on gpu004", "nodevet explain gpu004 --from last.json"),
    ),
)
@click.argument(
    "what",
    metavar="[CHECK|BASELINE|HOST]",
    required=False,
    shell_complete=completing.checks_and_baselines,
)
@click.option(
    "--host",
    metavar="HOST",
    shell_complete=completing.hosts,
    help="Show the values expected of this host.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="RUN|EVIDENCE",
    help="Show a host of a saved run, or judge saved evidence again.",
)
@options.inventory(
    help="Inventory that names the host.",
)
@options.baselines
@sheets.formats()
@display_options()
@vetting.reach
@vetting.verbose
@options.project
def command(
    what: str | None,
    host: str | None,
    source: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    form: tuple[str, Path | None],
    project: Project,
    display: Display,
    **reach: Any,
) -> None:
    """Explain a CHECK and its fix, or a BASELINE; or show a HOST.

    A CHECK: why it matters, its fields in a baseline, its fix. With --host or -b: also the expected
    values, and the line of the file that sets each; with --from, also the findings there. nodevet
    visits the host only if its baseline depends on it, so never with -b.

    CHECK may also be one of those that every run makes without a baseline: host_identity, hostname,
    evidence_age, baseline.

    A BASELINE, a name or a file: its hosts, what it extends, and every expected value with its line
    and comment. The default is that of -b, or of --host.

    A HOST: its facts, and each finding with values, reasons, advice, parts and the line of the
    baseline, from a saved run or saved evidence (--from), or from a visit (-i). A word that names
    a check is always the check; a word that names a baseline is the baseline, unless --from or -i
    names hosts.
    """
    from msgspec import UNSET
    from msgspec.structs import asdict, replace

    from nodevet.author.explain_sheet import CheckOnHost, check_sheet, explained
    from nodevet.author.host_sheet import HostAnswer, host_blocks, host_sheet
    from nodevet.author.use.explain import is_baseline, is_check, unknown_word
    from nodevet.vet.use.context import open_project

    catalog, folders = open_project(project)
    apart = host or names or source or inventories
    if what and not apart and not is_check(what, catalog) and is_baseline(what, folders):
        names, what = (what,), None
    if what is None:
        if source or not (host or names):
            raise UserError("name a check, a baseline or a host: `nodevet explain --help`")
        resolved = _resolved(catalog, folders, host, inventories, names, reach)
        _show_baselines(resolved, catalog, form, _page(display))
        return
    if not is_check(what, catalog):
        if host or not (source or inventories):
            raise unknown_word(what, catalog)
        run, host_report = _host(what, source, inventories, names, project, reach)
        answer = HostAnswer(run=run.id, host=host_report)
        sheets.show(answer, host_sheet(run, host_report), form, display)
        return
    asked = (host or names) and what in catalog.ids and not source
    resolved = _resolved(catalog, folders, host, inventories, names, reach) if asked else ()
    check = explained(what, catalog, resolved)
    document = check
    more: tuple[AnyBlock, ...] = ()
    if source and host:
        run, host_report = _host(host, source, inventories, names, project, reach)
        findings = tuple(finding for finding in host_report.findings if finding.check == what)
        counted = tuple(each for each in host_report.counted or () if each.check == what) or UNSET
        one = replace(host_report, findings=findings, counted=counted)
        document = CheckOnHost(**asdict(check), run=run.id, host=one)
        more = tuple(host_blocks(run, host_report, what))
    elif source:
        say(f"{what} is a check; for a host of {source}: --host NAME")
    sheets.show(document, check_sheet(check, more), form, _page(display))


def _page(display: Display) -> Display:
    """Pages have lines of limited length, even if they do not go to a terminal."""
    width = display.width or shutil.get_terminal_size((WRITTEN, 24)).columns
    return display._replace(out=display.out._replace(width=width))


def _show_baselines(
    found: "Sequence[Resolved]", catalog: "Catalog", form: tuple[str, Path | None], display: Display
) -> None:
    from nodevet.author.baseline_sheet import (
        ExplainedBaselines,
        baselines_sheet,
        explained_baseline,
    )

    baselines = tuple(explained_baseline(one, catalog) for one in found)
    sheets.show(ExplainedBaselines(baselines=baselines), baselines_sheet(baselines), form, display)


def _resolved(
    catalog: "Catalog",
    folders: list[Path],
    host: str | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    reach: dict[str, Any],
) -> "Sequence[Resolved]":
    """The baselines; if a host is named, only its baseline."""
    from nodevet.author.use.explain import fallback_baselines, fitting, resolve
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options

    resolved = resolve(names, folders, catalog)
    if host and len(names) != 1:
        target = _one_host(host, inventories)
        others = partial(fallback_baselines, names, folders, catalog)
        found = fitting(
            resolved, target, fleet_options(engine=engine_for([target]), **reach), others
        )
        resolved = (found.resolved,)
        if found.doubt:
            say(found.doubt)
    return resolved


def _one_host(host: str, inventories: tuple[str, ...]) -> "Host":
    from nodevet.vet.use.targets import Targets

    hosts = Targets(names=(host,), inventories=inventories).hosts()
    if len(hosts) > 1:
        raise UserError(f"{host} stands for {len(hosts):,} hosts; name one")
    return hosts[0]


def _host(
    host: str,
    source: Path | None,
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    project: Project,
    reach: dict[str, Any],
) -> "tuple[Run, HostReport]":
    """A host of a saved run, or as it is now."""
    from nodevet.author.use.explain import host_of, saved_host
    from nodevet.model import Severity
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.engine import engine_for
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.vet import vet

    if source:
        run, note = saved_host(source, host, project, names)
        if note:
            say(note)
        return run, host_of(run, host, source)
    target = _one_host(host, inventories)
    context = open_context(project, names)
    reached = fleet_options(context=context, choosing=True, engine=engine_for([target]), **reach)
    run = vet([target], context, reached, fail_on=Severity.WARNING)
    return run, run.hosts[0]
