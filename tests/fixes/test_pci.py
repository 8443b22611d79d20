"""Plans of pcie_settings and acs: which registers they set, and where they refuse."""

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.remote.look import look
from nodevet.resource import Resource, RunCommand, State, holds, restore
from nodevet.resource.file import WriteFile
from nodevet_sim.tree import hgx, write

GPU, NIC, PORT, ROOT = "0000:19:00.0", "0000:1a:00.0", "0000:17:01.0", "0000:15:01.0"
FUNCTIONS = {
    GPU: {"driver": "nvidia", "vendor": "10de", "device": "2330"},
    NIC: {"driver": "mlx5_core", "vendor": "15b3", "device": "1021"},
    PORT: {"driver": "pcieport", "vendor": "1000", "device": "c030"},
    ROOT: {"driver": "pcieport", "vendor": "8086", "device": "352a"},
}
DEVICE = {
    "driver": "x",
    "above": [PORT, ROOT],
    "max_payload_b": 256,
    "max_read_request_b": 4096,
    "relaxed_ordering": True,
    "aspm": "disabled",
    "iommu_group": 3,
    "iommu_type": "identity",
    "errors": {"acs_enabled": "no ACS capability"},
}
OF_PORT = {"kind": "port", "driver": "pcieport", "above": [], "acs_enabled": 1}
USERS = "/sys/module/kvm_intel/refcnt"
ANSWER = {"kind": "equals", "text": "0", "found": True}
WISH = {"minimum_read_request_b": 1024, "relaxed_ordering": True, "of": ["nic"]}
SMALL = {"max_read_request_b": 512}
REDIRECTS = {"acs_enabled": 0x1D}


def files(*answers):
    return {"files": {"files": [{"path": USERS, "exists": True, "matches": list(answers)}]}}


def node(functions=(), **changed):
    """A node with a GPU and a NIC below one port. `functions`: changed fields of them in section
    pci; `gpu`, `nic`, `port`, `root`: of their settings; every other name: fields of a section."""
    settings = [
        {"address": GPU, "kind": "gpu", **DEVICE, **changed.pop("gpu", {})},
        {"address": NIC, "kind": "nic", **DEVICE, **changed.pop("nic", {})},
        {"address": PORT, **OF_PORT, **changed.pop("port", {})},
        {"address": ROOT, **OF_PORT, **changed.pop("root", {})},
    ]
    changes = dict(functions)
    sections = {
        "host": {"virtualization": "none", "cmdline": "iommu=pt"},
        "pci": {
            "functions": [
                {"address": address, "physfn": "", **fields, **changes.get(address, {})}
                for address, fields in FUNCTIONS.items()
            ]
        },
        "pci_settings": {"count": 4, "functions": settings},
        "modules": {"loaded": ["nvidia", "kvm_intel", "kvm"], "builtin": ["pci_stub", "vfio_pci"]},
        **files(ANSWER),
    }
    for name, fields in changed.items():
        sections[name] = {**sections[name], **fields}
    return sections


def commands(change):
    return [" ".join(action.words) for action in change.actions if isinstance(action, RunCommand)]


def boot(change):
    (text,) = (action.content for action in change.actions if isinstance(action, WriteFile))
    return text


def test_only_the_expected_bits_of_the_failing_function_are_set(plan):
    (change,) = plan("pcie_settings", WISH, node(nic=SMALL))
    assert commands(change) == [f"setpci -s {NIC} CAP_EXP+8.w=3010:7010"]
    assert (change.risk, change.subjects) == (Risk.IDLE, (f"pci {NIC}",))
    assert f"setpci -d 15b3:1021 -s {NIC} CAP_EXP+8.w=3010:7010 ||" in boot(change)
    assert GPU not in boot(change)
    wish = {"relaxed_ordering": False}
    (change,) = plan("pcie_settings", wish, node(gpu={"relaxed_ordering": False}))
    assert commands(change) == [f"setpci -s {NIC} CAP_EXP+8.w=0000:0010"]
    assert f"setpci -d 10de:2330 -s {GPU} CAP_EXP+8.w=0000:0010 ||" in boot(change)


def test_a_function_with_more_than_expected_keeps_it(plan):
    small = {"max_read_request_b": 128}
    (change,) = plan("pcie_settings", {"minimum_read_request_b": 512}, node(nic=small))
    assert commands(change) == [f"setpci -s {NIC} CAP_EXP+8.w=2000:7000"]
    assert f"-s {GPU} CAP_EXP+8.w=5000:7000 ||" in boot(change)


def test_a_function_that_cannot_be_repaired_does_not_hold_up_the_others(plan):
    wish = {"minimum_read_request_b": 1024, "minimum_payload_b": 256}
    payload = {"max_payload_b": 128, **SMALL}
    (change,) = plan("pcie_settings", wish, node(gpu=payload, nic=SMALL))
    assert commands(change) == [f"setpci -s {NIC} CAP_EXP+8.w=3000:7000"]
    assert f"-s {GPU} CAP_EXP+8.w=2000:7000 ||" in boot(change), "it keeps its value"
    assert f"{GPU}: MaxPayload must match along the whole path" in change.note


ROOT_ID = {ROOT: {"device": "6f08"}}
UNREAD = {"relaxed_ordering": None, "errors": {"relaxed_ordering": "EIO"}, **SMALL}
STRICT = {"relaxed_ordering": False}


@pytest.mark.parametrize(
    ("wish", "sections", "reason"),
    [
        ({"minimum_payload_b": 512}, node(), "MaxPayload must match along the whole path"),
        ({"aspm": "disabled"}, node(nic={"aspm": "L1"}), "the kernel sets ASPM"),
        (WISH, node(nic=UNREAD), "relaxed_ordering: EIO"),
        (WISH, node(nic=SMALL, gpu={"max_read_request_b": 16384}), None),
        ({**WISH, "of": ["gpu", "nic"]}, node(nic=SMALL, gpu={"max_read_request_b": 16384}),
         f"{GPU}: MaxReadReq has no valid value"),
        (WISH, node(nic=SMALL, host={"cmdline": "quiet pci=pcie_bus_perf"}), "pcie_bus_perf"),
        (WISH, node(nic=SMALL, host={"cmdline": None}), "could not read whether"),
        (WISH, node(ROOT_ID, nic=STRICT), "Linux turns relaxed ordering off below 8086:6f08"),
        (WISH, node({ROOT: {"device": None}}, nic=STRICT), "its vendor and device were not read"),
        (WISH, node({ROOT: {"device": None}}, nic=SMALL), None),
        (WISH, node({NIC: {"vendor": "15b3 -s 0"}}, nic=SMALL), "its vendor and device"),
        (WISH, node({NIC: {"device": None}}, nic=SMALL), "its vendor and device"),
    ],
)  # fmt: skip
def test_settings_outside_nodevets_reach_are_refused(plan, wish, sections, reason):
    if reason is None:
        assert plan("pcie_settings", wish, sections)
        return
    with pytest.raises(FixError) as caught:
        plan("pcie_settings", wish, sections)
    assert reason in str(caught.value)


def test_redirection_is_turned_off_in_the_ports_that_have_it(plan):
    (change,) = plan("acs", False, node(port=REDIRECTS))
    assert commands(change) == [f"setpci -s {PORT} ECAP_ACS+6.w=0000:000c"]
    assert (change.risk, change.subjects) == (Risk.IDLE, (f"pci {PORT}",))
    for card, port in (("1000:c030", PORT), ("8086:352a", ROOT)):
        assert f"setpci -d {card} -s {port} ECAP_ACS+6.w=0000:000c ||" in boot(change)
    without = {"acs_enabled": None, "errors": {"acs_enabled": "no ACS capability"}}
    (change,) = plan("acs", False, node(port=REDIRECTS, root=without))
    assert ROOT not in boot(change)


LOADED = ["nvidia", "kvm_intel", "kvm"]


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"functions": {NIC: {"driver": "vfio-pci"}}}, f"{NIC} is bound to vfio-pci"),
        ({"functions": {NIC: {"driver": None}}}, f"{NIC}: driver: not in the evidence"),
        ({"functions": {NIC: {"physfn": "0000:1b:00.0"}}}, "is a virtual function of 0000:1b:00.0"),
        ({"functions": {NIC: {"physfn": None}}}, f"{NIC}: physfn: not in the evidence"),
        ({"pci": {"functions": None}}, "the PCI functions were not read"),
        ({"modules": {"loaded": [*LOADED, "vfio"]}}, "the module vfio is loaded"),
        ({"modules": {"loaded": ["nvgrace_gpu_vfio_pci"]}}, "the module nvgrace_gpu_vfio_pci"),
        ({"modules": {"loaded": ["nvidia_vgpu_vfio"]}}, "the module nvidia_vgpu_vfio is loaded"),
        ({"modules": {"loaded": None}}, "the kernel's modules were not read"),
        ({"modules": {"builtin": None}}, "the kernel's modules were not read"),
        ({"modules": {"builtin": ["kvm"]}}, "kvm is built into the kernel"),
        ({"modules": {"loaded": ["kvm_amd"]}}, "kvm_amd is in use"),
        (files({**ANSWER, "found": False}), "kvm_intel is in use"),
        (files({**ANSWER, "found": None}), "kvm_intel is in use"),
        (files({**ANSWER, "kind": "contains", "text": "x"}), "kvm_intel is in use"),
        ({"files": {"files": []}}, "kvm_intel is in use"),
        ({"host": {"cmdline": "iommu=pt pci=config_acs=1@0000:17:01.0"}}, "command line sets ACS"),
        ({"host": {"cmdline": "iommu=pt pcie_acs_override=downstream"}}, "command line sets ACS"),
        ({"host": {"cmdline": None}}, "or was not read"),
        ({"gpu": {"iommu_type": "DMA-FQ"}}, f"the IOMMU translates for {GPU}: DMA-FQ"),
        ({"gpu": {"iommu_type": None}}, f"the IOMMU translates for {GPU}: not in the evidence"),
        ({"nic": {"iommu_group": None}}, f"{NIC}: iommu_group: not in the evidence"),
        ({"root": {"acs_enabled": None, "errors": {"acs_enabled": "EIO"}}}, f"{ROOT}: EIO"),
        ({"functions": {ROOT: {"vendor": "80:6"}}}, f"{ROOT}: its vendor and device"),
    ],
)  # fmt: skip
def test_acs_is_not_touched_where_it_may_isolate_guests(plan, wrong, evidence, sections, reason):
    findings = wrong("acs", False, evidence(node(port=REDIRECTS)))
    with pytest.raises(FixError) as caught:
        plan("acs", False, node(**{"port": REDIRECTS, **sections}), findings)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "sections",
    [
        {"nic": {"iommu_group": -1, "iommu_type": ""}},
        {"modules": {"loaded": ["nvidia"]}, "files": {"files": []}},
        {"functions": {NIC: {"driver": None, "errors": {"driver": "no driver is bound"}}}},
    ],
)
def test_acs_is_turned_off_where_no_guest_can_run(plan, sections):
    assert plan("acs", False, node(port=REDIRECTS, **sections))


def test_redirection_is_not_turned_on(plan):
    with pytest.raises(FixError, match="redirection needs the BIOS"):
        plan("acs", True, node())


@pytest.mark.parametrize("check", ["pcie_settings", "acs"])
def test_another_nodes_finding_plans_nothing(plan, wrong, evidence, check):
    wish = WISH if check == "pcie_settings" else False
    bad = node(nic=SMALL, port=REDIRECTS)
    findings = wrong(check, wish, evidence(bad))
    other = node()
    other["pci_settings"] = {"count": 0, "functions": []}
    with pytest.raises(FixError):
        plan(check, wish, other, findings)


# --- the register itself ----------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A machine's files, and `setpci` on them."""
    root = tmp_path / "root"
    write(replace(hgx("n1"), cores_per_socket=2, smt=False), root)
    program = tmp_path / "bin/setpci"
    program.parent.mkdir()
    real = shutil.which("setpci") or "/usr/sbin/setpci"
    options = f"-A linux-sysfs -O sysfs.path={root}/sys/bus/pci"
    program.write_text(f'#!/bin/sh\nexec {real} {options} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return root


def seen(root, name):
    (state,) = look({"root": str(root), "resources": [{"kind": "pci_register", "name": name}]})
    return State(resource=Resource(kind="pci_register", name=name), **state)


def test_a_register_is_read_set_and_restored_by_setpci(tree):
    name = f"{NIC}:CAP_EXP+8.w"
    before = seen(tree, name)
    assert (before.exists, before.value) == (True, 0x5010)
    command = RunCommand(words=("setpci", "-s", NIC, "CAP_EXP+8.w=0000:7000"))
    assert holds(command, [before]) is False
    subprocess.run(command.words, check=True)
    now = seen(tree, name)
    assert now.value == 0x0010 and holds(command, [now]) is True
    (back,) = restore(before)
    subprocess.run(back.words, check=True)
    assert seen(tree, name) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"{NIC}:CAP_EXP+10.w", "not a valid name of a register"),
        (f"{NIC}:COMMAND", "not a valid name of a register"),
        (f"../../{NIC}:CAP_EXP+8.w", "not a valid name of a register"),
        (f"{NIC}:ECAP_ACS+6.w", "no ACS capability"),
    ],
)
def test_no_other_register_is_read(tree, name, why):
    assert seen(tree, name).why == why


def test_a_different_card_at_the_same_address_keeps_its_registers(tree, plan):
    """The unit as systemd runs it, on a machine with another card at the NIC's address."""
    (change,) = plan("pcie_settings", {"relaxed_ordering": False}, node())
    script = boot(change).split("ExecStart=/bin/sh -c '", 1)[1].split("'\n", 1)[0]
    script = script.replace("\\\n", " ").replace("$$", "$")  # systemd.syntax(7), systemd.exec(5)
    (tree / f"sys/bus/pci/devices/{NIC}/device").write_text("0x1017\n")
    config = tree / f"sys/bus/pci/devices/{NIC}/config"
    config.write_bytes(b"\xb3\x15\x17\x10" + config.read_bytes()[4:])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "No devices selected" in done.stderr
    assert seen(tree, f"{NIC}:CAP_EXP+8.w").value == 0x5010
    assert seen(tree, f"{GPU}:CAP_EXP+8.w").value == 0x5000
