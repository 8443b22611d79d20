"""Switch persistence mode on or off on every GPU, as expected, now and at every boot.

**Now** `nvidia-smi -i UUID -pm 1` (or `-pm 0`) for each GPU that fails. If nvidia-persistenced
runs, nvidia-smi passes the mode on to it. A running daemon is not restarted: it would release every
GPU for a moment.

**At every boot** one manager. If nvidia-persistenced.service exists and can be enabled, and the
mode is to be on, it is that unit: enabled, started, and with the drop-in
`90-nodevet-persistence-mode.conf`, which runs `nvidia-smi -i UUID -pm 1` for every GPU once the
daemon is up, since some distributions start the daemon with `--no-persistence-mode`. Else (no such
unit; a masked one, which is the administrator's decision; a static one, which udev starts; the mode
is to be off) the unit `nodevet-persistence-mode.service` sets it, after the daemon. Either comes
before slurmd and the kubelet and before the units of the other GPU settings, and removes what an
earlier plan set up for the other one.

**Risk** live: jobs go on.

**Rollback** restores the earlier mode, and the unit, drop-in and daemon. A daemon that this step
started is stopped and releases every GPU: an idle one forgets its settings.

**What it cannot do.** Switched off, an idle GPU forgets its power limit, its clocks and its compute
mode at once; the plan says so. A later start of nvidia-persistenced by hand switches it on again. A
node with a GPU that does not respond, or does not tell its mode, is refused as a whole, since the
unit sets every GPU. A baseline whose `services` expects the daemon stopped or disabled contradicts
this fix if the mode is to be on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodevet.checks.persistence_mode import Params
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import Unit as Shown
from nodevet.evidence.services import Units
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import BootUnit, Setting, command, switch
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import RELOAD, SetUnit

CHECK = "persistence_mode"
DAEMON = "nvidia-persistenced.service"
BOOT = BootUnit(CHECK, after=())
OWN = BOOT.name
DROP_IN = f"/etc/systemd/system/{DAEMON}.d/90-nodevet-persistence-mode.conf"
TEXT = """\
# Written by nodevet: the boot-time owner of persistence_mode.
[Unit]
Before=slurmd.service kubelet.service

[Service]
TimeoutStartSec=5min
ExecStartPost=-+{command}
"""
"""As root, whatever user the daemon has; a GPU that fails does not end the daemon of the others."""

LOSES = "a GPU forgets its power limit, clocks and compute mode when its last client leaves"


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all GPUs that fail; see `FIX`."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    if not failed:
        return
    daemon, own_unit = unit_of(evidence, DAEMON), unit_of(evidence, OWN)
    settable = gpus.having_setting(every_gpu, CHECK)
    boot = [(gpu.uuid, switch("-pm", params.enabled)) for gpu in settable]
    if params.enabled and is_owner(daemon):
        enable = None if daemon.file_state == "enabled" else True
        start = None if is_active(daemon) else True
        actions = daemon_actions(
            boot, enable=enable, start=start, own_exists=own_unit.load_state != "not-found"
        )
        changed_gpus = settable if start else ()  # starting and stopping it changes every GPU
    else:
        actions = own_actions(boot, daemon_exists=daemon.load_state != "not-found")
        changed_gpus = ()
    yield gpus.change(
        failed,
        options=lambda _: [switch("-pm", params.enabled)],
        fields=lambda _: [CHECK],
        risk=Risk.LIVE,
        actions=actions,
        resources=(*changed_resources(actions), *(gpu.resource(CHECK) for gpu in changed_gpus)),
        note="" if params.enabled else LOSES,
    )


def unit_of(evidence: Evidence, name: str) -> Shown:
    """A unit as systemd shows it. Raises FixError if a part of it was not read."""
    section = evidence[Units]
    if section.data is None:
        raise FixError(f"services: {section.why}")
    if section.data.units is None:
        raise FixError(f"units: {section.data.why('units')}")
    unit = next((unit for unit in section.data.units if unit.name == name), None)
    if unit is None:
        raise FixError(f"{name}: {NOT_ASKED}")
    for field in ("load_state", "active_state", "file_state"):
        if getattr(unit, field) is None:
            raise FixError(f"{name}: {field}: {unit.why(field)}")
    return unit


def is_owner(daemon: Shown) -> bool:
    """Whether the daemon's unit can start at boot. Raises FixError if that is not clear."""
    if daemon.load_state in ("not-found", "masked"):
        return False
    if daemon.load_state != "loaded":
        raise FixError(f"{daemon.name}: systemd could not load it: {daemon.load_state}")
    return daemon.file_state in ("enabled", "disabled")


def is_active(daemon: Shown) -> bool:
    """Whether the daemon runs. Raises FixError while it starts or stops."""
    if daemon.active_state not in ("active", "reloading", "inactive", "failed"):
        raise FixError(f"{daemon.name} is {daemon.active_state}; plan again when it has settled")
    return daemon.active_state in ("active", "reloading")


def daemon_actions(
    boot: Iterable[Setting], *, enable: bool | None, start: bool | None, own_exists: bool
) -> Actions:
    """The daemon's unit becomes the owner; `own_exists`: nodevet's own unit is removed."""
    text = TEXT.format(command=command(boot))
    unit = SetUnit(name=DAEMON, enabled=enable, running=start) if enable or start else RELOAD
    removal = (
        SetUnit(name=OWN, enabled=False, running=False),
        WriteFile(path=BOOT.path, content=None),
    )
    return (*(removal if own_exists else ()), WriteFile(path=DROP_IN, content=text), unit)


def own_actions(boot: Iterable[Setting], *, daemon_exists: bool) -> Actions:
    """nodevet's own unit becomes the owner; `daemon_exists`: the daemon's drop-in is removed."""
    removal = (WriteFile(path=DROP_IN, content=None),)
    return (*(removal if daemon_exists else ()), *BOOT.actions(boot))


def changed_resources(actions: Actions) -> tuple[Resource, ...]:
    """The resources of these actions: files first, then units."""
    resources = [action.resource for action in actions if action.resource]
    return tuple(sorted(resources, key=lambda resource: resource.kind))


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The units that may be the boot-time owners of the mode."""
    return {"services": (DAEMON, OWN)}


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("services",), asks=asks)
"""After what holds the driver's state; without it the driver forgets every GPU setting."""
