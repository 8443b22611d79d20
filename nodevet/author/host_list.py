"""The hosts that a selection names, with their verdicts in a run. Pure."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

import msgspec

from nodevet.inventory.to_ansible import Document, ansible_document
from nodevet.model import Host, HostOutcome
from nodevet.sheet.text import nodeset

HOST_LIST_SCHEMA = 1
OURS = "nodevet_"  # the beginning of the names of Ansible groups and variables


class VerdictClass(str, Enum):
    """What a run means for whoever uses a host. Every host has exactly one."""

    OK = "ok"  # or waived
    FAILING = "failing"
    UNKNOWN = "unknown"  # not vetted, not judged, or not in the run


class HostVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a host came out of a run."""

    outcome: HostOutcome
    failing: tuple[str, ...] = ()  # the checks that fail


class ListedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host and how it is reached; what is not stated anywhere is null."""

    name: str
    groups: tuple[str, ...] = ()
    local: bool = False  # this machine
    address: str | None = None
    port: int | None = None
    user: str | None = None
    verdict: VerdictClass | msgspec.UnsetType = msgspec.UNSET  # only with --from
    outcome: HostOutcome | msgspec.UnsetType | None = msgspec.UNSET  # null: it is not in the run
    failing: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # the checks that fail


class HostList(msgspec.Struct, frozen=True, kw_only=True):
    """The selected hosts, in the order of the inventory."""

    schema: int = HOST_LIST_SCHEMA
    run: str | msgspec.UnsetType = msgspec.UNSET  # the id of the run that has the verdicts
    hosts: tuple[ListedHost, ...]


class RunVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of a run by host."""

    run: str
    hosts: Mapping[str, HostVerdict]
    doubt: str = ""  # why no host of the run is ok

    def verdict_class(self, host: str) -> VerdictClass:
        """Never ok for a host that the run does not have, or if the run is in doubt."""
        verdict = self.hosts.get(host)
        if verdict is None:
            return VerdictClass.UNKNOWN
        if verdict.outcome is HostOutcome.FAIL:
            return VerdictClass.FAILING
        good = (HostOutcome.OK, HostOutcome.WAIVED)
        is_good = verdict.outcome in good and not self.doubt
        return VerdictClass.OK if is_good else VerdictClass.UNKNOWN


def chosen_hosts(
    hosts: Sequence[Host], verdicts: RunVerdicts | None, classes: Collection[VerdictClass]
) -> tuple[Host, ...]:
    """The hosts with one of these verdicts; all hosts if no verdict is asked for."""
    if verdicts is None or not classes:
        return tuple(hosts)
    return tuple(host for host in hosts if verdicts.verdict_class(host.name) in classes)


def host_list(hosts: Sequence[Host], verdicts: RunVerdicts | None) -> HostList:
    listed = tuple(_listed_host(host, verdicts) for host in hosts)
    return HostList(run=verdicts.run if verdicts else msgspec.UNSET, hosts=listed)


def _listed_host(host: Host, verdicts: RunVerdicts | None) -> ListedHost:
    listed = ListedHost(
        name=host.name,
        groups=tuple(sorted(host.groups)),
        local=host.local,
        address=host.address,
        port=host.port,
        user=host.user,
    )
    if verdicts is None:
        return listed
    verdict = verdicts.hosts.get(host.name)
    return msgspec.structs.replace(
        listed,
        verdict=verdicts.verdict_class(host.name),
        outcome=verdict.outcome if verdict else None,
        failing=verdict.failing if verdict else (),
    )


def rows(listing: HostList) -> list[dict[str, str]]:
    """The lines of a table."""
    return [
        {"name": host.name, "groups": ",".join(host.groups)}
        | (
            {"verdict": host.verdict.value, "failing": ", ".join(host.failing or ())}
            if host.verdict
            else {}
        )
        for host in listing.hosts
    ]


def nodeset_text(hosts: Sequence[Host]) -> str:
    """The hosts as one word of the command line: `gpu[001-128],login1`."""
    names = [host.name for host in hosts]
    addresses = [name for name in names if ":" in name]
    folded = nodeset(name for name in names if ":" not in name)
    return ",".join([*([folded] if folded else []), *addresses])


def dynamic_inventory(hosts: Sequence[Host], verdicts: RunVerdicts | None) -> Document:
    """The JSON of a dynamic inventory of Ansible. With verdicts, also the groups nodevet_ok,
    nodevet_failing, nodevet_unknown and nodevet_fails_CHECK, and none of these from elsewhere."""
    if verdicts is None:
        return ansible_document(hosts)
    groups: dict[str, list[str]] = {f"{OURS}{each.value}": [] for each in VerdictClass}
    variables = {}
    for host in hosts:
        verdict, of_run = verdicts.verdict_class(host.name).value, verdicts.hosts.get(host.name)
        failing = [check for check in (of_run.failing if of_run else ()) if check.isidentifier()]
        for group in (verdict, *(f"fails_{check}" for check in failing)):
            groups.setdefault(f"{OURS}{group}", []).append(host.name)
        variables[host.name] = {f"{OURS}verdict": verdict, f"{OURS}failing": failing}
    return ansible_document([_without_verdicts(host) for host in hosts], groups, variables)


def _without_verdicts(host: Host) -> Host:
    groups = frozenset(group for group in host.groups if not group.startswith(OURS))
    return msgspec.structs.replace(host, groups=groups)
