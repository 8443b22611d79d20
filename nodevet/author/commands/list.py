"""`nodevet list`: what there is."""

from pathlib import Path

import click

from nodevet.author.use import listing
from nodevet.base.project import Project
from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.cli.speech import say
from nodevet.sheet import FORMATS

OF_HOSTS = ("ansible", "nodeset")  # formats
ONLY = "With --from: only hosts that"


@click.command(
    "list",
    cls=Command,
    group="Baselines",
    order=1,
    examples=(
        ("The names for -b", "nodevet list baselines"),
        (
            "The hosts that a command would visit",
            "nodevet list hosts -i fleet.yaml --limit '@rack1!gpu007'",
        ),
        (
            "The hosts that did not pass the last recorded run, as a nodeset",
            "nodevet list hosts --from last --failing --unknown --format nodeset",
        ),
    ),
)
@click.argument("kind", type=click.Choice((*listing.KINDS, "hosts")), metavar="KIND")
@options.hosts
@click.option(
    "--from",
    "source",
    metavar="RUN",
    help="With hosts: also their verdicts in a recorded run (its id, last, last~2 or a day), or in "
    "a file that check --format json wrote. Without HOSTS and -i: the hosts of this run.",
)
@click.option(
    "--ok",
    "classes",
    flag_value="ok",
    multiple=True,
    help=f"{ONLY} passed, or have only waived findings.",
)
@click.option("--failing", "classes", flag_value="failing", multiple=True, help=f"{ONLY} failed.")
@click.option(
    "--unknown",
    "classes",
    flag_value="unknown",
    multiple=True,
    help=f"{ONLY} nodevet could not vet or judge, or that the run lacks.",
)
@click.option(
    "--max-age",
    type=Duration(bare=False),
    default="24h",
    show_default=True,
    help="With --from: refuse an older run.",
)
@options.store_option("With --from: where the run is recorded.")
@sheets.formats((*FORMATS, *OF_HOSTS))
@display_options()
@options.project
def command(
    kind: str,
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    source: str | None,
    classes: tuple[str, ...],
    max_age: float,
    store: str | None,
    form: tuple[str, Path | None],
    display: Display,
    project: Project,
) -> None:
    """List checks, fixes, baselines, formats, hosts and so on.

    \b
    KIND is one of:
      checks     severity, area, title
      fixes      highest risk, title
      baselines  title, number of checks, file, and why some checks are missing
      formats    formats of reports, for --format
      sources    kinds of inventories, for -i
      sections   parts of the evidence, for `nodevet probe`
      resources  kinds of settings that a fix can change
      hosts      hosts of HOSTS, -i, --limit and --from, with their groups

    With --format ansible, a script that runs this command is a dynamic inventory of Ansible; with
    --format nodeset, the hosts are one word for other commands, or nothing.
    """
    if kind == "hosts":
        _list_hosts(targets, inventories, limit, source, classes, max_age, store, form, display)
        return
    if targets or inventories or limit or source or classes or form[0] in OF_HOSTS:
        text = "HOSTS, -i, --limit, --from and the formats ansible and nodeset"
        raise click.UsageError(f"{text} are for `nodevet list hosts` only")
    from nodevet.author.listing_sheet import listing_sheet

    rows = list(listing.KINDS[kind](project))
    unasked = listing.unexpected_checks(project) if kind == "baselines" else {}
    more = [{"left_out": unasked[row["name"]]} if unasked else {} for row in rows]
    document = [row | rest for row, rest in zip(rows, more, strict=True)]
    sheets.show_bare(document, lambda: listing_sheet(kind, rows, unasked), form, display)


def _list_hosts(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    source: str | None,
    classes: tuple[str, ...],
    max_age: float,
    store: str | None,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    from msgspec import to_builtins

    from nodevet.author.host_list import (
        VerdictClass,
        chosen_hosts,
        dynamic_inventory,
        host_list,
        nodeset_text,
        rows,
    )
    from nodevet.author.listing_sheet import listing_sheet
    from nodevet.author.use.verdicts import read_verdicts
    from nodevet.sheet.json import indented
    from nodevet.vet.use.targets import Targets

    if classes and not source:
        raise click.UsageError("--ok, --failing and --unknown need --from RUN, which has verdicts")
    asked = {VerdictClass(name) for name in classes}
    run = read_verdicts(source, store, max_age, asked) if source else None
    for note in run.notes if run else ():
        say(note)
    named = Targets(names=targets, inventories=inventories, limit=limit)
    everyone = named.hosts() if named or run is None else named.hosts_within_limit(run.hosts)
    verdicts = run.verdicts if run else None
    hosts = chosen_hosts(everyone, verdicts, asked)
    if form[0] == "ansible":
        sheets.write(indented(dynamic_inventory(hosts, verdicts)), form)
    elif form[0] == "nodeset":
        sheets.write(f"{nodeset_text(hosts)}\n" if hosts else "", form)
    else:
        listed = host_list(hosts, verdicts)
        table = rows(listed)
        sheets.show_bare(
            to_builtins(listed), lambda: listing_sheet("hosts", table, {}), form, display
        )
