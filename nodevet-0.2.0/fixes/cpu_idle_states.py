"""Limit the wake-up time of idle CPUs as expected, now and at every boot.

**Now** nodevet starts the unit `nodevet-cpu-idle-states.service`. It keeps `/dev/cpu_dma_latency`
open with the baseline's maximum, as tuned does: no CPU then enters an idle state that takes longer
to leave, as long as the unit runs.

**At every boot** the unit starts before slurmd and kubelet.

**TuneD** if its active profile holds the device (`force_latency`), nodevet writes no unit. It
writes the profile `/etc/tuned/nodevet-cpu-idle-states/tuned.conf`, which includes the active one,
and activates it with `tuned-adm profile`. A rollback activates the earlier profile.

**Risk** live: jobs continue. CPUs draw more power when they are idle.

**Rollback** stops and removes the unit, or restores the earlier one; the kernel then allows deep
idle states again.

**What it cannot do.** It disables no single state, so `cpupower idle-info` still shows them as
enabled. If TuneD merges several profiles, does not start at boot, or runs scripts, or if a profile
of the site includes nodevet's, a person must set the latency in TuneD. If the kernel does not have
the device, the unit fails, and nodevet rolls the step back. If even C1 takes longer than the
maximum, CPUs can only poll, which costs much power.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.cpu_idle_states import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import tuned
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

BOOT = BootUnit("cpu_idle_states", after=())
KEYS = ("force_latency",)
TEXT = """\
# Written by nodevet: the owner of cpu_idle_states.
[Unit]
Description=CPUs wake up within {us} us, as nodevet set it
Before=slurmd.service kubelet.service

[Service]
ExecStartPre=/bin/sh -c 'test -c /dev/cpu_dma_latency'
ExecStart=/bin/sh -c 'exec 3>/dev/cpu_dma_latency && printf {us:08x} >&3 && exec sleep infinity'

[Install]
WantedBy=multi-user.target
"""
"""The kernel reads eight hexadecimal digits; pm_qos_interface.rst in its documentation. Without
the test, the shell would make a file of the name, and the unit would run."""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    child = tuned.child("cpu_idle_states", evidence, KEYS)
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        actions=(
            child.actions(force_latency=str(params.maximum_us))
            if child
            else (
                WriteFile(path=BOOT.path, content=TEXT.format(us=params.maximum_us)),
                SetUnit(name=BOOT.name, enabled=True, running=True, restart=True),
            )
        ),
        resources=child.resources if child else BOOT.resources,
        risk=Risk.LIVE,
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """TuneD, which may hold the device."""
    return tuned.ASKS


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("cpu_governor",), asks=asks)
