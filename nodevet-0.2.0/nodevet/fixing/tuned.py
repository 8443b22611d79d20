"""Let TuneD set what it manages: a profile of nodevet's own, which includes the active one.

tuned-profiles: a profile inherits all of the profile that `include=` names, and its own options of
a section replace those that it inherits.
"""

from collections.abc import Sequence

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.tuned import Tuned
from nodevet.fixing.model import FixError
from nodevet.fixing.units import RUNS, unit_of
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.tuned_profile import ACTIVE, NAME, activate

UNIT = "tuned.service"
ASKS = {"services": (UNIT,), "tuned": ("profile",)}
SECTION = "cpu"
OWN = "nodevet-"
"""Each such profile includes one other, so the next one in the list is its base. A profile of the
site may include several, and its own options win."""
TEXT = """\
# Written by nodevet for {fix}.
[main]
summary={base}, and what nodevet set for {fix}
include={base}

[cpu]
{lines}
"""


class ChildProfile(msgspec.Struct, frozen=True, kw_only=True):
    """nodevet's profile of one fix. `base`: the profile that it includes; `active`: what must be
    active, itself or the one of another fix, which includes it."""

    fix: str
    folder: str
    base: str
    active: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{own_name(self.fix)}/tuned.conf"

    def actions(self, **options: str) -> Actions:
        """Write the profile with these options of TuneD's plug-in for CPUs, and activate it."""
        lines = "\n".join(f"{key}={value}" for key, value in options.items())
        text = TEXT.format(fix=self.fix, base=self.base, lines=lines)
        return (WriteFile(path=self.path, content=text), activate(self.active))

    @property
    def resources(self) -> tuple[Resource, ...]:
        return (
            Resource(kind="file", name=self.path),
            Resource(kind="tuned_profile", name=ACTIVE),
        )


def own_name(fix: str) -> str:
    """
    >>> own_name("cpu_governor")
    'nodevet-cpu-governor'
    """
    return f"{OWN}{fix.replace('_', '-')}"


def child(fix: str, evidence: Evidence, keys: Sequence[str]) -> ChildProfile | None:
    """The profile by which TuneD sets one of these options; None if TuneD does not run, or if its
    profile sets none of them. Raises FixError if the profile is more than nodevet knows."""
    data = evidence[Tuned].data
    if data is None:
        return None  # without a profile; if it was not read, the search for managers says so
    if any(getattr(data, field) is None for field in ("profiles", "settings", "scripts")):
        return None
    rows = [row for row in data.settings or () if row.key in keys]
    unit = unit_of(evidence, UNIT)
    if not rows or unit.active_state not in RUNS:
        return None
    profile = data.profile or ""
    problems = (
        (unit.file_state != "enabled", f"{UNIT} runs, and does not start at boot"),
        (not NAME.fullmatch(profile), f"TuneD merges profiles: {profile[:100]}"),
        (bool(data.missing), f"TuneD has no profile {(data.missing or '')[:100]}"),
        (bool(data.scripts), f"the profile {profile[:100]} runs scripts, which may set it"),
        (
            any(row.section != SECTION for row in rows),
            f"{rows[0].file[:200]}:{rows[0].line} is not in the section [{SECTION}]",
        ),
    )
    for is_problem, why in problems:
        if is_problem:
            raise FixError(f"{why}: set it in that profile, and run `tuned-adm profile`")
    profiles, name = list(data.profiles or ()), own_name(fix)
    folder = data.folder or "/etc/tuned"
    if name not in profiles:
        return ChildProfile(fix=fix, folder=folder, base=profile, active=name)
    place = profiles.index(name)
    if sites := [other for other in profiles[:place] if not other.startswith(OWN)]:
        site = sites[0][:100]
        raise FixError(f"the profile {site} includes nodevet's profile {name}: set it in {site}")
    following = profiles[place + 1 :]
    if not following or not NAME.fullmatch(following[0]):
        raise FixError(f"nodevet's profile {name} includes no other: remove it")
    return ChildProfile(fix=fix, folder=folder, base=following[0], active=profile)
