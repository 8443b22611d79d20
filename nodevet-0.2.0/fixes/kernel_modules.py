"""Load the expected kernel modules, and blacklist modules that must be absent.

**Now** `modprobe` loads each missing module. A loaded module that must be absent stays until the
next boot, because something may be using it.

**At every boot** `/etc/modules-load.d/nodevet-kernel-modules.conf` names every expected module; for
each module that must be absent, `/etc/modprobe.d/nodevet-MODULE.conf` blacklists it. If an earlier
plan left such a file for a module that is expected now, the fix removes the file.

**Risk** live for loading; reboot for modules that must be absent.

**Rollback** restores the files, unloads the modules that this step loaded, with their dependencies
and nothing else, and loads modules that were blacklisted.

**What it cannot do.** It does not install a module that the node does not have. Only the kernel's
command line (`initcall_blacklist`) can disable a module that is built into the kernel. The
initramfs may load a blacklisted module before it reads the blacklist: `update-initramfs -u` or
`dracut --force` rebuilds it; the fix does not do this. A blacklist stops modules-load.d and udev
from loading a module, but not `modprobe` or another module that needs it. The fix does not load a
module that another file or the kernel's command line blacklists: that is the administrator's
decision. If the versions of driver and library differ, the node needs a reboot; no setting changes
that.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.checks.kernel_modules import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.modules import Modules
from nodevet.fixing.kernel_files import conf, denied_at_boot
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Resource, RunCommand, module
from nodevet.resource.file import WriteFile

LOAD = "/etc/modules-load.d/nodevet-kernel-modules.conf"
DENY = "/etc/modprobe.d/nodevet-{}.conf"
"""One file for each module, so that plans for different modules do not conflict."""

INITRAMFS = (
    "the initramfs may have the module too: run update-initramfs -u or dracut --force before the "
    "reboot"
)


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that loads missing modules, and one that blacklists unwanted modules; see
    `FIX`."""
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None or modules.builtin is None:
        raise FixError("nodevet could not read the kernel's modules")
    missing_modules, unwanted, reasons = [], [], []
    for finding in failed:
        name = finding.subject.id
        if finding.expected == "loaded" and name in params.loaded:
            missing_modules.append(finding)
        elif finding.expected != "not loaded" or name not in params.absent:
            reasons.append("the driver and its library differ in version, which needs a reboot")
        elif name in modules.builtin:
            reasons.append(f"{name} is built into the kernel")
        else:
            unwanted.append(finding)
    if not missing_modules and not unwanted:
        raise FixError("; ".join(dict.fromkeys(reasons)))
    other_note = "; ".join(dict.fromkeys(reasons))
    present = {*modules.loaded, *modules.builtin}
    if any(finding.subject.id in present for finding in missing_modules) or any(
        finding.subject.id not in present for finding in unwanted
    ):
        raise FixError("the findings do not come from this evidence")
    if missing_modules:
        names = ids(missing_modules)
        if denied := sorted(set(names) & denied_at_boot(evidence)):
            raise FixError(f"the kernel's command line blacklists {', '.join(denied)}")
        runs = tuple(map(module.load, names))
        yield change(missing_modules, load(params.loaded), runs, risk=Risk.LIVE, note=other_note)
    if unwanted:
        note = INITRAMFS if missing_modules or not other_note else f"{INITRAMFS}; {other_note}"
        yield change(unwanted, deny(params.absent), risk=Risk.REBOOT, note=note)


def ids(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(finding.subject.id for finding in findings)


def change(
    findings: Sequence[Finding],
    files: Sequence[WriteFile],
    runs: Sequence[RunCommand] = (),
    *,
    risk: Risk,
    note: str,
) -> PlannedChange:
    return PlannedChange(
        expected={finding.subject.id: finding.expected for finding in findings},
        actual={finding.subject.id: finding.actual for finding in findings},
        subjects=tuple(finding.subject.label for finding in findings),
        actions=(*files, *runs),
        resources=(
            *(Resource(kind="file", name=file.path) for file in files),
            *(Resource(kind="module", name=name) for name in ids(findings)),
        ),
        risk=risk,
        effective="reboot" if risk is Risk.REBOOT else "now",
        note=note,
    )


def load(names: Sequence[str]) -> tuple[WriteFile, ...]:
    return (
        conf(LOAD, names),
        *(WriteFile(path=DENY.format(name), content=None) for name in names),
    )


def deny(names: Sequence[str]) -> tuple[WriteFile, ...]:
    return tuple(conf(DENY.format(name), [f"blacklist {name}"]) for name in names)


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=())
"""First, because without its module no GPU answers."""
