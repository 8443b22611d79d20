"""What the fixes of kernel settings have in common: a file that sets them at boot, and a write
of each that fails now."""

from collections.abc import Iterable, Mapping

from nodevet.fixing.model import PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel


def conf(path: str, lines: Iterable[str]) -> WriteFile:
    """A file of settings that is read at boot."""
    return WriteFile(
        path=path, content="".join(f"{line}\n" for line in ("# Written by nodevet.", *lines))
    )


def rule(path: str, value: str) -> str:
    """The line of tmpfiles.d(5) that writes to a kernel file. `w-` and `w$` are younger than the
    systemd of distributions in use."""
    return f"w {path} - - - - {value}"


def actions(owner: str, lines: Iterable[str], now: Mapping[str, str]) -> Actions:
    """`lines` of the file `owner`, which is read at boot; `now`: values by path."""
    return (conf(owner, lines), *(WriteKernel(path=path, value=now[path]) for path in now))


def change(failed: Mapping[str, Finding], now: Mapping[str, str], told: Actions) -> PlannedChange:
    """The change of all that fails, by name; each of its actions is on a file of its own."""
    return PlannedChange(
        expected=now,
        actual={name: finding.actual for name, finding in failed.items()},
        subjects=tuple(finding.subject.label for finding in failed.values()),
        actions=told,
        resources=tuple(each.resource for each in told if each.resource),
        risk=Risk.LIVE,
    )
