"""Shell completion of report formats, sweeps and sections."""

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from nodevet.cli import words
from nodevet.cli.completing import Items, offered


def formats(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """`NAME`, or `NAME:FILE`."""
    name, colon, file = incomplete.partition(":")
    if not colon:
        return offered(_formats(), incomplete)
    return [CompletionItem(f"{name}:{suggestion.word}") for suggestion in words.files(file)]


def sweeps(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The sweeps of nodevet.toml, with their inventories."""
    return offered(_sweeps(ctx.params.get("config")), incomplete)


def sections(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The sections of the evidence."""
    from nodevet.remote.probe.sections import names

    return offered(map(words.Suggestion, names()), incomplete)


def _formats() -> Iterator[words.Suggestion]:
    from nodevet.vet.formats import formats as names

    yield from map(words.Suggestion, names())


def _sweeps(config: Path | None) -> Iterator[words.Suggestion]:
    from nodevet.settings import settings

    for name, sweep in settings(config).settings.sweep.items():
        yield words.Suggestion(name, ", ".join(sweep.inventory))
