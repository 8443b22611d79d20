"""Load the kernel modules that the baseline wants, and keep out those that it does not.

**Now** `modprobe` for each module that is missing. One that is loaded and unwanted stays until
the next boot: whatever uses it would be cut off.

**At every boot** `/etc/modules-load.d/nodevet-kernel-modules.conf` names every module that the
baseline wants, and `/etc/modprobe.d/nodevet-kernel-modules.conf` blacklists every one that it
does not.

**Risk** live for loading; reboot for what is to be gone.

**Undo** puts the files back, and unloads what was loaded here.

**What it cannot do.** A module that is part of the kernel can only be kept out on the kernel's
command line (`initcall_blacklist`). The initramfs may load an unwanted module before the
blacklist is read: `update-initramfs -u` or `dracut --force` makes it anew, and is not done
here. A blacklist keeps a module from being loaded for a device, not by name. Versions of driver
and library that differ ask for a reboot, which is no change of a setting.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodevet.checks.kernel_modules import KernelModules
from nodevet.evidence import Evidence
from nodevet.fix import Actions, Change, File, Fix, FixError, Risk, Run, Touch
from nodevet.fixes._operation import Commands, operation, perform
from nodevet.model import Finding, Verdict

LOAD = "/etc/modules-load.d/nodevet-kernel-modules.conf"
DENY = "/etc/modprobe.d/nodevet-kernel-modules.conf"
INITRAMFS = (
    "the initramfs may hold the module too: update-initramfs -u or dracut --force before the reboot"
)


def plan(evidence: Evidence, findings: Sequence[Finding], want: KernelModules) -> Iterator[Change]:
    """A change that loads what is missing, and one that keeps out what is unwanted; see `FIX`."""
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    if not wrong:
        return
    modules = evidence.modules.data
    if modules is None or modules.loaded is None or modules.builtin is None:
        raise FixError("the modules of the kernel could not be read")
    missing, unwanted, others = [], [], []
    for finding in wrong:
        name = finding.subject.id
        if finding.expected == "loaded" and name in want.loaded:
            missing.append(finding)
        elif finding.expected != "not loaded" or name not in want.absent:
            others.append("the driver and its library differ in version, which takes a reboot")
        elif name in modules.builtin:
            others.append(f"{name} is built into the kernel")
        else:
            unwanted.append(finding)
    if not missing and not unwanted:
        raise FixError("; ".join(dict.fromkeys(others)))
    left = "; ".join(dict.fromkeys(others))
    here = {*modules.loaded, *modules.builtin}
    if any(finding.subject.id in here for finding in missing) or any(
        finding.subject.id not in here for finding in unwanted
    ):
        raise FixError("the findings are not of this evidence")
    if missing:
        names = ids(missing)
        yield change(
            missing,
            actions=load(want.loaded, names),
            touches=(
                Touch(kind="file", name=LOAD),
                *(Touch(kind="module", name=name) for name in names),
            ),
            risk=Risk.LIVE,
            note=left,
        )
    if unwanted:
        yield change(
            unwanted,
            actions=deny(want.absent),
            touches=(Touch(kind="file", name=DENY),),
            risk=Risk.REBOOT,
            note=INITRAMFS if missing or not left else f"{INITRAMFS}; {left}",
        )


def ids(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(finding.subject.id for finding in findings)


def change(
    findings: Sequence[Finding],
    *,
    actions: Actions,
    touches: tuple[Touch, ...],
    risk: Risk,
    note: str,
) -> Change:
    return Change(
        wanted={finding.subject.id: finding.expected for finding in findings},
        observed={finding.subject.id: finding.actual for finding in findings},
        subjects=tuple(finding.subject.label for finding in findings),
        actions=actions,
        touches=touches,
        risk=risk,
        effective="reboot" if risk is Risk.REBOOT else "now",
        note=note,
    )


def load(wanted: Iterable[str], missing: Iterable[str]) -> Actions:
    text = "".join(f"{name}\n" for name in wanted)
    return (
        File(path=LOAD, content=f"# Written by nodevet.\n{text}"),
        *(Run(words=("modprobe", "--", name)) for name in missing),
    )


def deny(unwanted: Iterable[str]) -> Actions:
    text = "".join(f"blacklist {name}\n" for name in unwanted)
    return (File(path=DENY, content=f"# Written by nodevet.\n{text}"),)


@operation
def kernel_modules(loaded: Sequence[str] = (), absent: Sequence[str] = ()) -> Commands:
    """In a pyinfra deploy: `kernel_modules(loaded=["nvidia_uvm"], absent=["nouveau"])`; what is
    absent is so after the next boot."""
    want = KernelModules(loaded=tuple(loaded), absent=tuple(absent))
    if want.loaded:
        yield from perform(load(want.loaded, want.loaded))
    if want.absent:
        yield from perform(deny(want.absent))


FIX = Fix(plan=plan, risk=Risk.REBOOT)
