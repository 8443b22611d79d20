"""The hosts that a run is about."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, structs

from nodevet.base.errors import UserError
from nodevet.model import Host


class Targets(Struct, frozen=True, kw_only=True):
    """Hosts as they are named: nodesets, inventories, and a limit on both."""

    names: tuple[str, ...] = ()
    inventories: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()
    expect_hostname: bool = True

    def __bool__(self) -> bool:
        """Whether any host is named; a limit names none."""
        return bool(self.names or self.inventories)

    @property
    def narrowed(self) -> bool:
        """Whether a run may leave out hosts of the inventory, so that missing hosts are not
        gone."""
        return bool(self.names or self.limit)

    def hosts(self) -> tuple[Host, ...]:
        """The hosts. Raises UserError if none are named, and what inventories raise."""
        from nodevet.inventory import read

        if not self.names and not self.inventories:
            raise UserError(
                "no hosts: name them (gpu[001-128], @local), or give an inventory with -i"
            )
        for name in self.names:  # a file that is meant for an option
            if name.endswith((".yaml", ".yml", ".json", ".jsonl")):
                _refuse_file(name)
        hosts = read(self.names, inventories=self.inventories, limit=self.limit)
        return hosts if self.expect_hostname else any_hostname(hosts)

    def hosts_within_limit(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """The hosts within the limit. Raises InventoryError."""
        from nodevet.inventory import limit_hosts

        unique = tuple(hosts)
        return limit_hosts(unique, self.limit) if self.limit else unique

    def strangers(self, names: Iterable[str], hosts: Iterable[Host]) -> list[str]:
        """The names that are neither among these hosts nor anywhere in the inventories."""
        unknown = sorted(set(names) - {host.name for host in hosts})
        if unknown and self.inventories:
            known = {host.name for host in Targets(inventories=self.inventories).hosts()}
            unknown = [name for name in unknown if name not in known]
        return unknown


def _refuse_file(name: str) -> None:
    """Raises UserError for a file of nodevet's in place of a host."""
    from nodevet.document.kinds import wrong_kind_text

    if why := wrong_kind_text(Path(name)):
        raise UserError(f"{name}: {why}")


def any_hostname(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """The hosts, whatever host names the nodes themselves have."""
    return tuple(structs.replace(host, expect_hostname=False) for host in hosts)
