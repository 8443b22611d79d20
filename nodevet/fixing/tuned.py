"""Let TuneD set what it manages, by a profile of nodevet that TuneD merges with the active ones.

tuned-profiles: the options of a section replace those of the profiles before; a section of another
name, whose `type` names a plug-in, is applied after all earlier sections.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.tuned import Tuned
from nodevet.fixing.model import FixError, PlannedChange
from nodevet.fixing.units import RUNS, unit_of
from nodevet.resource import Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.tuned_profile import OWN, activate

UNIT = "tuned.service"
CPU = "cpu"
TEXT = """\
# Written by nodevet for {fix}.
[main]
summary=What nodevet set for {fix}
{sections}"""


def asks(params: Any) -> Mapping[str, tuple[str, ...]]:
    """TuneD, which may set what the fix sets."""
    return {"services": (UNIT,), "tuned": ("profile",)}


def own_name(fix: str) -> str:
    """
    >>> own_name("cpu_governor")
    'nodevet-cpu-governor'
    """
    return f"{OWN}{fix.replace('_', '-')}"


def section(name: str, options: Mapping[str, str], plugin: str = "") -> str:
    """A section of a profile. `plugin`: the one that it is for, if not the one of its name."""
    typed = {"type": plugin} if plugin else {}
    lines = (f"{key}={value}" for key, value in {**typed, **options}.items())
    return "\n".join(("", f"[{name}]", *lines, ""))


def by_tuned(
    change: PlannedChange, fix: str, evidence: Evidence, keys: Collection[str], sections: str
) -> PlannedChange:
    """The change as TuneD makes it, by a profile with these sections, if an active profile sets one
    of `keys` (options of TuneD's plug-ins, or names of files in /sys); else the change itself.

    Raises FixError if the profile does more than nodevet knows."""
    data = evidence[Tuned].data
    if data is None or data.settings is None or data.profiles is None or data.scripts is None:
        return change  # if it was not read, the search for managers says so
    rows = [row for row in data.settings if row.key.rpartition("/")[2] in keys]
    if not rows or (unit := unit_of(evidence, UNIT)).active_state not in RUNS:
        return change
    name = own_name(fix)
    active = (data.profile or "").split()
    elsewhere = [row for row in rows if f"[{CPU}]" in sections and row.section != CPU]
    problems = (
        (unit.file_state != "enabled", f"{UNIT} runs, and does not start at boot"),
        (bool(data.missing), f"TuneD has no profile {(data.missing or '')[:100]}"),
        (
            bool(data.scripts),
            f"the profile {' '.join(active)[:100]} runs scripts, which may set it",
        ),
        (
            name in data.profiles and name not in active,
            f"another profile includes nodevet's profile {name}",
        ),
        *(
            (True, f"{row.file[:200]}:{row.line} is not in the section [{CPU}]")
            for row in elsewhere
        ),
    )
    for is_problem, why in problems:
        if is_problem:
            raise FixError(f"{why}: set it in a profile of your own, and run `tuned-adm profile`")
    path = f"{data.folder or '/etc/tuned'}/{name}/tuned.conf"
    return replace(
        change,
        actions=(
            WriteFile(path=path, content=TEXT.format(fix=fix, sections=sections)),
            activate(name),
        ),
        resources=(
            Resource(kind="file", name=path),
            Resource(kind="tuned_profile", name=name),
        ),
    )
