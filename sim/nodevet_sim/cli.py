"""`nodevet sim`: simulated GPU nodes."""

import os
from typing import Any

import click

from nodevet.cli import USAGE, UserError
from nodevet.cli.help import Command

fleet_option = click.option("--fleet", metavar="NAME", help="The fleet, if several are up.")


@click.group("sim")
def command() -> None:
    """Boot and control simulated GPU nodes.

    Linux, systemd and SSH are real; the hardware is simulated.

    \b
    nodevet sim up demo                  boot a shipped scenario, or a YAML file
    nodevet sim inventory > nodes.yaml   and then: nodevet check -i nodes.yaml
    nodevet sim set gpu003 governor=powersave
    nodevet sim down --all
    """


def _root() -> None:
    """Only root owns fleets: their keys, locks and control sockets. Raises UserError."""
    if os.geteuid() != 0:
        raise UserError("simulated nodes need root (namespaces, mounts); run this with sudo")


@command.command(
    cls=Command,
    examples=(
        ("Eight nodes, six with a fault", "nodevet sim up demo"),
        ("Nodes of your own, booting in the background", "nodevet sim up incident.yaml --no-wait"),
    ),
)
@click.argument("scenario")
@click.option("--name", metavar="NAME", help="Name of the fleet.  [default: the scenario's]")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until every node has booted.  [default: wait]"
)
def up(scenario: str, name: str | None, wait: bool) -> int:
    """Boot the nodes of SCENARIO.

    SCENARIO is a YAML file, or the name of a shipped one (see `nodevet sim scenarios`).

    \b
    Exit codes:
      0  every node is up
      1  a node is not
      2  the scenario is not valid, or this machine cannot simulate nodes
    """
    from nodevet_sim.nspawn import control, interrupts, needs, place
    from nodevet_sim.scenario import ScenarioError, find, load

    where = None
    try:
        path = find(scenario)
        loaded = load(path)
        count = len(loaded.nodes)
        with interrupts.hold() as act:  # until the user knows of the fleet
            where = control.up(loaded.name if name is None else name, path, nodes=count, act=act)
            nodes = f"{count} node{'s' if count != 1 else ''}"
            click.echo(f"fleet {where.fleet}: {nodes} booting", err=True)
        return _await_nodes(where) if wait else 0
    except (ScenarioError, needs.NeedError, place.FleetFolderError, control.ControlError) as error:
        raise UserError(str(error)) from error
    except KeyboardInterrupt:
        if where is not None:
            click.echo(f"the fleet stays up; end it with: nodevet sim down {where.fleet}", err=True)
        raise


def _await_nodes(where: Any) -> int:
    """Wait until every node has booted, and show them; the exit code."""
    nodes = _ask(where, {"do": "wait"})["nodes"]
    _table(nodes)
    failed = [node for node in nodes if node["state"] != "running"]
    if not failed:
        click.echo(
            f"\ninventory {where.inventory}; vet it with: nodevet check -i {where.inventory}"
        )
    return 1 if failed else 0


@command.command(
    cls=Command,
    examples=(
        ("The fleet that is up", "nodevet sim down"),
        ("All of them, and what is left of those that died", "nodevet sim down --all"),
    ),
)
@click.argument("fleets", nargs=-1)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="End every fleet, and remove what is left of fleets that died.",
)
def down(fleets: tuple[str, ...], every: bool) -> int:
    """End FLEETS and remove everything of them. Without a name: the only fleet that is up."""
    from nodevet_sim.nspawn import control, place

    _root()
    known = place.fleets()
    chosen = known if every else fleets or (_fleet(None),)
    for name in chosen:
        if name not in known:
            raise UserError(
                f"fleet {name!r} is not up; fleets that are up: {', '.join(known) or 'none'}"
            )
    failed = 0
    for name in chosen:
        try:
            control.down(place.FleetFolder(name))
        except (control.ControlError, OSError) as error:
            click.echo(f"nodevet: {error}", err=True)
            failed += 1
        else:
            click.echo(f"fleet {name} is down", err=True)
    return USAGE if failed else 0


@command.command("list", cls=Command, examples=(("All fleets", "nodevet sim list"),))
def list_command() -> int:
    """List every node of every fleet: address, state, boots, uptime."""
    from nodevet_sim.nspawn import place

    _root()
    fleets = place.fleets()
    for name in fleets:
        where = place.FleetFolder(name)
        if not where.lives():
            click.echo(
                f"fleet {name} died; remove what is left of it with: nodevet sim down {name}"
            )
        elif not where.control.exists():
            click.echo(f"fleet {name} is starting")
        else:
            click.echo(f"fleet {name}")
            _table(_nodes(where))
    if not fleets:
        click.echo("no fleet is up; start one with: nodevet sim up demo", err=True)
    return 0


@command.command(
    "ssh",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        ("A shell", "nodevet sim ssh gpu003"),
        ("A command", "nodevet sim ssh gpu003 nvidia-smi -q"),
    ),
)
@click.argument("node")
@click.argument("remote", nargs=-1, type=click.UNPROCESSED)
@fleet_option
def ssh(node: str, remote: tuple[str, ...], fleet: str | None) -> None:
    """Open a root shell on NODE, or run a command there.

    The exit code is ssh's. Options go before NODE; everything after NODE is the command.
    """
    from nodevet_sim.nspawn.place import QUICK_KEX

    where = _fleet_of(node, fleet)
    status = _node(where, node)
    if status["state"] in ("off", "failed"):
        raise UserError(f"{node} is {status['state']}; start it with: nodevet sim reboot {node}")
    os.execvp(  # noqa: S606
        "ssh",
        [
            *("ssh", "-F", "none", "-l", "root", "-i", str(where.key)),
            *("-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={where.known_hosts}"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
            *("-o", f"KexAlgorithms={QUICK_KEX}"),
            *("--", status["address"], *(remote[1:] if remote[:1] == ("--",) else remote)),
        ],
    )


@command.command(
    cls=Command,
    examples=(("Two nodes, one after the other", "nodevet sim reboot gpu001 gpu002"),),
)
@click.argument("nodes", nargs=-1, required=True)
@fleet_option
def reboot(nodes: tuple[str, ...], fleet: str | None) -> int:
    """Reboot NODES one after another.

    Those that are off are started. Waits until each is up."""
    for node in nodes:
        where = _fleet_of(node, fleet)
        status = _ask(where, {"do": "reboot", "node": node})
        click.echo(f"{node} is up, boot {status['boots']}")
    return 0


@command.command(
    "set",
    cls=Command,
    examples=(
        ("A fault by name", "nodevet sim set gpu001 fault=pcie-width"),
        ("What NVML answers", "nodevet sim set gpu001 gpu.3.lost=1"),
        ("What the kernel says", "nodevet sim set gpu001 governor=powersave"),
        (
            "A file of /sys or /proc",
            "nodevet sim set gpu001 /sys/class/dmi/id/sys_vendor=Supermicro",
        ),
        (
            "A line of the kernel log",
            "nodevet sim set gpu001 kernel_log='NVRM: Xid (PCI:0000:19:00): 79'",
        ),
    ),
)
@click.argument("node")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@fleet_option
def set_command(node: str, values: tuple[str, ...], fleet: str | None) -> int:
    """Change NODE while it runs. KEY is a key of a node in a scenario."""
    pairs = []
    for pair in values:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{pair!r} is not KEY=VALUE")
        pairs.append((key, value))
    _ask(_fleet_of(node, fleet), {"do": "set", "node": node, "values": pairs})
    return 0


@command.command(
    cls=Command,
    examples=(("What a fix has left on the disk", "nodevet sim diff gpu004"),),
)
@click.argument("node")
@fleet_option
def diff(node: str, fleet: str | None) -> int:
    """Show what has changed on NODE's disk since its first boot.

    `-` is before, `+` is now: kind, mode, owner:group, size in bytes, and the sha256 of a file or
    the target of a link. Leaves out what systemd itself writes: journal, timers, ...

    \b
    Exit codes:
      0  nothing has changed
      1  something has
    """
    from nodevet_sim.nspawn.diff import DiskEntry

    changes = _ask(_fleet_of(node, fleet), {"do": "diff", "node": node})["changes"]
    for path, before, after in changes:
        for sign, row in (("-", before), ("+", after)):
            if row is not None:
                click.echo(f"{sign} {ascii(path)[1:-1]}  {DiskEntry(*row)}")
    return 1 if changes else 0


@command.command(
    cls=Command,
    examples=(
        (
            "Vet the nodes from another folder",
            "nodevet sim inventory > nodes.yaml\nnodevet check -i nodes.yaml",
        ),
    ),
)
@click.argument("fleet", required=False)
def inventory(fleet: str | None) -> int:
    """Print an inventory for `-i`, with the host keys of the nodes."""
    where = _place(_fleet(fleet))
    if not where.inventory.exists():
        raise UserError(f"fleet {where.fleet} is still starting; try again in a moment")
    click.echo(where.inventory.read_text(encoding="utf-8"), nl=False)
    return 0


@command.command(cls=Command, examples=(("What there is", "nodevet sim scenarios"),))
def scenarios() -> int:
    """List the shipped scenarios and the faults."""
    from nodevet_sim.faults import FAULTS, summary
    from nodevet_sim.scenario import shipped_scenarios

    for name, title in shipped_scenarios():
        click.echo(f"{name:20} {title}")
    click.echo()
    for name in FAULTS:
        click.echo(f"{name:20} {summary(name)}")
    return 0


def _fleet(name: str | None) -> str:
    """The name that is given, or the only fleet's. Raises UserError."""
    from nodevet_sim.nspawn import place

    _root()
    known = place.fleets()
    if name is not None:
        return name
    if len(known) != 1:
        raise UserError(
            f"several fleets are up; name one of: {', '.join(known)}"
            if known
            else "no fleet is up; start one with: nodevet sim up demo"
        )
    return known[0]


def _place(fleet: str) -> Any:
    from nodevet_sim.nspawn import place

    _root()
    known = place.fleets()
    if fleet not in known:
        raise UserError(
            f"fleet {fleet!r} is not up; fleets that are up: {', '.join(known) or 'none'}"
        )
    where = place.FleetFolder(fleet)
    if not where.lives():
        raise UserError(
            f"fleet {fleet} died; remove what is left of it with: nodevet sim down {fleet}"
        )
    return where


def _fleet_of(node: str, fleet: str | None) -> Any:
    """The fleet that has this node. Raises UserError if none or several have it."""
    from nodevet_sim.nspawn import place

    if fleet is not None:
        return _place(fleet)
    _root()
    living = [where for where in map(place.FleetFolder, place.fleets()) if where.control.exists()]
    owners = [where for where in living if any(status["name"] == node for status in _nodes(where))]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise UserError(f"several fleets have {node}; give one, such as --fleet {owners[0].fleet}")
    raise UserError(f"node {node!r} is in no fleet that answers; list them with: nodevet sim list")


def _nodes(where: Any) -> list[dict[str, Any]]:
    """The nodes of one fleet of several; none, and a message, if it does not answer."""
    try:
        return list(_ask(where, {"do": "list"})["nodes"])
    except UserError as error:
        click.echo(f"nodevet: {error}", err=True)
        return []


def _node(where: Any, name: str) -> dict[str, Any]:
    for node in _ask(where, {"do": "list"})["nodes"]:
        if node["name"] == name:
            return dict(node)
    raise UserError(
        f"fleet {where.fleet} has no node {name!r}; list its nodes with: nodevet sim list"
    )


def _ask(where: Any, request: dict[str, Any]) -> dict[str, Any]:
    from nodevet_sim.nspawn import control

    try:
        return control.ask(where, request)
    except control.ControlError as error:
        raise UserError(str(error)) from error


def _table(nodes: list[dict[str, Any]]) -> None:
    width = max((len(node["name"]) for node in nodes), default=0)
    for node in nodes:
        uptime = "" if node["uptime_s"] is None else f"up {node['uptime_s']:.0f} s"
        row = f"  {node['name']:{width}}  {node['address']:15}  {node['state']:8}"
        click.echo(f"{row}  boot {node['boots']}  {uptime or node['why']}".rstrip())
