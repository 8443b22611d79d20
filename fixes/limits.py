"""Raise the resource limits of services and logins to the expected ones.

**Now** nodevet restarts a running service, because a process keeps the limits with which it
started. Logins get the new limits with their next session.

**At every boot** the drop-in `90-nodevet-limits.conf` of each unit sets `LimitMEMLOCK=` and the
like; for logins, `/etc/security/limits.d/90-nodevet-limits.conf` has a row for `*` for each limit.

**Risk** live for logins and for services that do not run. drain for a service that nodevet
restarts: processes that the service started may end with it.

**Rollback** restores the files, and restarts the service again if it runs.

**What it cannot do.** It lowers no limit: a limit that is higher than expected keeps its present
value, and the hard limit of a service becomes `infinity`. For logins, a row of limits.d sets the
soft and the hard limit. The drop-in and the rows override those in files that sort earlier. Files
that sort later override the new ones; then the check fails, and nodevet rolls the step back. It
does not restart units that nodevet needs to reach the node (sshd, D-Bus, the network), and does not
set the number of files of logins to unlimited, which would lock everyone out. Running sessions and
jobs keep their limits. slurmd may give its jobs other limits: PropagateResourceLimits.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.limits import Params, is_enough
from nodevet.evidence.document import Evidence
from nodevet.evidence.limits import LOGIN, UNLIMITED, ResourceLimits, SoftLimits
from nodevet.fixing.kernel_files import conf
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.fixing.units import NEEDED, OBSTACLES, RUNS, STANDS, unit_of
from nodevet.model import Finding
from nodevet.resource import Resource
from nodevet.resource.unit import RELOAD, SetUnit

FILE = "90-nodevet-limits.conf"
DROP_IN = f"/etc/systemd/system/{{}}.d/{FILE}"
LOGINS = f"/etc/security/limits.d/{FILE}"
KEYS = {  # field -> of systemd; of limits.conf, with its unit in bytes
    "memlock_b": ("LimitMEMLOCK", "memlock", 1024),
    "nofile": ("LimitNOFILE", "nofile", 1),
    "nproc": ("LimitNPROC", "nproc", 1),
    "stack_b": ("LimitSTACK", "stack", 1024),
}


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for each unit that fails, and one for logins; see `FIX`."""
    section = evidence[ResourceLimits].data
    by_name = {limits.name: limits for limits in (section.limits if section else None) or ()}
    changes, refused = [], []
    for finding in failed:
        name = finding.subject.id
        try:
            if name not in by_name:
                raise FixError("the finding does not come from this evidence")
            values = values_of(by_name[name], params)
            if name == LOGIN:
                changes.append(change_of_logins(finding, values))
            else:
                changes.append(change_of_unit(finding, name, values, evidence))
        except FixError as error:
            refused.append(f"{name}: {error}")
    yield from with_refusals(changes, refused)


def values_of(limits: SoftLimits, params: Params) -> Mapping[str, int]:
    """The value of each limit in the file: as expected, or the present one if that is enough.

    Raises FixError if one of them was not read."""
    values = {}
    for field, least in params.minima.items():
        actual: int | None = getattr(limits, field)
        if actual is None:
            raise FixError(f"{field}: {limits.why(field)}")
        enough = is_enough(least, actual)
        values[field] = actual if enough else least if isinstance(least, int) else UNLIMITED
    return values


def change_of_logins(finding: Finding, values: Mapping[str, int]) -> PlannedChange:
    """Raises FixError."""
    if values.get("nofile") == UNLIMITED:
        raise FixError("no login may open an unlimited number of files: expect a number")
    rows = []
    for field, value in values.items():
        _, key, unit = KEYS[field]
        rows.append(f"* - {key} {'unlimited' if value == UNLIMITED else -(-value // unit)}")
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(finding.subject.label,),
        actions=(conf(LOGINS, rows),),
        resources=(Resource(kind="file", name=LOGINS),),
        risk=Risk.LIVE,
        note="new sessions get the new limits",
    )


def change_of_unit(
    finding: Finding, name: str, values: Mapping[str, int], evidence: Evidence
) -> PlannedChange:
    """Raises FixError."""
    unit = unit_of(evidence, name)
    if not name.endswith(".service"):
        raise FixError("nodevet sets limits of services only")
    if unit.load_state != "loaded":
        raise FixError(OBSTACLES.get(unit.load_state or "", "systemd could not load it"))
    if unit.active_state not in STANDS:
        raise FixError(f"it is {unit.active_state}; plan again when it has finished")
    runs = unit.active_state in RUNS
    if runs and NEEDED.fullmatch(name):
        raise FixError("nodevet does not restart it: the node may be unreachable without it")
    rows = [f"{KEYS[field][0]}={soft_and_hard(value)}" for field, value in values.items()]
    file = conf(DROP_IN.format(name), ["[Service]", *rows])
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(finding.subject.label,),
        actions=(file, SetUnit(name=name, running=True, restart=True) if runs else RELOAD),
        resources=(
            Resource(kind="file", name=file.path),
            *([Resource(kind="unit", name=name)] if runs else []),
        ),
        risk=Risk.DRAIN if runs else Risk.LIVE,
    )


def soft_and_hard(value: int) -> str:
    """
    >>> soft_and_hard(65536), soft_and_hard(UNLIMITED)
    ('65536:infinity', 'infinity')
    """
    return "infinity" if value == UNLIMITED else f"{value}:infinity"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The units whose limits are judged: whether they run."""
    return {"services": tuple(name for name in params.of if name != LOGIN)}


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("services",), asks=asks)
