"""What the fixes of kernel settings have in common: a file that sets them at boot, and a write
of each that is wrong now."""

from collections.abc import Iterable, Mapping

from nodevet.fix import Actions, Change, File, Kernel, Resource, Risk
from nodevet.model import Finding


def actions(owner: str, lines: Iterable[str], now: Mapping[str, str]) -> Actions:
    """`lines` of the file `owner`, which is read at boot; `now`: values by path."""
    content = "".join(f"{line}\n" for line in ("# Written by nodevet.", *lines))
    writes = (Kernel(path=path, value=value) for path, value in now.items())
    return (File(path=owner, content=content), *writes)


def change(wrong: Mapping[str, Finding], now: Mapping[str, str], told: Actions) -> Change:
    """The change of all that is wrong, by name; each of its actions is on a file of its own."""
    return Change(
        wanted=now,
        observed={name: finding.actual for name, finding in wrong.items()},
        subjects=tuple(finding.subject.label for finding in wrong.values()),
        actions=told,
        resources=tuple(
            Resource(kind="file" if isinstance(each, File) else "kernel", name=each.path)
            for each in told
            if isinstance(each, File | Kernel)
        ),
        risk=Risk.LIVE,
    )
