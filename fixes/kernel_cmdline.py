"""Add the expected kernel parameters to GRUB's command line, and remove those that nodevet added.

**Now** nothing: the running kernel keeps its command line. Without `--reboot`, the new command line
is GRUB's default from the next boot on, and the step is `pending` until that boot.

**With `--reboot`** GRUB boots the new command line once, before it becomes the default:

1. `update-grub` writes a second menu, `/boot/grub/nodevet-once.cfg`, with the parameters. The
   default menu keeps its command lines, and gets an entry that reads the second menu.
   `grub-reboot` chooses this entry for one boot.
2. nodevet reboots the node. If the check passes, the parameters go into the default menu.
3. If the check fails, nodevet restores everything and reboots the node once more. If the node does
   not come back, switch it off and on: GRUB has forgotten the choice and boots the old command
   line. Then run `nodevet apply --resume RUN`, which restores the rest.

For this, GRUB must write `/boot/grub/grubenv` when it boots. It cannot do that on LVM, RAID,
encryption, btrfs and ZFS. There the new command line becomes the default at once, and the plan says
so.

**At every boot** the kernel gets the parameters from GRUB:

- nodevet writes the missing parameters to `/etc/default/grub.d/zz-nodevet-kernel-cmdline.cfg`, and
  `update-grub` adds them to `/boot/grub/grub.cfg`, for new kernels too.
- `update-grub` first writes another file. nodevet replaces grub.cfg only if every new entry in that
  file has the parameters, and if nothing else in it is new. If someone changed a setting of GRUB
  meanwhile, the step fails, or its rollback does: run `update-grub`, then try again.
- `/etc/grub.d/99_nodevet-kernel-cmdline` adds entries without nodevet's parameters, as a way back.
  They are the last in the menu, and their names contain `before nodevet`.

**Risk** reboot.

**Rollback** restores the files and runs `update-grub` again; it takes effect at the next boot.

**What it cannot do.** If the new command line is the default and the node does not boot with it,
nodevet cannot reach the node. Then choose an entry `before nodevet` in GRUB's menu, on the console
or over the BMC, or select it with `grub-reboot` from a rescue system. After that, run `nodevet
rollback`. If an admin has chosen another entry for the next boot, nodevet writes nothing.

nodevet changes only its own files. If another file has a parameter that must be absent, or another
value of a parameter, nodevet names the file and the line. It refuses the change if another file is
read after its own. It also refuses if a setting of GRUB is newer than grub.cfg, because
`update-grub` would also apply that setting.

It changes only GRUB of Debian and Ubuntu. For grubby, SUSE, systemd-boot and kernelstub it names
the command to run; it tries none of these for one boot. Debian has no package of grubby, so no test
could run it. It refuses parameters with quotes or other special characters of a shell, and
parameters that decide where the node boots from or what it starts. Tests run the real `update-grub`
and `grub-reboot`, but no test boots with a real GRUB.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.kernel_cmdline import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing.cmdline import ASKS, boot_words, check_own_parameter
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding

NAME = "kernel_cmdline"


def plan(
    evidence: Evidence, failed: Sequence[Finding], params: Params, *, reboot: bool
) -> Iterator[PlannedChange]:
    """One change for all parameters; see `FIX`."""
    accepted, refused = [], []
    for finding in failed:
        parameter = finding.subject.id
        try:
            if finding.expected == "present" and parameter in params.present:
                boot_words(NAME, evidence, params.present, (parameter,))
            elif finding.expected == "absent" and parameter in params.absent:
                check_own_parameter(NAME, evidence, parameter)
            else:
                raise FixError("the finding does not come from this baseline")
        except FixError as error:
            refused.append(f"{parameter}: {error}")
        else:
            accepted.append(finding)
    changes = [change(evidence, accepted, params, reboot)] if accepted else []
    yield from with_refusals(changes, refused)


def change(
    evidence: Evidence, findings: Sequence[Finding], params: Params, reboot: bool
) -> PlannedChange:
    missing = [finding.subject.id for finding in findings if finding.expected == "present"]
    boot = boot_words(NAME, evidence, params.present, missing, reboot=reboot)
    return PlannedChange(
        expected={finding.subject.id: finding.expected for finding in findings},
        actual={finding.subject.id: finding.actual for finding in findings},
        subjects=tuple(finding.subject.label for finding in findings),
        actions=boot.actions,
        keep=boot.keep,
        resources=boot.resources,
        risk=Risk.REBOOT,
        effective="reboot",
        note=boot.note,
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The boot loader, and its settings."""
    return ASKS


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("iommu",), asks=asks, options=("reboot",))
