"""The options of a rollout: signed with the plan; `apply` may override them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from nodevet.cli import options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Option

_option = partial(click.option, cls=Option, heading="Rollout")


def rollout_options(*, planned: bool) -> Callable[[Any], Any]:
    """The options of `plan`, or, without `planned`, of `apply`, whose defaults are the plan's."""

    def option(name: str, default: Any, text: str, **rest: Any) -> Callable[[Any], Any]:
        if not planned:
            return _option(name, default=None, help=text, **rest)
        return _option(name, default=default, show_default=default != "", help=text, **rest)

    def flag(name: str, text: str) -> Callable[[Any], Any]:
        if planned:
            return _option(name, is_flag=True, help=text)
        return _option(f"{name}/--no-{name.removeprefix('--')}", default=None, help=text)

    nodes: dict[str, Any] = {"metavar": "N|N%"}
    return options.apply(
        option(
            "--canary",
            "1",
            "Nodes that go first; a share is rounded up.",
            **nodes,
        ),
        option("--batch", "10", "Nodes at a time after the canary, as a sliding window.", **nodes),
        option(
            "--max-fail",
            "0",
            "Nodes that may fail; if one more does, nodevet begins no more nodes.",
            **nodes,
        ),
        flag(
            "--pending-canary",
            "Start the other nodes even if the canary's change still waits for a reboot, reset "
            "or restart and is not verified.",
        ),
        option(
            "--pause",
            "0s",
            "Wait this long between the canary and the rest.",
            type=Duration(),
        ),
        option(
            "--settle",
            "5s",
            "Wait this long, then re-read each setting to confirm that it stuck.",
            type=Duration(),
        ),
        option(
            "--drain-hook",
            "",
            "Command to run before a step of risk drain or reboot, with the host's name as its "
            "last argument; exit code 0 means that the host is drained. Run without a shell.",
            metavar="CMD",
        ),
        option(
            "--drain-timeout",
            "30m",
            "Kill a drain hook that takes longer, and refuse its node.",
            type=Duration(1),
        ),
        option(
            "--holders",
            "",
            "Programs or services, separated by commas, that do not count as users of a GPU "
            "although they keep it open. nodevet knows common monitoring clients.",
            metavar="NAMES",
        ),
        flag(
            "--reboot",
            "Reboot each changed node, and verify the changes afterwards. Needs approvals for "
            "risk reboot, and --drain-hook.",
        ),
        flag("--verify-reboot", "Reboot and verify only the canary."),
        flag(
            "--power-cycle",
            "Reboot each changed node by its BMC: shut it down, switch it off and on, and verify. "
            "The inventory must name the BMC of each host. Needs the same as --reboot.",
        ),
        option(
            "--max-power-cycles",
            4,
            "Let --power-cycle switch at most N nodes off and on at the same time, and only one of "
            "each `power_group` of the inventory.",
            type=click.IntRange(1),
            metavar="N",
        ),
        option(
            "--power-off-timeout",
            "5m",
            "With --power-cycle: wait this long for a node to shut down, then switch it off.",
            type=Duration(1),
        ),
        option(
            "--reboot-timeout",
            "15m",
            "Wait this long for a node to come back from a reboot; after that its state is "
            "unknown. Servers with many GPUs take long.",
            type=Duration(1),
        ),
        option(
            "--boot-settle",
            "2m",
            "After a reboot, wait this long once systemd has started everything; then roll back "
            "each step whose check does not pass.",
            type=Duration(),
        ),
    )


settle = _option(
    "--settle",
    default=None,
    help="Wait this long, then re-read each reverted setting.  [default: the run's]",
    type=Duration(),
)
drain_hook = _option(
    "--drain-hook",
    default=None,
    metavar="CMD",
    help="Command to run before reverting a step of risk drain or reboot.  [default: the run's]",
)
drain_timeout = _option(
    "--drain-timeout",
    default=None,
    help="Kill a drain hook that takes longer, and refuse its node.  [default: the run's]",
    type=Duration(1),
)
override = _option(
    "--override",
    is_flag=True,
    help="Allow these options, or the version of nodevet, to differ from the approved ones. The "
    "report and the journal name the difference.",
)


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a rollout that were given, and all other options."""
    from nodevet.fix.settings import NAMES

    rollout_values = {
        name: value for name, value in given.items() if name in NAMES and value is not None
    }
    return rollout_values, {name: value for name, value in given.items() if name not in NAMES}
