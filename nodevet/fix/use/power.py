"""The BMCs by which a run of fixes switches its hosts off and on."""

from collections.abc import Collection, Sequence

from nodevet.base.errors import UserError
from nodevet.base.features import feature_modules
from nodevet.fix.rollout.power import Powers
from nodevet.fix.settings import Rollout
from nodevet.model import Host
from nodevet.sheet.text import nodeset


def powers_of(hosts: Sequence[Host], rollout: Rollout, todo: Collection[str]) -> Powers:
    """The power of each host with a BMC. With `power_cycle`, reads the passwords of the hosts in
    `todo` at once. Raises UserError if one of them cannot be switched."""
    powers: Powers = {}
    if any(host.bmc for host in hosts):  # without BMCs no feature is imported
        for feature in feature_modules("powering"):
            powers = feature.powers(hosts, rollout.max_power_cycles, rollout.power_off_timeout)
    if rollout.power_cycle:
        require_bmcs(hosts, todo)
        for host in todo:
            powers[host].ready()
    return powers


def require_bmcs(hosts: Sequence[Host], todo: Collection[str]) -> None:
    """Raises UserError if nodevet could not switch one of these hosts off and on."""
    if local := [host.name for host in hosts if host.name in todo and host.local]:
        raise UserError(f"{local[0]}: --power-cycle cannot switch off this machine")
    wanted = {host.name: (host.bmc.address, host.bmc.port) for host in hosts if host.bmc}
    if missing := [name for name in todo if name not in wanted]:
        raise UserError(
            f"{nodeset(missing)}: --power-cycle needs the BMC of each host, and the inventory "
            "names none for these; add `bmc` there (see docs/inventories.md)"
        )
    for name in todo:
        if others := [other for other in wanted if other != name and wanted[other] == wanted[name]]:
            raise UserError(
                f"{nodeset([name, *others])}: --power-cycle needs a BMC of its own for each host, "
                f"and the inventory names {wanted[name][0]} for all of these"
            )
