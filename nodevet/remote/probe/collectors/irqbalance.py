"""How irqbalance starts: its unit, the drop-ins of that unit, and the files with its options."""

import re

from nodevet.remote.probe.files import (
    LINE,
    Absent,
    Reading,
    exists,
    line,
    names_or_empty,
    read,
    text_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

ASKED = True
UNIT = "irqbalance.service"
PACKAGE = ("/usr/lib/systemd/system/", "/lib/systemd/system/")
SITE = ("/etc/systemd/system/", "/run/systemd/system/")
OPTIONS = (
    "/usr/lib/irqbalance/defaults.env",
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
)
ENFORCE = "/sys/fs/selinux/enforce"
EXEC = re.compile(r"\s*ExecStart\s*=\s*(\S.*)")
DROP_IN = re.compile(r"\s*(?:ExecStart|EnvironmentFile)\s*=\s*\S")
POLICY = re.compile(
    r"[^#;].*(?:--policyscript|--ban|[\s\"'=]-[lim]\b|BANNED_CPU(?:S|LIST)\s*=\s*[\"']?[^\s\"'])"
)
OWN = re.compile(r"(?:[0-9]+-)?nodevet-")
MOST = 64  # places


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    units = [folder + UNIT for folder in PACKAGE if exists(root, folder + UNIT)]
    if not units:
        raise Absent("irqbalance is not installed")
    section = Reading()
    section.take("exec_start", exec_start, root, units[0])
    section.take("others", lambda: list(other_places(root))[:MOST])
    section.take("selinux_enforcing", enforcing, root)
    return section


def exec_start(root: str, path: str) -> str:
    """Raises OSError, ValueError."""
    rows = [EXEC.match(row) for row in text_lines(read(root, path))]
    texts = [match.group(1).strip() for match in rows if match]
    return texts[0][:LINE] if len(texts) == 1 else ""


def other_places(root: str) -> "Iterator[str]":
    """The places of other commands and policy scripts, and of the CPUs and interrupts that the site
    keeps away from irqbalance. Raises OSError, ValueError."""
    folders = [folder + UNIT + ".d" for folder in SITE + PACKAGE]
    drop_ins = [
        "{}/{}".format(folder, name)
        for folder in folders
        for name in names_or_empty(root, folder)
        if name.endswith(".conf") and not OWN.match(name)
    ]
    for path in [folder + UNIT for folder in SITE]:
        yield from matching(root, path, EXEC)
    for path in drop_ins:
        yield from matching(root, path, DROP_IN)
    for path in list(OPTIONS) + drop_ins:
        yield from matching(root, path, POLICY)


def matching(root: str, path: str, pattern: "re.Pattern[str]") -> "Iterator[str]":
    rows = text_lines(read(root, path)) if exists(root, path) else []
    for number, row in enumerate(rows, 1):
        if pattern.match(row):
            yield "{}:{}".format(path, number)


def enforcing(root: str) -> bool:
    """Raises OSError, ValueError."""
    return exists(root, ENFORCE) and line(root, ENFORCE) == "1"
