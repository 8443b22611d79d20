"""What the fixes of kernel settings share: a file that sets them at boot, and a write now for
each setting that fails; and the modules that no fix may load."""

from collections.abc import Iterable, Mapping

from nodevet.checks.kernel_modules import kernel_name
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fixing.model import PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel

BARRED = (
    "modprobe.blacklist",
    "module_blacklist",
)  # kernel-command-line(7), the kernel's parameters


def conf(path: str, lines: Iterable[str]) -> WriteFile:
    """Write a file of settings that the system reads at boot."""
    return WriteFile(
        path=path, content="".join(f"{line}\n" for line in ("# Written by nodevet.", *lines))
    )


def rule(path: str, value: str) -> str:
    """A line of tmpfiles.d(5) that writes to a kernel file. `w-` and `w$` need a newer systemd than
    distributions in use have."""
    return f"w {path} - - - - {value}"


def actions(owner: str, lines: Iterable[str], values_now: Mapping[str, str]) -> Actions:
    """Write `lines` to the file `owner`, and `values_now` (by path) to kernel files."""
    return (
        conf(owner, lines),
        *(WriteKernel(path=path, value=values_now[path]) for path in values_now),
    )


def change(
    failures: Mapping[str, Finding], values_now: Mapping[str, str], actions: Actions
) -> PlannedChange:
    """The change of all failed settings, by name; each action writes a file of its own."""
    return PlannedChange(
        expected=values_now,
        actual={name: finding.actual for name, finding in failures.items()},
        subjects=tuple(finding.subject.label for finding in failures.values()),
        actions=actions,
        resources=tuple(action.resource for action in actions if action.resource),
        risk=Risk.LIVE,
    )


def denied_at_boot(evidence: Evidence) -> set[str]:
    """The modules that the kernel's command line blacklists; empty if it was not read."""
    text = ((data := evidence[HostInfo].data) and data.cmdline) or ""
    halves = (word.partition("=") for word in text.split())
    listed = [names for key, _, names in halves if key in BARRED]
    return {kernel_name(name) for names in listed for name in names.split(",")}
