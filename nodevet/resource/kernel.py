"""A file of sysfs or of /proc/sys: a setting of the running kernel."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from nodevet.base.bounds import FileText
from nodevet.base.printable import marked, plain
from nodevet.resource.core import (
    Action,
    ActionError,
    Kind,
    Resource,
    RestoreError,
    State,
    path_problem,
    require_printable,
)

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

ROOTS = ("/sys/", "/proc/sys/")
COMPACT = "/proc/sys/vm/compact_memory"
DROP = "/proc/sys/vm/drop_caches"
TRIGGERS = {COMPACT: 900, DROP: 900}
"""Files that do something once and have no state, and how many seconds a write may take."""
VALUE = 4096  # bytes; one write(2) of dd, and longer than any value of the kernel

_NUMBERS = re.compile(r"(\d+)")


class WriteKernel(Action, frozen=True, kw_only=True, tag="kernel"):
    """One write to a file of /sys or /proc/sys."""

    path: str
    value: str

    @property
    def resource(self) -> Resource:
        return Resource(kind="kernel", name=self.path)

    @property
    def label(self) -> str:
        return f"write {self.value} to {self.path}"

    @property
    def is_one_way(self) -> bool:
        return self.path in TRIGGERS

    @property
    def longest(self) -> int | None:
        return TRIGGERS.get(self.path)

    def command(self, *, seconds: float) -> "StringCommand":
        """One write(2), as the kernel needs it; dd reports the errno, and creates no file."""
        from pyinfra.api.command import QuoteString, StringCommand

        parts = PurePosixPath(require_printable(self.path, "path"))
        if parts.parts[:2] not in (("/", "sys"), ("/", "proc")) or ".." in parts.parts:
            raise ActionError(f"{self.path!r} is not a file of /sys or /proc")
        if not 0 < len(require_printable(self.value, "value").encode()) < VALUE:
            raise ActionError(f"{self.path}: a value is between 1 and {VALUE} bytes long")
        target = StringCommand("of=", QuoteString(str(parts)), _separator="")
        dd = StringCommand(
            "LC_ALL=C dd", target, f"bs={VALUE} count=1 conv=notrunc,nocreat status=none"
        )
        return StringCommand("printf %s", QuoteString(self.value), "|", dd)


class KernelKind(Kind):
    form = FileText
    actions = (WriteKernel,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        if problem := path_problem(name):
            return problem
        return "" if name.startswith(ROOTS) else f"is not below {' or '.join(ROOTS)}"

    def names(self, resource: Resource) -> tuple[str, ...]:
        """The file and its folder: a governor also sets the energy preference there."""
        return (resource.name, posixpath.dirname(resource.name))

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        groups: dict[tuple[str, str], list[str]] = {}
        for action in actions:
            if isinstance(action, WriteKernel):
                old = _old_value(before.get(action.resource))
                groups.setdefault((old, marked(action.value)), []).append(action.path)
        for (old, new), paths in groups.items():
            for path in fold_paths(paths):
                yield f"-{path}: {old}"
                yield f"+{path}: {new}"

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, WriteKernel) or action.is_one_way:
            return None
        try:
            return state.exists and value_of(state) == action.value.strip()
        except RestoreError:
            return False

    def couples(self, resource: Resource, other: Resource) -> bool:
        """Files of one part of the kernel: a governor sets the energy preference, ip_forward other
        network settings, the number of huge pages the numbers of the NUMA nodes."""
        if other.kind != resource.kind:
            return False
        pages = all("hugepages" in file.name for file in (resource, other))
        return pages or part_of(resource.name) == part_of(other.name)

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:2] == ("systemd-tmpfiles", "--create") and len(words) > 2

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        if not before.exists:
            raise RestoreError(f"{before.resource.label}: there is no such file")
        if before.resource.name in TRIGGERS:
            return ()
        if not isinstance(before.value, str):
            raise RestoreError(f"{before.resource.label}: its value was not read")
        return [WriteKernel(path=before.resource.name, value=value_of(before))]


def part_of(path: str) -> tuple[str, ...]:
    """The part of the kernel that a file belongs to.

    >>> part_of("/proc/sys/vm/swappiness"), part_of("/sys/devices/system/cpu/smt/control")
    (('proc', 'sys', 'vm'), ('sys', 'devices', 'system', 'cpu'))
    """
    parts = tuple(path.split("/")[1:-1])
    return parts[: 4 if parts[:3] == ("sys", "devices", "system") else 3]


def value_of(state: State) -> str:
    """The value to write to a kernel file: its text, or the word in brackets if it has several.

    Raises RestoreError.
    """
    text = str(state.value).strip().replace("\t", " ")  # as sysctls of several numbers have them
    words = [word[1:-1] for word in text.split() if word[0] == "[" and word[-1] == "]"]
    if len(words) > 1:
        raise RestoreError(f"{state.resource.label}: {text!r} marks several words as chosen")
    if words:
        return words[0]
    if not text or "\n" in text:
        raise RestoreError(f"{state.resource.label}: {text!r} cannot be written back")
    return text


def _old_value(state: State | None) -> str:
    if state is None:
        return "(not read)"
    try:
        return plain(value_of(state)) if state.exists else "(absent)"
    except RestoreError:
        return plain(str(state.value))


def fold_paths(paths: Sequence[str]) -> Iterator[str]:
    """Paths that differ in one number as one path: /sys/.../policy[0-223]/scaling_governor."""
    from ClusterShell.RangeSet import RangeSet

    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for path in dict.fromkeys(paths):
        pieces = _NUMBERS.split(path)
        groups.setdefault(tuple(pieces[::2]), []).append(pieces)
    for members in groups.values():
        differ = [place for place in range(len(members[0])) if len({m[place] for m in members}) > 1]
        if len(members) == 1 or len(differ) != 1:
            yield from (plain("".join(pieces)) for pieces in members)
            continue
        (place,) = differ
        numbers = RangeSet.fromlist([pieces[place] for pieces in members])
        head, tail = "".join(members[0][:place]), "".join(members[0][place + 1 :])
        yield plain(f"{head}[{numbers}]{tail}")


KIND = KernelKind()
