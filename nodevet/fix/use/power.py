"""The BMCs by which a run of fixes switches its hosts off and on."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.base.features import feature_modules
from nodevet.base.printable import brief
from nodevet.checking.bmc_identity import MachineIds, without_shared
from nodevet.fix.model import Plan
from nodevet.fix.rollout.power import NodePower, Powers
from nodevet.fix.settings import Rollout
from nodevet.model import Host
from nodevet.sheet.text import nodeset

READERS = 32  # BMCs at the same time
MOST_TOLD = 5  # hosts in an error
UNPROVEN = "not proven, as the inventory allows"
NOT_COMPARED = "not compared yet"


def powers_of(hosts: Sequence[Host], rollout: Rollout, todo: Collection[str]) -> Powers:
    """The power of each host with a BMC. With `power_cycle`, reads the passwords of the hosts in
    `todo` at once. Raises UserError if one of them cannot be switched."""
    powers: Powers = {}
    if any(host.bmc for host in hosts):  # without BMCs no feature is imported
        for feature in feature_modules("powering"):
            times = rollout.power_off_timeout, rollout.reboot_timeout
            powers = feature.powers(hosts, rollout.max_power_cycles, *times)
    if rollout.power_cycle:
        require_bmcs(hosts, todo)
        for host in todo:
            powers[host].ready()
    return powers


def with_identities(plan: Plan, hosts: Sequence[Host]) -> Plan:
    """The plan, which says of each host how its BMC is proven to be the host's, or why it is not.
    Ids that two of its hosts report prove nothing, so the plan leaves them out. Raises UserError if
    nodevet may not switch one of the hosts by its BMC."""
    todo = sorted({step.host for step in plan.steps})
    require_bmcs(hosts, todo)
    if not todo:
        return plan
    own = without_shared({host: node.ids for host, node in plan.nodes.items()})
    powers = powers_of([host for host in hosts if host.name in todo], Rollout(), ())
    with ThreadPoolExecutor(min(READERS, len(todo))) as pool:
        texts = pool.map(lambda host: _identity_text(powers[host], own[host]), todo)
        texts_by_host = dict(zip(todo, texts, strict=True))
    if problems := [f"{host}: {why}" for host, (_, why) in texts_by_host.items() if why]:
        rest = [f"and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else []
        raise UserError("\n".join([*problems[:MOST_TOLD], *rest]))
    nodes = {
        host: replace(
            node, ids=own[host], bmc=texts_by_host[host][0] if host in texts_by_host else node.bmc
        )
        for host, node in plan.nodes.items()
    }
    return replace(plan, nodes=nodes)


def _identity_text(power: NodePower, node: MachineIds) -> tuple[str, str]:
    """How the BMC is proven to be the node's, or why it is not; and why no plan may switch the node
    by it, else empty."""
    try:
        identity = power.identity(node)
    except UserError as error:
        return brief(f"{NOT_COMPARED}: {error}", 300), ""
    return (identity.text if identity.is_own else f"{UNPROVEN}: {identity.text}"), power.refusal(
        identity
    )


def require_bmcs(hosts: Sequence[Host], todo: Collection[str]) -> None:
    """Raises UserError if nodevet could not switch one of these hosts off and on."""
    if local := [host.name for host in hosts if host.name in todo and host.local]:
        raise UserError(f"{local[0]}: --power-cycle cannot switch off this machine")
    addresses = {host.name: (host.bmc.address, host.bmc.port) for host in hosts if host.bmc}
    if missing := [name for name in todo if name not in addresses]:
        raise UserError(
            f"{nodeset(missing)}: --power-cycle needs the BMC of each host, and the inventory "
            "names none for these; add `bmc` there (see docs/inventories.md)"
        )
    for name in todo:
        if others := [
            other for other in addresses if other != name and addresses[other] == addresses[name]
        ]:
            raise UserError(
                f"{nodeset([name, *others])}: --power-cycle needs a BMC of its own for each host, "
                f"and the inventory names {addresses[name][0]} for all of these"
            )
