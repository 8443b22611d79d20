"""Commands that other distributions add, by an entry point of the group `nodevet.commands`.

The entry point has the command's name and names a click command. Importing this module is slow,
so only what is not a command of nodevet's own, and the list of all commands, asks for it.
"""

from importlib.metadata import EntryPoint, entry_points

import click

from nodevet.base.errors import UserError

GROUP = "nodevet.commands"
NOT_INSTALLED = {
    "sim": "simulated nodes are not installed; in a clone of nodevet, run: pip install ./sim"
}
"""Commands that distributions of this project add, and what to say if they are not installed."""


def names() -> set[str]:
    """The commands that installed distributions add."""
    return {point.name for point in entry_points(group=GROUP)}


def find(name: str) -> click.Command | None:
    """The command of this name; one that cannot be used says why when it is run."""
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        return _unusable(name, NOT_INSTALLED[name]) if name in NOT_INSTALLED else None
    if len(points) > 1:
        several = ", ".join(sorted(map(_origin, points)))
        why = f"several distributions define it: {several}; uninstall all but one"
        return _unusable(name, f"command {name!r} cannot be used: {why}")
    return _load(points[0])


def _load(point: EntryPoint) -> click.Command:
    try:
        found = point.load()
        why = "" if isinstance(found, click.Command) else f"{point.value} is not a click command"
    except (Exception, SystemExit) as error:  # a fault of another distribution's
        why = f"{type(error).__name__}: {error}"
    if why:
        text = f"command {point.name!r} of {_origin(point)} cannot be loaded: {why}"
        return _unusable(point.name, f"{text}; upgrade or uninstall that distribution")
    command: click.Command = found
    return command


def _origin(point: EntryPoint) -> str:
    """The distribution with its version, as `acme-tools 1.2`."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _unusable(name: str, why: str) -> click.Command:
    """A command that takes any arguments and says why it cannot be run."""

    def fail(arguments: tuple[str, ...]) -> None:
        raise UserError(why)

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help="(unusable; run it to see why)",
    )
