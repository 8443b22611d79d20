"""Configuration managers that work on a node are named, with how often they run if that is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.managers.agents import agents

UNITS = "/usr/lib/systemd/system/"
WANTS = "/etc/systemd/system/multi-user.target.wants/"
PULL = "[Service]\nExecStart=/bin/sh -c 'ansible-pull -U git://x'\n"
Tree = Callable[[dict[str, str]], Path]


def started(name: str, text: str = "") -> dict[str, str]:
    """A service that starts at boot."""
    unit = f"{UNITS}{name}.service"
    own = f"[Service]\nExecStart=/usr/bin/{name}\n"
    return {unit: text or own, f"{WANTS}{name}.service": f"-> {unit}"}


def process(name: str, words: str, uid: int = 0) -> dict[str, str]:
    status = f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    return {"/proc/7/status": status, "/proc/7/cmdline": words.replace(" ", "\0")}


CONF = "/etc/puppetlabs/puppet/puppet.conf"
RUNNING = [
    ({**started("puppet"), CONF: "[agent]\nruninterval = 30m\n"}, "puppet", 1800),
    (started("pe-puppet"), "puppet", None),
    ({**started("puppet"), CONF: "runinterval = \x1b]0;x\n"}, "puppet", None),
    (process("ruby", "puppet agent: applying"), "puppet", None),
    ({"/etc/cron.d/puppet": "*/20 * * * * root puppet agent -t\n"}, "puppet", 1200),
    (started("salt-minion"), "salt", None),
    ({"/etc/cron.hourly/salt": "#!/bin/sh\nsalt-call state.apply\n"}, "salt", 3600),
    (
        {
            UNITS + "pull.service": PULL,
            UNITS + "pull.timer": "[Timer]\nOnUnitActiveSec=1h 30min\n",
            "/etc/systemd/system/timers.target.wants/pull.timer": f"-> {UNITS}pull.timer",
        },
        "ansible-pull",
        5400,
    ),
    ({"/var/spool/cron/crontabs/root": "7,37 * * * * ansible-pull -U x\n"}, "ansible-pull", 1800),
    ({**started("chef-client"), "/etc/chef/client.rb": "interval 900\n"}, "chef", 900),
    (started("cinc", "[Service]\nExecStart=cinc-client -i 600 -s 60\n"), "chef", 600),
    (started("cf-execd"), "cfengine", None),
    ({"/etc/cron.d/rudder-agent": "0,30 * * * * root rudder agent run\n"}, "rudder", 1800),
    (started("cmd"), "base command manager", None),
    (started("wwclient"), "warewulf", None),
    (started("google-startup-scripts"), "start-up script of google cloud", None),
]
NOT_RUNNING: list[dict[str, str]] = [
    {},
    {UNITS + "puppet.service": "[Service]\nExecStart=/usr/bin/puppet agent\n"},
    {CONF: "runinterval = 30m\n"},
    process("puppet", "puppet agent", uid=1000),
    {"/etc/cron.d/x": "# */20 * * * * root puppet agent -t\n"},
    {"/etc/cron.d/x": "@daily root echo puppets agents\n"},
]


def found(root: Path) -> Any:
    return agents({"root": str(root)})


@pytest.mark.parametrize(("files", "name", "every_s"), RUNNING)
def test_e22_a_running_agent_is_named(
    tree: Tree, files: dict[str, str], name: str, every_s: int | None
) -> None:
    assert found(tree(files)) == [{"name": name, "every_s": every_s}]


@pytest.mark.parametrize("files", NOT_RUNNING)
def test_e22_an_agent_that_does_not_run_is_not_named(tree: Tree, files: dict[str, str]) -> None:
    assert found(tree(files)) == []


def test_e22_a_node_reports_its_agents_on_request(ask: Callable[..., Any], tree: Tree) -> None:
    assert ask("agents", root=tree(started("puppet"))) == [{"name": "puppet", "every_s": None}]
