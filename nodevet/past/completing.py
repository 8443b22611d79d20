"""Shell completion from the store, which is opened for reading and never created."""

from collections.abc import Iterator
from shlex import quote

import click

from nodevet.base.printable import brief
from nodevet.cli import words
from nodevet.cli.completing import Items, offered


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The runs of the store, the newest first."""
    return offered(_runs(ctx.params.get("store")), incomplete)


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return offered(_hosts(ctx.params.get("store")), incomplete)


def parts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The parts whose id begins with the typed text; none for an empty text."""
    return offered(_parts(ctx.params.get("store"), incomplete), incomplete)


def _runs(url: str | None) -> Iterator[words.Suggestion]:
    """The names of the runs, the newest first."""
    from nodevet.past.listing import refs
    from nodevet.vet.use.stores import open_history

    yield words.Suggestion("last", "the last run")
    with open_history(url) as store:
        recorded = store.runs(limit=200)
        names = refs([run.id for run in recorded])
        for run in recorded:
            yield words.Suggestion(names[run.id], f"{run.series or 'by hand'}, {run.hosts} hosts")


def _hosts(url: str | None) -> Iterator[words.Suggestion]:
    from nodevet.vet.use.stores import open_history

    with open_history(url) as store:
        yield from map(words.Suggestion, store.hosts())


def _parts(url: str | None, start: str) -> Iterator[words.Suggestion]:
    from nodevet.vet.use.stores import open_history

    with open_history(url) as store:
        for part in store.parts(start) if start else ():
            if quote(part.id) == part.id:  # else the shell would split, or run, what a node says
                yield words.Suggestion(part.id, brief(part.model))
