"""Whether the machine that answered is the one that was meant. Pure.

A slip in DNS, in `HostName` of ssh_config or in an inventory leads to another machine, which
then is vetted twice while the one that was meant is not vetted at all. Two signs tell:

- two names of a run meet the same /etc/machine-id and the same boot_id. A clone has the machine
  id of its original, never its boot_id; an id that was not read says nothing;
- a node's own host name (/proc/sys/kernel/hostname) is not the name that it is listed under.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import Finding, Host, HostReport, HostSummary, Verdict, fail, unknown
from nodevet.printable import brief

SAME_MACHINE = "host_identity"
HOSTNAME = "hostname"
"""What such findings stand under in the place of a check."""

PAGES = {
    SAME_MACHINE: """Each name of a run leads to a different machine.

**Why it matters.** A mistake in DNS, in `HostName` of ssh_config or in an address of the
inventory leads two names to one machine: it is vetted twice, and the other one never.

**Read from** /etc/machine-id and /proc/sys/kernel/random/boot_id of every host of the run.

**Verdicts.** Fail, for all names of a machine, if two hosts have the same machine id and the same
boot id. A clone has the machine id of its original, but never its boot id. A host of which an id
was not read is not compared.

**To fix it** compare `ssh -G NAME` and `getent hosts NAME` of the names that the finding
lists, correct what leads to the wrong machine, and list each machine once.""",
    HOSTNAME: """The node's hostname is the name that it is listed under.

**Why it matters.** Another machine may have answered: then the report is about that machine, and
a fix would change that machine.

**Read from** /proc/sys/kernel/hostname, and the inventory.

**Verdicts.** Fail if the first labels of both names differ; upper and lower case are the same. If
the inventory says `expect_hostname: NAME`, the domains are compared too, if both have one. Unknown
if the node's hostname was not read, or is `localhost`. Nothing is compared for `@local`, for files
under another root, or if the host is listed by an IP address or as `localhost`.

**To fix it** if another machine answered, correct DNS, `HostName` in ssh_config or the address in
the inventory. If it is the intended node, give the name that it has in the inventory,
`expect_hostname: ip-10-0-0-1`, or `expect_hostname: false` for a host, a group or all; for one run
use `--no-expect-hostname`.""",
}
"""What `nodevet explain` says of them."""

SHOWN = 8  # names of one machine in a sentence
NO_NAME = frozenset({"", "(none)", "localhost", "localhost.localdomain"})
"""Host names of a node that was given none: the kernel's, and what systemd and images set."""

_LOOPBACK = re.compile(r"(ip6-)?localhost\d?(\.localdomain\d?)?|ip6-loopback|.+\.localhost")
TWICE = (
    "at most one of these machines was vetted: check DNS, HostName in ssh_config and the "
    "addresses of the inventory; list each machine once"
)
SWITCH = (
    "it is the intended node: put expect_hostname: false, or the name that it has, in the "
    "inventory, or use --no-expect-hostname"
)
ELSEWHERE = (
    f"another machine may answer under this name: check DNS and HostName in ssh_config. If {SWITCH}"
)


def expected_hostname(host: Host) -> str | None:
    """The host name that the node must have; None if nothing is known of it.

    An inventory's name does not count if it is an address or a name of the loopback, or if the
    host is this machine or a tree of files.
    """
    if isinstance(host.expect_hostname, str):
        return host.expect_hostname
    if not host.expect_hostname or host.local or host.root != "/":
        return None
    return host.name if _names_a_machine(host.name) else None


def _names_a_machine(name: str) -> bool:
    if _LOOPBACK.fullmatch(name.lower().rstrip(".")):
        return False
    if all(label.isdecimal() for label in name.split(".")):  # 10.1 is an address to ssh, too
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False


def is_same_name(expected: str, actual: str, *, exact: bool) -> bool:
    """Whether two host names are of one machine, in upper or lower case.

    The first label decides, since a node's own name and the one in DNS often differ in their
    domains; with `exact` so do the domains, if both names have one.

    >>> is_same_name("gpu001.mgmt.example.com", "GPU001", exact=True)
    True
    >>> is_same_name("gpu001.dc1.example.com", "gpu001.dc2.example.com", exact=True)
    False
    """
    one, other = expected.lower().rstrip("."), actual.lower().rstrip(".")
    if exact and "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


def judge_hostname(host: Host, evidence: Evidence) -> Finding | None:
    """The finding about the node's own name; None if it is as expected."""
    expected = expected_hostname(host)
    if expected is None:
        return None
    section = evidence[HostInfo]
    actual = section.data.hostname if section.data else None
    if actual is None:
        why = section.data.why("hostname") if section.data else section.why
        return unknown(check=HOSTNAME, expected=expected, why=f"hostname: {why}")
    if actual.lower() in NO_NAME:
        why = "the node has no hostname of its own to tell whether it is the intended node"
        advice = f"set it with hostnamectl. If {SWITCH}"
        return unknown(
            check=HOSTNAME, expected=expected, actual=actual or None, why=why, advice=advice
        )
    if is_same_name(expected, actual, exact=isinstance(host.expect_hostname, str)):
        return None
    return fail(check=HOSTNAME, expected=expected, actual=actual, advice=ELSEWHERE)


def machine(report: HostReport | HostSummary) -> tuple[str, str] | None:
    """What tells a machine from every other: machine id and boot id, if both were read."""
    if not report.machine_id or not report.boot_id:
        return None
    return report.machine_id, report.boot_id


class Met:
    """The machines that a run has met so far, and under which names."""

    def __init__(self, known: Callable[[str], HostReport | None]) -> None:
        """`known`: the report of a host that was met."""
        self._known = known
        self._names: dict[tuple[str, str], list[str]] = {}

    def is_first(self, summary: HostSummary) -> bool:
        """Whether this is a machine that was not met before; then it is now. Else `meet` it."""
        key = machine(summary)
        return key is None or self._names.setdefault(key, [summary.host]) == [summary.host]

    def meet(self, report: HostReport) -> tuple[HostReport, ...]:
        """The report, and before it that of the first name of the same machine if this is the
        second: both now say so. A machine of many names costs each of them one report."""
        key = machine(report)
        if key is None:
            return (report,)
        names = self._names.setdefault(key, [])
        names.append(report.host)
        if len(names) == 1:
            return (report,)
        told = _told(report, names)
        first = self._known(names[0]) if len(names) == 2 else None
        return (_told(first, names), told) if first else (told,)

    def told_apart(self) -> Iterator[HostReport]:
        """Once all were met: the reports of machines under several names, which fail and name all
        of them."""
        for key, names in self._names.items():
            others = [*dict.fromkeys(names)]
            reports = [self._known(name) for name in others] if len(others) > 1 else []
            same = [report for report in reports if report and machine(report) == key]
            if len(same) > 1:
                finding = _twice(report.host for report in same)
                yield from (_with(report, finding) for report in same)


def same_key(keys: Iterable[tuple[str, object]]) -> tuple[tuple[str, ...], ...]:
    """The hosts that share a key, of (host, key); None is not a key."""
    found: dict[object, list[str]] = {}
    for host, key in keys:
        if key is not None:
            found.setdefault(key, []).append(host)
    return tuple(tuple(hosts) for hosts in found.values() if len(hosts) > 1)


def _by_host(groups: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {host: hosts for hosts in groups for host in hosts}


def _one_machine(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more} are one machine"


def _told(report: HostReport, names: Iterable[str]) -> HostReport:
    return _with(report, _twice(names))


def _twice(names: Iterable[str]) -> Finding:
    return fail(check=SAME_MACHINE, why=_one_machine(names), advice=TWICE)


def _with(report: HostReport, finding: Finding) -> HostReport:
    others = (each for each in report.findings if each.check != SAME_MACHINE)
    return replace(report, findings=(finding, *others))


def doubts(reports: Iterable[HostReport]) -> Mapping[str, tuple[str, str]]:
    """Hosts that must not be changed, since it is not sure that they are the machine that was
    meant: why, and what to do.

    Containers of one kernel are told apart by their machine ids; a change of that kernel is not.
    """
    listed = tuple(reports)
    kernels = same_key((report.host, report.boot_id or None) for report in listed)
    found = {host: (_one_machine(names), TWICE) for host, names in _by_host(kernels).items()}
    for report in listed:
        for finding in report.findings:
            if finding.check == HOSTNAME and finding.verdict is not Verdict.OK:
                found.setdefault(report.host, (in_words(finding), finding.advice))
    return found


def in_words(finding: Finding) -> str:
    """What `judge_hostname` found, printable."""
    shown, meant = finding.text(finding.actual), finding.text(finding.expected)
    return brief(finding.why or f"its host name is {shown}, not {meant}")
