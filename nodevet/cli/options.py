"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nodevet.cli.seconds import Seconds
from nodevet.model import Severity

Command = TypeVar("Command", bound=Callable[..., Any])


def apply(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


project = click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder whose checks/, fixes/ and baselines/ join the shipped ones.  [default: .]",
)
baselines = click.option(
    "-b",
    "--baseline",
    "names",
    multiple=True,
    metavar="NAME|FILE",
    help="Baseline to judge by. One: for every host. Several, or none (all of the project's): "
    "each host gets the one whose `applies` fits it.",
)
hosts = apply(
    click.argument("targets", nargs=-1, metavar="[HOSTS]..."),
    click.option(
        "-i",
        "--inventory",
        "inventories",
        multiple=True,
        metavar="FILE",
        help="Inventory: a pyinfra file, YAML, or the JSON of `ansible-inventory --list`.",
    ),
    click.option(
        "--limit",
        multiple=True,
        metavar="NODESET",
        help="Only these hosts or groups; !x leaves x out.",
    ),
)
reach = apply(
    click.option(
        "--parallel",
        type=click.IntRange(1),
        default=200,
        show_default=True,
        help="Hosts visited at a time.",
    ),
    click.option(
        "--connect-timeout",
        type=Seconds(0.1),
        default=10,
        show_default=True,
        metavar="SECONDS",
        help="For a session with a host.",
    ),
    click.option(
        "--deadline",
        type=Seconds(1),
        default=120,
        show_default=True,
        metavar="SECONDS",
        help="For one host, from connecting to its last byte.",
    ),
    click.option(
        "--ssh-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Instead of ~/.ssh/config and /etc/ssh/ssh_config.",
    ),
    click.option(
        "--known-hosts",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Instead of ~/.ssh/known_hosts.",
    ),
    click.option(
        "--accept-new",
        is_flag=True,
        help="Accept a host key that is not known yet; never a changed one.",
    ),
    click.option("--sudo", is_flag=True, help="Run the probe through `sudo -n`."),
)
expect_hostname = click.option(
    "--no-expect-hostname",
    "expect_hostname",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Accept a node whose own host name is not its name in the inventory.",
)
formats = click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME[:FILE]",
    help="Report format, several at once; `nodevet list formats` names them.  [default: table]",
)
previous = click.option(
    "--previous",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="RUN",
    help="An earlier run (json or jsonl): say what is new since.",
)
fail_on = click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WARNING.value,
    show_default=True,
    help="The least severity that makes the exit code 1.",
)
