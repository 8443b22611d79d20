"""Words of a systemd unit."""

PLAIN = "/._-+:@=,"


def escaped(text: str) -> str:
    """The text without specifiers."""
    return text.replace("%", "%%")


def quoted(text: str) -> str:
    """One word of a command line: no space, quote, `$` or `%` in it has a meaning for systemd."""
    plain = all(char.isalnum() or char in PLAIN for char in text)
    literal = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return escaped(text if plain else f'"{literal}"')


def command_line(words: tuple[str, ...]) -> str:
    """What follows `ExecStart=`. The first word must not hold a `$`: systemd keeps it doubled."""
    return " ".join(map(quoted, words))


def continued(text: str) -> str:
    """A text of several lines as one value; systemd reads a space for each line break."""
    return text.replace("\\", "\\\\").replace("\n", " \\\n").rstrip(" \\\n")
