"""Add the expected kernel parameters to GRUB's command line, and remove those that nodevet added.

**Now** nothing: the running kernel keeps its command line. The step is pending until the node
reboots; with `--reboot`, nodevet reboots it and reverts the step if the check does not pass.

**At every boot** `/etc/default/grub.d/zz-nodevet-kernel-cmdline.cfg` adds the missing parameters,
and `update-grub` writes them into `/boot/grub/grub.cfg`. nodevet lets `update-grub` write another
file first, and replaces grub.cfg only if every new entry has the parameters. New kernels get them
too. `/etc/grub.d/99_nodevet-kernel-cmdline` adds entries with the command line as it is without
nodevet's parameters. They are the last in the menu, and their names have `before nodevet`.

**Risk** reboot.

**Rollback** restores the files and runs `update-grub` again; it takes effect at the next boot.

**What it cannot do.** If the node does not come up with the new command line, nodevet cannot reach
it: choose `before nodevet` in GRUB's menu on the console, over the BMC or by `grub-reboot` from a
rescue system, then run `nodevet rollback`. nodevet does not boot the new command line only once:
`grub-reboot` needs an environment block that GRUB can write, which LVM, RAID and btrfs do not have.
It does not change what stands in another file: for a parameter that must be absent, or has another
value there, it names the file and the line. It refuses if such a file is read after its own, and if
a setting changed after grub.cfg was written, since `update-grub` would put that into force as well.
It changes only GRUB of Debian and Ubuntu; for grubby, SUSE, systemd-boot and kernelstub it names
the command. It writes no parameter with quotes or other characters of a shell, and none of those
that say what the node boots from.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.kernel_cmdline import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing.cmdline import ASKS, NOTE, boot_words, without
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding

NAME = "kernel_cmdline"


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all parameters; see `FIX`."""
    accepted, refused = [], []
    for finding in failed:
        parameter = finding.subject.id
        try:
            if finding.expected == "present" and parameter in params.present:
                boot_words(NAME, evidence, params.present, (parameter,))
            elif finding.expected == "absent" and parameter in params.absent:
                without(NAME, evidence, parameter)
            else:
                raise FixError("the finding does not come from this baseline")
        except FixError as error:
            refused.append(f"{parameter}: {error}")
        else:
            accepted.append(finding)
    changes = [change(evidence, accepted, params)] if accepted else []
    yield from with_refusals(changes, refused)


def change(evidence: Evidence, findings: Sequence[Finding], params: Params) -> PlannedChange:
    missing = [finding.subject.id for finding in findings if finding.expected == "present"]
    boot = boot_words(NAME, evidence, params.present, missing)
    return PlannedChange(
        expected={finding.subject.id: finding.expected for finding in findings},
        actual={finding.subject.id: finding.actual for finding in findings},
        subjects=tuple(finding.subject.label for finding in findings),
        actions=boot.actions,
        resources=boot.resources,
        risk=Risk.REBOOT,
        effective="reboot",
        note=NOTE if boot.words else "",
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The boot loader, and its settings."""
    return ASKS


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("iommu",), asks=asks)
