"""Enable InfiniBand ports that were disabled.

**Now** `ibportstate -C DEVICE -P PORT -D 0 PORT enable` for each port that should be active and
whose physical state is Disabled. nodevet then waits until the port is ACTIVE, up to 60 s.

**At every boot** nothing: no file of the node says that a port is disabled, and an adapter starts
with its ports enabled. If something disables the port again, the check fails after the reboot.

**Risk** drain: traffic of jobs may move to the port when it comes up, and a rollback takes it away.

**Rollback** disables the port again, by `ibportstate -C DEVICE -P PORT -D 0 PORT disable`. The port
keeps its LID, which `enable` or the subnet manager set.

**What it cannot do.** It does not find out who disabled the port, or why: ask before you approve. A
port that polls has no link partner: check its cable, its transceiver or the switch's port. A port
in INIT waits for the subnet manager. If no subnet manager makes the port ACTIVE, nodevet disables
it again. Counters, firmware, rate and width have no fix. For an Ethernet port (RoCE) use `ip link
set dev NAME up`. The fix sets no IPoIB interface up. It does not touch a port if nodevet's session
or a default route uses an interface of its device, or if nodevet cannot tell which device an
interface uses, such as a child of IPoIB. It does not touch virtual functions: their host sets the
port. It needs /usr/sbin/ibportstate (package infiniband-diags, as of version 44) and the kernel
module ib_umad. If ports have an M_Key, the step fails. No test has run it on a real adapter: in
nodevet's tests, a program stands in for ibportstate and behaves as its manual page describes.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checking.rdma import each_port, port_name
from nodevet.checks.infiniband import GUEST_FUNCTIONS, Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.files import Files
from nodevet.evidence.infiniband import RdmaDevice, RdmaPort
from nodevet.evidence.link_managers import LinkManagers
from nodevet.fixing.gpus import common_value
from nodevet.fixing.link_carriers import links_of, require_apart
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding
from nodevet.resource.infiniband_port import DISABLED, LAST, NAME, PROGRAM, SetInfinibandPort

REPAIRED = {"state", "pkeys"}  # the subnet manager also gives a port its partition keys


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all ports that were disabled; see `FIX`."""
    done, refused = [], []
    for finding in failed:
        try:
            done.append((finding, action_of(evidence, finding)))
        except FixError as error:
            refused.append(f"{finding.subject.id or 'the node'}: {error}")
    if done:
        require_program(evidence)
    yield from with_refusals([change(done)] if done else [], refused)


def change(done: Sequence[tuple[Finding, SetInfinibandPort]]) -> PlannedChange:
    labels = {finding.subject.label: finding for finding, _ in done}
    return PlannedChange(
        expected="enabled",
        actual=common_value(dict.fromkeys(labels, "disabled")),
        subjects=tuple(labels),
        actions=tuple(action for _, action in done),
        resources=tuple(action.resource for _, action in done),
        risk=Risk.DRAIN,
        note="somebody disabled it: ask why before you approve",
    )


def action_of(evidence: Evidence, finding: Finding) -> SetInfinibandPort:
    """The action that enables the port of a finding. Raises FixError if nodevet does not."""
    if finding.subject.kind != "port":
        raise FixError("only a disabled port has a fix")
    device, port = port_of(evidence, finding.subject.id)
    if not NAME.fullmatch(f"{device.name}/{port.number}") or port.number > LAST:
        raise FixError(f"{device.name[:30]!r} is not a name that nodevet passes on")
    require_disabled(device, port)
    require_alone(finding)
    if device.netdevs is None:
        raise FixError(f"its interfaces are unknown: {device.why('netdevs')}")
    for name in device.netdevs:
        require_apart(name, evidence[LinkManagers].data, links_of(evidence))
    return SetInfinibandPort(device=device.name, port=port.number, enabled=True)


def port_of(evidence: Evidence, name: str) -> tuple[RdmaDevice, RdmaPort]:
    """Raises FixError."""
    for entry in each_port(evidence):
        if not isinstance(entry, Finding) and port_name(*entry) == name:
            return entry
    raise FixError("the finding does not come from this evidence")


def require_disabled(device: RdmaDevice, port: RdmaPort) -> None:
    """Raises FixError unless it is a disabled InfiniBand port of this machine's own adapter."""
    if port.link_layer != "InfiniBand":
        raise FixError("it is no InfiniBand port: of an Ethernet port set its interface up")
    if port.phys_state is None:
        raise FixError(f"phys_state: {port.why('phys_state')}")
    if port.phys_state == "Polling":
        raise FixError("it is enabled, and no link partner answers: see its cable and the switch")
    if port.phys_state != DISABLED:
        raise FixError(f"it is not disabled: {port.state} ({port.phys_state})")
    if device.hca_type is None:
        raise FixError(f"hca_type: {device.why('hca_type')}")
    if device.hca_type in GUEST_FUNCTIONS:
        raise FixError("it belongs to a virtual function: its host sets the port")


def require_alone(finding: Finding) -> None:
    """Raises FixError if the check fails even with the port enabled."""
    facts = finding.expected if isinstance(finding.expected, Mapping) else {"these values": ""}
    if others := sorted(set(facts) - REPAIRED):
        raise FixError(f"repair {', '.join(others)} first: the check fails until then")


def require_program(evidence: Evidence) -> None:
    """Raises FixError."""
    section = evidence[Files]
    files = {file.path: file for file in (section.data.files if section.data else None) or ()}
    file = files.get(PROGRAM)
    if file is None or file.exists is None:
        why = file.why("exists") if file else section.why or "not read"
        raise FixError(f"whether {PROGRAM} exists is unknown: {why}")
    if not file.exists or file.kind != "file":
        raise FixError(f"{PROGRAM} is missing: install infiniband-diags")


FIX = Fix(
    plan=plan,
    risk=Risk.DRAIN,
    after=("kernel_modules", "services"),
    asks=lambda params: {"files": ({"path": PROGRAM},), "link_managers": ("carriers",)},
)
"""After the fixes of kernel modules and services, which may bring ib_umad or a subnet manager."""
