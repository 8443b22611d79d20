"""Load the kernel modules that are expected, and blacklist those that must be absent.

**Now** `modprobe` for each module that is missing. One that is loaded and must be absent stays
until the next boot, since something may be using it.

**At every boot** `/etc/modules-load.d/nodevet-kernel-modules.conf` names every module that
is expected; for each one that must be absent, `/etc/modprobe.d/nodevet-MODULE.conf` blacklists
it. If an earlier plan left such a file for a module that is expected now, it is removed.

**Risk** live for loading; reboot for modules that must be absent.

**Rollback** restores the files, unloads what this step loaded, with its dependencies and nothing
else, and loads what was blacklisted.

**What it cannot do.** A module that is not on the node is not installed, and one that is part of
the kernel can only be kept out on the kernel's command line (`initcall_blacklist`). The initramfs
may load a blacklisted module before the blacklist is read: `update-initramfs -u` or
`dracut --force` rebuilds it, and is not done here. A blacklist keeps a module from being loaded for
a device and by modules-load.d, not by `modprobe` and not by another module that needs it. A module
that is blacklisted elsewhere, or on the kernel's command line, is not loaded: that is the
administrator's decision. If the versions of driver and library differ, a reboot is needed; no
setting would change that.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.checks.kernel_modules import Params, kernel_name
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.fixing.kernel_files import conf
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding, Verdict
from nodevet.resource import Resource, RunCommand, module
from nodevet.resource.file import WriteFile

LOAD = "/etc/modules-load.d/nodevet-kernel-modules.conf"
DENY = "/etc/modprobe.d/nodevet-{}.conf"
"""A file for each module: what loads one and what keeps out another have nothing in common."""

BARRED = ("modprobe.blacklist", "module_blacklist")  # kernel-command-line(7), the kernel's own
INITRAMFS = (
    "the initramfs may hold the module too: update-initramfs -u or dracut --force before the reboot"
)


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """A change that loads what is missing, and one that keeps out what is unwanted; see `FIX`."""
    failed = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    if not failed:
        return
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None or modules.builtin is None:
        raise FixError("the modules of the kernel could not be read")
    missing_modules, unwanted, reasons = [], [], []
    for finding in failed:
        name = finding.subject.id
        if finding.expected == "loaded" and name in params.loaded:
            missing_modules.append(finding)
        elif finding.expected != "not loaded" or name not in params.absent:
            reasons.append("the driver and its library differ in version, which takes a reboot")
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
        raise FixError("the findings are not of this evidence")
    if missing_modules:
        names = ids(missing_modules)
        if barred := sorted(set(names) & barred_at_boot(evidence)):
            raise FixError(f"the kernel's command line keeps out {', '.join(barred)}")
        runs = tuple(map(module.load, names))
        yield change(missing_modules, load(params.loaded), runs, risk=Risk.LIVE, note=other_note)
    if unwanted:
        note = INITRAMFS if missing_modules or not other_note else f"{INITRAMFS}; {other_note}"
        yield change(unwanted, deny(params.absent), risk=Risk.REBOOT, note=note)


def barred_at_boot(evidence: Evidence) -> set[str]:
    """The modules that the kernel's command line keeps out; empty if it was not read."""
    text = ((data := evidence[HostInfo].data) and data.cmdline) or ""
    halves = (word.partition("=") for word in text.split())
    listed = [names for key, _, names in halves if key in BARRED]
    return {kernel_name(name) for names in listed for name in names.split(",")}


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
"""First: without its module no GPU answers."""
