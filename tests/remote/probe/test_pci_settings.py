"""Configuration space is decoded as lspci decodes it, and no list in it leads astray."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lspci import dumped_space, functions_of, settings_of, write

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.model import Verdict
from nodevet.remote.probe.collectors import pci, pci_settings
from nodevet.remote.probe.files import SectionError
from nodevet.remote.probe.pci_config import NO_ACS, Registers, access_control, express

Check = Callable[..., Any]
XE9680 = "lspci/gpud-dell-xe9680-8xh100-vvv.txt"
ASKS = {"pci_settings": ["config", "iommu", "interrupts"]}


def registers(place: Path, content: bytes) -> Registers:
    place.write_bytes(content)
    return Registers("/", str(place))


@pytest.mark.parametrize(
    "name",
    [
        "cap-aer-hdr",
        "cap-aer-root",
        "cap-dev3",
        "cap-exp-dev2",
        "cap-exp-lnkcap2",
        "cap-l1-pm",
        "cap-pcie-2",
    ],
)
def test_registers_are_decoded_as_lspci_decodes_them(
    captures: Path, tmp_path: Path, name: str
) -> None:
    text = (captures / "copyleft/lspci/pciutils" / name).read_text(encoding="utf-8")
    count = 0
    for _, block in functions_of(text):
        wanted, space = settings_of(block), dumped_space(block)
        word = registers(tmp_path / "config", space)
        found = express(word)
        assert found == {key: wanted[key] for key in found}
        if "acs_enabled" in wanted:
            assert access_control(word, word.size)[1] == wanted["acs_enabled"]
        else:
            with pytest.raises(ValueError, match=NO_ACS):
                access_control(word, word.size)
        word.close()
        count += 1
    assert count == len(re.findall(r"^00: ", text, re.M))


@pytest.fixture(scope="module")
def xe9680(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A tree of that machine's GPUs, NICs, NVMe and bridges, and what lspci said of each."""
    root = tmp_path_factory.mktemp("xe9680").resolve()
    text = (captures / XE9680).read_text(encoding="utf-8")
    return str(root), write(text, root, {"0": "0-55", "1": "56-111"})


def collected(root: str, asks: dict[str, list[str]] = ASKS) -> tuple[dict[str, Any], Any]:
    bus = {"status": "ok", "data": pci.collect(root, {})}
    return bus, pci_settings.collect(root, {"asks": asks, "found": {"pci": bus}})


def test_a_node_of_eight_h100_is_read_as_lspci_read_it(
    xe9680: tuple[str, dict[str, str]], check: Check
) -> None:
    root, blocks = xe9680
    _, data = collected(root)
    found = check("pci_settings", data)
    assert found.count == len(found.functions) > 50
    kinds = [each.kind for each in found.functions]
    assert [kinds.count(kind) for kind in ("gpu", "nvme")] == [8, 8]
    for each in found.functions:
        wanted = settings_of(blocks[each.address])
        assert {key: getattr(each, key) for key in wanted} == wanted, each.address
        if "acs_enabled" not in wanted:
            assert each.why("acs_enabled") == NO_ACS
    gpus = [each for each in found.functions if each.kind == "gpu"]
    assert {(gpu.max_payload_b, gpu.max_read_request_b) for gpu in gpus} == {(256, 4096)}
    assert all(len(gpu.above) >= 3 for gpu in gpus)


@pytest.mark.parametrize(("redirect", "verdict"), [(False, Verdict.OK), (True, Verdict.FAIL)])
def test_no_port_above_the_gpus_and_nics_of_a_real_node_redirects(
    xe9680: tuple[str, dict[str, str]], redirect: bool, verdict: Verdict
) -> None:
    """Six ports of that machine have ACS on, above its NVSwitches."""
    bus, data = collected(xe9680[0])
    host = {"status": "ok", "data": {"virtualization": "none"}}
    sections = {"host": host, "pci": bus, "pci_settings": {"status": "ok", "data": data}}
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections}))
    acs = Catalog().check("acs")
    found = list(acs.judge(evidence, acs.params(redirect=redirect)))
    seen = {finding.verdict for finding in found}
    assert verdict in seen and seen <= {verdict, Verdict.NOT_APPLICABLE}
    assert len(found) > 30


def space(**words: int) -> bytes:
    """A space of 512 bytes with these words; the keys are their places, x34 for 0x34."""
    content = bytearray(512)
    for at, word in {"x06": 0x10, **words}.items():
        place = int(at[1:], 16)
        content[place : place + 2] = word.to_bytes(2, "little")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff" * 512, "does not answer"),
        (space(x06=0), "no PCI Express capability"),
        (space(), "no PCI Express capability"),
        (space(x34=0x40, x40=0x4001), "has no end"),
        (space(x34=0x40, x40=0x5001, x50=0x4005), "has no end"),
        (space(x34=0x40, x40=0xFFFF), "is broken at 0x40"),
        (space(x34=0x10), "no PCI Express capability"),
        (space(x34=0xFC, xfc=0x0010)[:256], "beyond the 256 bytes"),
        (space(x34=0x40, x40=0x0010)[:64], "beyond the 64 bytes"),
        (b"", "beyond the 0 bytes"),
    ],
)
def test_a_list_that_leads_nowhere(tmp_path: Path, content: bytes, words: str) -> None:
    word = registers(tmp_path / "config", content)
    with pytest.raises(ValueError, match=words):
        express(word)
    word.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (space(), NO_ACS),
        (space()[:256], NO_ACS),
        (space(x100=0x0001, x102=0x1001), "has no end"),
        (space(x100=0x0001, x102=0x1401, x140=0x0002, x142=0x1001), "has no end"),
        (space(x100=0xFFFF, x102=0xFFFF), "is broken at 0x100"),
        (space(x34=0x40, x40=0x0010)[:256], "cannot be reached"),
        (space(x34=0x40, x40=0x0010)[:64], "beyond the 64 bytes"),
        (space(x100=0x0001, x102=0xFF01), "beyond the 512 bytes"),
    ],
)
def test_an_extended_list_that_leads_nowhere(tmp_path: Path, content: bytes, words: str) -> None:
    word = registers(tmp_path / "config", content)
    with pytest.raises(ValueError, match=words):
        access_control(word, word.size)
    word.close()


@given(st.binary(max_size=300), st.sampled_from([0x40, 0x80, 0xFC]))
def test_reading_a_random_configuration_space_ends(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    content = space(x34=at)[:0x40] + noise * 14
    word = registers(tmp_path_factory.mktemp("noise") / "config", content)
    for read in (lambda: express(word), lambda: access_control(word, word.size)):
        with suppress(ValueError):
            read()
    word.close()


def test_what_only_root_may_read_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: whole(file, max(0, 64 - at), at)[:size])
    word = registers(tmp_path / "config", space(x34=0x40, x40=0x0010))
    with pytest.raises(ValueError, match="only root may read it"):
        express(word)
    with pytest.raises(ValueError, match="only root may read it"):
        access_control(word, word.size)
    word.close()


def test_only_what_is_asked_for_is_read(
    xe9680: tuple[str, dict[str, str]], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pci_settings, "Registers", None)
    _, data = collected(xe9680[0], {"pci_settings": ["iommu"]})
    found = check("pci_settings", data)
    gpu = next(each for each in found.functions if each.kind == "gpu")
    assert (gpu.iommu_group, gpu.iommu_type) == (-1, "")
    assert gpu.why("aspm") == gpu.why("irqs") == "the probe was not asked for it"


def test_without_the_bus_there_is_nothing_to_read() -> None:
    found = {"pci": {"status": "timeout", "why": "timed out"}}
    with pytest.raises(SectionError, match="pci: timed out"):
        pci_settings.collect("/", {"asks": ASKS, "found": found})


def test_groups_and_interrupts(tmp_path: Path, check: Check) -> None:
    address = "0000:01:00.0"
    place = tmp_path / f"sys/devices/pci0000:00/{address}"
    (place / "msi_irqs").mkdir(parents=True)
    for name, text in (("class", "0x020000"), ("vendor", "0x15b3"), ("local_cpulist", "0-3")):
        (place / name).write_text(f"{text}\n")
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    (tmp_path / "sys/kernel/iommu_groups/7").mkdir(parents=True)
    (tmp_path / "sys/kernel/iommu_groups/7/type").write_text("DMA-FQ\n")
    (place / "iommu_group").symlink_to("../../../kernel/iommu_groups/7")
    affinity = {40: "2", 41: "", 42: "5"}
    for number, cpus in affinity.items():
        (place / "msi_irqs" / str(number)).write_text("msix\n")
        irq = tmp_path / f"proc/irq/{number}"
        irq.mkdir(parents=True)
        name = "smp_affinity_list" if number == 42 else "effective_affinity_list"
        (irq / name).write_text(f"{cpus}\n")
    _, data = collected(str(tmp_path.resolve()))
    (nic,) = check("pci_settings", data).functions
    assert (nic.iommu_group, nic.iommu_type, nic.irqs, nic.irq_cpus) == (7, "DMA-FQ", 3, "2,5")
    assert nic.why("aspm") == "ENOENT"
    (tmp_path / "proc/irq/42/smp_affinity_list").unlink()
    (tmp_path / "sys/kernel/iommu_groups/7/type").unlink()
    _, data = collected(str(tmp_path.resolve()))
    (nic,) = check("pci_settings", data).functions
    assert (nic.irqs, nic.irq_cpus, nic.why("irq_cpus")) == (3, None, "ENOENT")
    assert (nic.iommu_group, nic.why("iommu_type")) == (7, "ENOENT")


def test_registers_beyond_a_capture_of_64_bytes_are_unread(
    capture: Callable[[str], str], check: Check
) -> None:
    """A Skylake server, as any user can capture it."""
    _, data = collected(capture("sysfs/nfd-pci-rootfs-1.tar.gz"))
    found = check("pci_settings", data)
    assert {each.kind for each in found.functions} & {"nic", "nvme"}
    for each in found.functions:
        assert each.why("max_payload_b") == each.why("acs_enabled") == "beyond the 64 bytes"


def test_the_iommu_groups_of_a_captured_laptop(capture: Callable[[str], str], check: Check) -> None:
    _, data = collected(
        capture("sysfs/ghw/linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d.tar.gz"),
        {"pci_settings": ["iommu"]},
    )
    found = check("pci_settings", data)
    groups = {each.address: each.iommu_group for each in found.functions}
    assert groups and -1 not in groups.values() and None not in groups.values()
    assert {each.why("iommu_type") for each in found.functions} == {"ENOENT"}


@pytest.mark.skipif(
    shutil.which("lspci") is None or os.geteuid() != 0, reason="lspci as root is not to be had here"
)
def test_this_machine_is_read_as_lspci_reads_it() -> None:
    """Every function with a PCI Express capability; a virtual machine may have none."""
    done = subprocess.run(["lspci", "-D", "-vvv"], capture_output=True, text=True, check=True)
    for address, block in functions_of(done.stdout):
        wanted = settings_of(block)
        if "max_payload_b" in wanted:
            word = Registers("/", f"/sys/bus/pci/devices/{address}/config")
            found = express(word)
            word.close()
            assert found == {key: wanted[key] for key in found}, address
