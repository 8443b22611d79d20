"""Shell completion of report formats."""

from collections.abc import Iterator

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


def _formats() -> Iterator[words.Suggestion]:
    from nodevet.vet.formats import formats as names

    yield from map(words.Suggestion, names())
