"""What the fixes of kernel settings have in common: a file that sets them at boot, and a write
of each that is wrong now."""

from collections.abc import Iterable, Mapping

from nodevet.fixing.model import PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel


def actions(owner: str, lines: Iterable[str], now: Mapping[str, str]) -> Actions:
    """`lines` of the file `owner`, which is read at boot; `now`: values by path."""
    content = "".join(f"{line}\n" for line in ("# Written by nodevet.", *lines))
    writes = (WriteKernel(path=path, value=value) for path, value in now.items())
    return (WriteFile(path=owner, content=content), *writes)


def change(wrong: Mapping[str, Finding], now: Mapping[str, str], told: Actions) -> PlannedChange:
    """The change of all that is wrong, by name; each of its actions is on a file of its own."""
    return PlannedChange(
        expected=now,
        actual={name: finding.actual for name, finding in wrong.items()},
        subjects=tuple(finding.subject.label for finding in wrong.values()),
        actions=told,
        resources=tuple(
            Resource(kind="file" if isinstance(each, WriteFile) else "kernel", name=each.path)
            for each in told
            if isinstance(each, WriteFile | WriteKernel)
        ),
        risk=Risk.LIVE,
    )
