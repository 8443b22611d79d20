"""Plans for the kernel's command line: what is added and removed, and what is left to a person."""

from typing import Any

import pytest

from nodevet.fixing.cmdline import AT_ONCE, NO_REBOOT, TRIED
from nodevet.fixing.model import FixError, Risk
from nodevet.resource import boot_once, boot_parameter
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel

FILE = "/etc/default/grub.d/zz-nodevet-kernel-cmdline.cfg"
SCRIPT = "/etc/grub.d/99_nodevet-kernel-cmdline"
SMT = "/etc/default/grub.d/zz-nodevet-smt.cfg"
BOOTED = "BOOT_IMAGE=/boot/vmlinuz-6.1 root=UUID=7 ro"
OURS = "$GRUB_CMDLINE_LINUX_DEFAULT"


def setting(text: str, file: str = "/etc/default/grub", line: int = 10) -> dict[str, Any]:
    return {"file": file, "line": line, "name": "GRUB_CMDLINE_LINUX_DEFAULT", "text": text}


def node(
    *settings: dict[str, Any], booted: str = "", entries: str = "", **fields: Any
) -> dict[str, Any]:
    """A node with GRUB. `booted`, `entries`: what its command lines have besides the root."""
    loader = {
        "programs": ["update-grub"],
        "files": ["/boot/grub/grub.cfg"],
        "entries": [f"root=UUID=7 ro {entries}"],
        "settings": [setting('"quiet"'), *settings],
        "newer": [],
        "once": "",
    }
    return {"host": {"cmdline": f"{BOOTED} {booted}"}, "bootloader": loader | fields}


def added(change: Any) -> str:
    """What the file of a change adds."""
    (line,) = [row for row in change.actions[0].content.splitlines() if OURS in row][-1:]
    return line.removeprefix(f'GRUB_CMDLINE_LINUX_DEFAULT="{OURS} ').removesuffix('"')


def test_missing_parameters_are_added_in_the_order_of_the_baseline(plan):
    wish = {"present": ["iommu=pt", "hugepagesz=1G", "hugepages=16"]}
    (change,) = plan("kernel_cmdline", wish, node(booted="iommu=pt"))
    assert added(change) == "hugepagesz=1G hugepages=16"
    file, script, update = change.actions
    assert (file.path, script.path, script.mode) == (FILE, SCRIPT, 0o755)
    assert update == boot_parameter.update(["hugepagesz=1G", "hugepages=16"])
    assert update.label == "update-grub with hugepagesz=1G hugepages=16"
    assert [each.label for each in change.resources] == [
        *(f"file {FILE}", f"file {SCRIPT}"),
        *("boot_parameter hugepagesz", "boot_parameter hugepages"),
    ]
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")
    assert len(change.subjects) == 2 and "before nodevet" in change.note


def test_parameters_that_nodevet_added_are_kept_or_removed_as_the_baseline_says(plan):
    own = setting(f'"{OURS} pci=realloc nosmt"', FILE, 7)
    on = node(own, booted="pci=realloc nosmt", entries="pci=realloc nosmt")
    wish = {"present": ["pci=realloc", "nohz_full=1"], "absent": ["nosmt"]}
    (change,) = plan("kernel_cmdline", wish, on)
    assert added(change) == "pci=realloc nohz_full=1"
    assert change.actions[-1] == boot_parameter.update(["pci=realloc", "nohz_full=1"], ["nosmt"])
    assert {each.name for each in change.resources[2:]} == {"pci", "nohz_full", "nosmt"}
    (change,) = plan("kernel_cmdline", {"absent": ["nosmt", "pci=realloc"]}, on)
    assert change.actions[:2] == (
        WriteFile(path=FILE, content=None),
        WriteFile(path=SCRIPT, content=None, mode=0o755),
    )
    assert change.note == AT_ONCE.format(NO_REBOOT)


def test_a_plan_with_a_reboot_boots_the_new_line_once_before_it_becomes_the_default(plan):
    """What the file adds before the proof stays there; what it adds later is only in one menu."""
    own = setting(f'"{OURS} nosmt"', FILE, 7)
    on = node(own, booted="nosmt", entries="nosmt")
    wish = {"present": ["pci=x"], "absent": ["nosmt"]}
    (change,) = plan("kernel_cmdline", wish, on, options=("reboot",))
    file, entry, once = change.actions
    assert file.content.splitlines()[-2:] == [
        f'GRUB_CMDLINE_LINUX_DEFAULT="{OURS} nosmt"',
        '[ -z "${NODEVET_ONCE-}" ] || GRUB_CMDLINE_LINUX_DEFAULT="$NODEVET_BEFORE pci=x"',
    ]
    assert (entry.path, entry.mode) == ("/etc/grub.d/98_nodevet-once-kernel-cmdline", 0o755)
    assert once == boot_once.boot_once("kernel-cmdline", ["pci=x"], ["nosmt"])
    removed, *kept = change.keep
    assert (removed.path, removed.content) == (entry.path, None)
    (at_once,) = plan("kernel_cmdline", wish, on)
    assert tuple(kept) == at_once.actions and at_once.keep == ()
    assert change.note.startswith(TRIED) and at_once.note.startswith(AT_ONCE.format(NO_REBOOT))
    assert at_once.resources == tuple(
        each for each in change.resources if each.kind != "boot_once" and "98_" not in each.name
    )


def test_if_grub_cannot_boot_once_the_plan_makes_the_new_line_the_default_at_once(plan):
    why = "/boot/grub is on lvm, which GRUB does not write"
    for fields, reason in (({"once": why}, why), ({"once": None}, "not in the evidence")):
        on = node(**fields)
        (change,) = plan("kernel_cmdline", {"present": ["pci=x"]}, on, options=("reboot",))
        assert change.keep == () and change.actions[-1] == boot_parameter.update(["pci=x"])
        assert reason in change.note


HAS_SMT = setting('"quiet nosmt"', line=12)
CLOUD = "/etc/default/grub.d/zzz-cloudimg.cfg"


@pytest.mark.parametrize(
    ("wish", "sections", "why"),
    [
        ({"present": ["a=$(reboot)"]}, node(), "letters, digits"),
        ({"present": ["a=`id`"]}, node(), "letters, digits"),
        ({"present": ['a="b"']}, node(), "letters, digits"),
        ({"present": ["a;b"]}, node(), "letters, digits"),
        ({"present": ["-x=1"]}, node(), "letters, digits"),
        ({"absent": ["a*"]}, node(booted="a*"), "letters, digits"),
        ({"present": ["root=/dev/sda"]}, node(), "where the node boots from"),
        ({"present": ["init=/bin/sh"]}, node(), "where the node boots from"),
        ({"absent": ["ro"]}, node(), "where the node boots from"),
        ({"present": ["mitigations=auto"]}, node(setting('"mitigations=off"', line=12)), "grub:12"),
        ({"present": ["pci-x=1"]}, node(setting("pci_x=2", line=12)), "grub:12 sets it"),
        ({"present": ["pci=x"]}, node(setting("'a pci=x'", line=12)), "has it: run update-grub"),
        ({"absent": ["nosmt"]}, node(HAS_SMT, booted="nosmt", entries="nosmt"), "grub:12 has it"),
        ({"absent": ["nosmt"]}, node(booted="nosmt", entries="nosmt"), "does not see what adds it"),
        ({"absent": ["nosmt"]}, node(booted="nosmt"), "no entry of GRUB has it"),
        ({"present": ["pci=x"]}, node(setting('"quiet"', CLOUD)), "is read after"),
        ({"present": ["pci=x"]}, node(newer=["/etc/default/grub"]), "is newer than"),
        ({"present": ["pci=x"]}, node(entries="-- single"), "has `--`"),
        (
            {"present": ["pci=x"]},
            node(entries="") | {"host": {"cmdline": "root=/dev/nfs"}},
            "root=",
        ),
        ({"present": ["pci=x"]}, node(entries="") | {"bootloader": {}}, "programs: not in the"),
    ],
)
def test_unsafe_parameters_and_settings_of_an_admin_are_refused_with_the_reason(
    plan, wish, sections, why
):
    with pytest.raises(FixError, match=why):
        plan("kernel_cmdline", wish, sections)


def test_a_refused_parameter_does_not_prevent_the_others(plan):
    wish = {"present": ["pci=x", "root=/dev/sda"]}
    (change,) = plan("kernel_cmdline", wish, node())
    assert added(change) == "pci=x" and change.subjects == ("parameter pci=x",)
    assert "not in the plan: root=/dev/sda: nodevet does not change where" in change.note


def test_a_parameter_that_another_fix_already_sets_is_refused(plan):
    other = setting(f'"{OURS} nosmt"', SMT)
    (change,) = plan("kernel_cmdline", {"present": ["pci=x"]}, node(other, entries="nosmt"))
    assert added(change) == "pci=x"
    with pytest.raises(FixError, match=r"zz-nodevet-smt.cfg:10 already has it"):
        plan("kernel_cmdline", {"present": ["nosmt"]}, node(other, entries="nosmt"))


WISH = {"present": ["iommu=pt", "pci=x"], "absent": ["nosmt"]}


@pytest.mark.parametrize(
    ("programs", "files", "why"),
    [
        (["grubby", "grub2-mkconfig"], [], "run `grubby --update-kernel=ALL --args='pci=x'` and"),
        (["grubby"], ["/etc/kernel/cmdline"], "--remove-args='nosmt'` and reboot"),
        (["kernelstub"], [], "run `kernelstub -a 'pci=x'` and reboot"),
        ([], ["/etc/kernel/cmdline"], "in /etc/kernel/cmdline add pci=x, run `kernel-install add`"),
        (["sdbootutil"], ["/etc/kernel/cmdline"], "remove nosmt, run `sdbootutil update-all-entr"),
        (["grub2-mkconfig"], ["/boot/grub2/grub.cfg"], "`grub2-mkconfig -o /boot/grub2/grub.cfg`"),
        (["update-grub", "grubby"], [], "update-grub and grubby: nodevet cannot tell"),
        (["update-grub"], ["/etc/kernel/cmdline"], "update-grub and /etc/kernel/cmdline"),
        ([], [], "no boot loader that nodevet knows"),
    ],
)
def test_another_boot_loader_is_refused_with_the_manual_commands(plan, programs, files, why):
    sections = node(booted="nosmt iommu=pt", programs=programs, files=files)
    with pytest.raises(FixError, match=why):
        plan("kernel_cmdline", WISH, sections)


def test_grub_without_a_linux_entry_is_refused(plan):
    with pytest.raises(FixError, match="no entry for Linux"):
        plan(
            "kernel_cmdline",
            {"present": ["pci=x"]},
            node(entries="") | {"bootloader": node()["bootloader"] | {"entries": []}},
        )


@pytest.mark.parametrize("field", ["programs", "files", "entries", "settings", "newer"])
def test_boot_loader_values_that_were_not_read_are_refused(plan, field):
    sections = node()
    del sections["bootloader"][field]
    sections["bootloader"]["errors"] = {field: "EACCES"}
    with pytest.raises(FixError, match=f"bootloader: {field}: EACCES"):
        plan("kernel_cmdline", {"present": ["pci=x"]}, sections)


# --- the IOMMU -----------------------------------------------------------------------------------


def functions(*types: str) -> dict[str, Any]:
    rows = [
        {
            "address": f"0000:0{number}:00.0",
            "kind": "gpu",
            "driver": "nvidia",
            "iommu_group": -1 if kind == "disabled" else number,
            "iommu_type": "" if kind == "disabled" else kind,
        }
        for number, kind in enumerate(types)
    ]
    return {"pci_settings": {"count": len(rows), "functions": rows}}


@pytest.mark.parametrize(
    ("types", "one_of", "vendor", "word"),
    [
        (["DMA", "DMA-FQ"], ["identity"], "", "iommu=pt"),
        (["DMA"], ["disabled", "identity"], "", "iommu=pt"),
        (["DMA"], ["disabled"], "GenuineIntel", "intel_iommu=off"),
        (["identity"], ["disabled"], "AuthenticAMD", "amd_iommu=off"),
    ],
)
def test_an_iommu_mode_is_set_by_the_parameter_that_guarantees_it(
    plan, types, one_of, vendor, word
):
    sections = {**node(), **functions(*types), "cpu": {"vendor": vendor}}
    (change,) = plan("iommu", one_of, sections)
    assert added(change) == word and len(change.subjects) == len(types)
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")


@pytest.mark.parametrize(
    ("types", "one_of", "why"),
    [
        (["disabled"], ["identity"], "firmware"),
        (["DMA", "disabled"], ["identity"], "firmware"),
        (["identity"], ["DMA"], "sets no other mode"),
        (["DMA"], ["DMA-FQ"], "sets no other mode"),
        (["blocked"], ["identity"], "sets no other mode"),
        (["DMA"], ["disabled"], "Intel and AMD"),
    ],
)
def test_an_iommu_mode_that_the_firmware_or_an_admin_decides_is_refused(plan, types, one_of, why):
    with pytest.raises(FixError, match=why):
        plan("iommu", one_of, {**node(), **functions(*types), "cpu": {"vendor": "other"}})


# --- SMT -----------------------------------------------------------------------------------------


def cpu(active: bool, control: str | None) -> dict[str, Any]:
    return {"cpu": {"smt_active": active, "smt_control": control}}


CONTROL = "/sys/devices/system/cpu/smt/control"


def test_smt_is_turned_off_now_and_at_every_boot(plan):
    (change,) = plan("smt", False, {**node(), **cpu(True, "on")})
    assert added(change) == "nosmt" and change.risk is Risk.DRAIN
    assert change.actions[-1] == WriteKernel(path=CONTROL, value="off")
    assert change.effective == "now"


def test_smt_is_turned_on_and_nodevets_own_parameter_is_removed(plan):
    own = setting(f'"{OURS} nosmt"', SMT)
    (change,) = plan(
        "smt", True, {**node(own, booted="nosmt", entries="nosmt"), **cpu(False, "off")}
    )
    assert change.actions[0] == WriteFile(path=SMT, content=None)
    assert change.actions[2:] == (
        boot_parameter.update([], ["nosmt"]),
        WriteKernel(path=CONTROL, value="on"),
    )


@pytest.mark.parametrize(("on", "booted"), [(True, ""), (False, "nosmt")])
def test_a_correct_command_line_is_not_changed(plan, on, booted):
    """Whatever the boot loader is: someone wrote the file at run time."""
    sections = {**node(booted=booted, programs=[]), **cpu(not on, "off" if on else "on")}
    (change,) = plan("smt", on, sections)
    assert change.actions == (WriteKernel(path=CONTROL, value="on" if on else "off"),)
    assert [each.label for each in change.resources] == [f"kernel {CONTROL}"]


@pytest.mark.parametrize(
    ("on", "sections", "why"),
    [
        (True, node() | cpu(False, "notsupported"), "firmware"),
        (True, node() | cpu(False, "forceoff"), "nosmt=force"),
        (True, node() | cpu(False, None), "cannot change it"),
        (False, node() | cpu(True, "notimplemented"), "cannot change it"),
        (True, node(HAS_SMT, booted="nosmt", entries="nosmt") | cpu(False, "off"), "grub:12"),
        (True, node() | cpu(False, "off") | {"host": {}}, "could not read the kernel's"),
        (False, node(programs=[]) | cpu(True, "on"), "no boot loader"),
    ],
)
def test_smt_that_the_firmware_or_an_admin_decides_is_refused(plan, on, sections, why):
    with pytest.raises(FixError, match=why):
        plan("smt", on, sections)
