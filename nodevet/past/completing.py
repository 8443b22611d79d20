"""What a shell completes of the store: it is opened when a shell asks, and never made."""

from collections.abc import Iterator

import click

from nodevet.cli import words
from nodevet.cli.completing import Items, offered


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The runs that the store holds, the newest first."""
    return offered(_runs(ctx.params.get("store")), incomplete)


def hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return offered(_hosts(ctx.params.get("store")), incomplete)


def parts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Parts whose id begins so, once there are a few characters of it."""
    return offered(_parts(ctx.params.get("store"), incomplete), incomplete)


def _runs(url: str | None) -> Iterator[words.Suggestion]:
    """What names the runs of a store, the newest first."""
    from nodevet.past.listing import refs
    from nodevet.vet.use.stores import open_history

    yield words.Suggestion("last", "the last run")
    with open_history(url) as store:
        found = store.runs(limit=200)
        named = refs([run.id for run in found])
        for run in found:
            yield words.Suggestion(named[run.id], f"{run.series or 'by hand'}, {run.hosts} hosts")


def _hosts(url: str | None) -> Iterator[words.Suggestion]:
    from nodevet.vet.use.stores import open_history

    with open_history(url) as store:
        yield from map(words.Suggestion, store.hosts())


def _parts(url: str | None, start: str) -> Iterator[words.Suggestion]:
    from nodevet.vet.use.stores import open_history

    with open_history(url) as store:
        for part in store.parts(start) if start else ():
            yield words.Suggestion(part.id, part.model)
