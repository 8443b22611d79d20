"""Switch persistence mode on or off on every GPU, as expected, now and at every boot.

**Now** `nvidia-smi -i UUID -pm 1` (or `-pm 0`) for each GPU that fails. If nvidia-persistenced
runs, nvidia-smi passes the mode to it. The fix does not restart a running daemon, because that
would release every GPU for a moment.

**At every boot** one manager sets the mode. It is the unit nvidia-persistenced.service if the unit
exists and can be enabled, and the mode must be on. The fix enables and starts it and adds the
drop-in `90-nodevet-persistence-mode.conf`, which runs `nvidia-smi -i UUID -pm 1` for every GPU
after the daemon is up, because some distributions start the daemon with `--no-persistence-mode`. In
all other cases (no such unit; a masked unit, which is the administrator's decision; a static unit,
which udev starts; the mode must be off) the unit `nodevet-persistence-mode.service` sets the mode,
after the daemon. Either manager starts before slurmd and the kubelet and before the units of the
other GPU settings. The fix removes what an earlier plan installed for the other manager.

**Risk** live: jobs continue.

**Rollback** restores the earlier mode, and the unit, drop-in and daemon. If this step started the
daemon, the rollback stops it; it then releases every GPU, and an idle GPU loses its settings.

**What it cannot do.** If the mode is off, an idle GPU loses its power limit, its clocks and its
compute mode at once; the plan says so. If someone starts nvidia-persistenced later, the mode is on
again. If a GPU of the node does not respond or does not report its mode, nodevet refuses the whole
node, because the unit sets every GPU. If `services` in the baseline expects the daemon stopped or
disabled, it contradicts this fix while the mode must be on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodevet.checks.persistence_mode import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import Unit as Shown
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import BootUnit, Setting, command, switch
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.fixing.units import unit_of
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
"""It runs as root for any user of the daemon; if one GPU fails, the daemon continues for the
others."""

LOSES = "a GPU loses its power limit, clocks and compute mode when its last client exits"


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all GPUs that fail; see `FIX`."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    daemon, own_unit = unit_of(evidence, DAEMON), unit_of(evidence, OWN)
    settable = gpus.having_setting(every_gpu, CHECK)
    boot = [(gpu.uuid, switch("-pm", params.enabled)) for gpu in settable]
    if params.enabled and is_owner(daemon):
        enable = None if daemon.file_state == "enabled" else True
        start = None if is_active(daemon) else True
        actions = daemon_actions(
            boot, enable=enable, start=start, own_exists=own_unit.load_state != "not-found"
        )
        changed_gpus = settable if start else ()  # start and stop change every GPU
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


def is_owner(daemon: Shown) -> bool:
    """Whether the daemon's unit can start at boot. Raises FixError if this is unclear."""
    if daemon.load_state in ("not-found", "masked"):
        return False
    if daemon.load_state != "loaded":
        raise FixError(f"{daemon.name}: systemd could not load it: {daemon.load_state}")
    return daemon.file_state in ("enabled", "disabled")


def is_active(daemon: Shown) -> bool:
    """Whether the daemon runs. Raises FixError while it starts or stops."""
    if daemon.active_state not in ("active", "reloading", "inactive", "failed"):
        raise FixError(f"{daemon.name} is {daemon.active_state}; plan again when it has finished")
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
"""After the fix of services; without persistence mode the driver loses every GPU setting."""
