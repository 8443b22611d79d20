"""Clean up after a command line that is not valid."""

from collections.abc import Sequence
from pathlib import Path


def after_mistake(words: Sequence[str]) -> None:
    """A gate that did not begin for a mistake in its command line leaves no old pass behind.
    Raises FileError and OSError."""
    for path in verdict_files(words):
        from nodevet.vet.use.gate import withdraw

        withdraw(path)


def verdict_files(words: Sequence[str]) -> list[Path]:
    """The files that an invalid command line seems to give to --verdict."""
    stores: list[str] = []
    for place, word in enumerate(words):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if option == "--verdict":
            stores += [value] if equals else words[place + 1 : place + 2]
    return [Path(path) for path in stores if path]
