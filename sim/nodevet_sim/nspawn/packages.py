"""Which of this machine's packages a node has, as dpkg lists them. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

WANTED = (  # what is not installed here, a node does not have either
    "apt",
    "bsdutils",
    "dash",
    "dbus",
    "ethtool",
    "gawk",
    "iproute2",
    "libc-bin",
    "login",
    "mawk",
    "mount",
    "openssh-server",
    "passwd",
    "pciutils",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
    "udev",
    "util-linux",
    "util-linux-extra",
)
"""A node has these, every essential package, and what they depend on."""
ABSENT = ("not-installed", "config-files")
NAME = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


@dataclass(frozen=True)
class PackageOfNode:
    """A package that is installed on this machine."""

    name: str
    fields: Mapping[str, str]

    @cached_property
    def depends(self) -> tuple[str, ...]:
        """Every name that it depends on, with all alternatives."""
        both = f"{self.fields.get('Depends', '')},{self.fields.get('Pre-Depends', '')}"
        return names(both)

    @cached_property
    def conffiles(self) -> Mapping[str, str]:
        """Path -> md5 of each configuration file, as the package has it."""
        rows = (row.split() for row in self.fields.get("Conffiles", "").splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    @property
    def lists(self) -> tuple[str, str]:
        """The names that its list of files may have in /var/lib/dpkg/info, without `.list`."""
        return self.name, f"{self.name}:{self.fields.get('Architecture', '')}"

    @property
    def paragraph(self) -> str:
        """Its status in the node's dpkg: installed, even while apt changes it here."""
        fields = {**self.fields, "Status": "install ok installed"}
        return "".join(f"{key}:{_folded(value)}\n" for key, value in fields.items())


def _folded(value: str) -> str:
    first, *rest = value.split("\n")
    return "\n".join([f" {first}" if first else "", *(f" {row}" for row in rest)])


def names(text: str) -> tuple[str, ...]:
    """The packages of a field such as Depends.

    >>> names("libc6 (>= 2.36), mawk | awk:any, ")
    ('libc6', 'mawk', 'awk')
    """
    matches = (NAME.match(word) for word in re.split(r"[,|]", text))
    return tuple(match[1] for match in matches if match)


def installed(status: str) -> tuple[PackageOfNode, ...]:
    """Every package with files on this machine, from the text of /var/lib/dpkg/status."""
    return tuple(_installed(status))


def _installed(status: str) -> Iterator[PackageOfNode]:
    for paragraph in status.split("\n\n"):
        fields = _fields(paragraph)
        if fields.get("Status", "not-installed").split()[-1] not in ABSENT and "Package" in fields:
            yield PackageOfNode(fields["Package"], fields)


def _fields(paragraph: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    last = ""
    for row in paragraph.splitlines():
        if row[:1] in " \t":
            fields[last] = f"{fields.get(last, '')}\n{row[1:]}"
        else:
            last, _, value = row.partition(":")
            fields[last] = value.strip()
    return fields


def of_a_node(packages: Iterable[PackageOfNode]) -> tuple[PackageOfNode, ...]:
    """Those that a node has, by name."""
    by_name, providers = defaultdict(list), defaultdict(list)
    for package in packages:
        by_name[package.name].append(package)
        for name in names(package.fields.get("Provides", "")):
            providers[name].append(package.name)
    essential = (
        name
        for name, each in by_name.items()
        if any(one.fields.get("Essential") == "yes" for one in each)
    )
    found: dict[str, list[PackageOfNode]] = {}
    waiting = [*WANTED, *essential]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if name not in by_name:
            waiting += [each for each in providers.pop(name, ()) if each not in found]
            continue
        found[name] = by_name[name]
        for package in by_name[name]:
            waiting += package.depends
    return tuple(package for name in sorted(found) for package in found[name])
