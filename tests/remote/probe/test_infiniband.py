"""RDMA devices and their ports, as the kernel's class has them."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.base import typed
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.remote.probe.collectors import infiniband
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]
CLASS = "sys/class/infiniband"
NIC = "sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.0"
NO_GID = ":".join(["0000"] * 8)


@pytest.fixture
def h100(captures: Path, tmp_path: Path) -> str:
    """/sys/class/infiniband of a node with eight H100."""
    with tarfile.open(captures / "ib/gpud-sys-class-infiniband-h100.tar.gz") as tar:
        for member in tar:
            inside = Path(member.name).parts[1:]
            if member.isfile():
                place = tmp_path.joinpath(CLASS, *inside)
                place.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                place.write_bytes(content.read())
    return str(tmp_path.resolve())


def test_a_node_with_eight_h100(h100: str, check: Check) -> None:
    found = check("infiniband", infiniband.collect(h100, {}))
    by_name = {device.name: device for device in found.devices}
    assert len(by_name) == 9 and set(found.found) == set(by_name)
    bond = by_name.pop("mlx5_bond_0")
    for device in by_name.values():
        assert (device.hca_type, device.fw_ver) == ("MT4129", "28.41.1000")
        (port,) = device.ports
        assert (port.state, port.phys_state, port.link_layer) == ("ACTIVE", "LinkUp", "InfiniBand")
        assert (port.rate_gbps, port.width, port.speed) == (400.0, 4, "NDR")
    (port,) = bond.ports
    assert (bond.hca_type, bond.fw_ver, port.link_layer) == ("MT41692", "32.38.3056", "Ethernet")
    assert (port.rate_gbps, port.width, port.speed) == (200.0, 2, "NDR")
    downed = {
        device.name: {counter.name: counter.value for counter in device.ports[0].counters}
        for device in found.devices
    }
    assert downed["mlx5_0"]["link_downed"] == 0 and downed["mlx5_1"]["link_downed"] == 255
    assert "lifespan" not in downed["mlx5_0"] and "out_of_sequence" in downed["mlx5_0"]


@pytest.fixture
def judged() -> Callable[[str, Any], dict[str, str]]:
    """What the check infiniband says of a tree, by subject."""

    def ask(root: str, said: dict[str, Any]) -> dict[str, str]:
        section = {"status": "ok", "data": infiniband.collect(root, {})}
        document = {"schema": 1, "probe": "0", "sections": {"infiniband": section}}
        check = Catalog().check("infiniband")
        params = typed.convert(said, check.params)
        found = check.judge(decode(msgspec.json.encode(document)), params)
        return {finding.subject.id: finding.verdict.value for finding in found}

    return ask


def test_eight_ports_of_400_gbps_are_judged_against_a_baseline(
    h100: str, judged: Callable[..., dict[str, str]]
) -> None:
    said = {"count": 8, "rate_gbps": 400, "width": 4, "uniform": True}
    assert set(judged(h100, said).values()) == {"unknown"}  # virtual functions? no link says
    for device in (Path(h100) / CLASS).iterdir():
        (device / "device").symlink_to("../../../../devices/pci0000:17/0000:1a:00.0")
    (Path(h100) / "sys/devices/pci0000:17/0000:1a:00.0").mkdir(parents=True)
    assert set(judged(h100, said).values()) == {"ok"}
    found = judged(h100, {**said, "maximum": {"link_downed": 10}})
    assert [name for name, verdict in found.items() if verdict == "fail"] == ["mlx5_1:1"]
    assert judged(h100, {**said, "rate_gbps": 800})["mlx5_0:1"] == "fail"
    assert judged(h100, {"count": 1, "link_layer": "Ethernet"})["mlx5_bond_0:1"] == "ok"


def test_fixtures_of_procfs(capture: Callable[[str], str], check: Check) -> None:
    found = check("infiniband", infiniband.collect(capture("sysfs/procfs-fixtures.ttar"), {}))
    by_name = {device.name: device for device in found.devices}
    assert sorted(by_name) == ["hfi1_0", "mlx4_0", "mlx5_0"]
    assert [port.number for port in by_name["mlx4_0"].ports] == [1, 2]
    (omni_path,) = by_name["hfi1_0"].ports
    assert (omni_path.rate_gbps, omni_path.speed) == (100.0, "EDR")
    assert by_name["hfi1_0"].why("hca_type") == "ENOENT"


def test_a_counter_that_the_adapter_does_not_have_is_not_zero(
    capture: Callable[[str], str], check: Check
) -> None:
    found = check("infiniband", infiniband.collect(capture("sysfs/node_exporter-sys.ttar"), {}))
    (device,) = (device for device in found.devices if device.name == "i40iw0")
    told = {counter.name: counter for counter in device.ports[0].counters}
    assert told["link_downed"].value is None
    assert told["link_downed"].why("value") == "not a number: 'N/A (no PMA)'"


@pytest.fixture
def root(tree: Any) -> Path:
    """A RoCE port and an InfiniBand one, each of a PCI function."""
    root: Path = tree.root
    for name, place, layer, netdev in (
        ("mlx5_0", NIC, "Ethernet", "ens1f0np0"),
        ("mlx5_1", NIC[:-1] + "1", "InfiniBand", "ib0"),
    ):
        device, port = f"{place}/infiniband/{name}", f"{place}/infiniband/{name}/ports/1"
        tree.put(place, numa_node=0)
        tree.put(f"{place}/net/{netdev}", dev_port=0)
        tree.put(device, fw_ver="28.43.2026", node_guid="a088:c203:00aa:bbcc")
        tree.put(port, state="4: ACTIVE", phys_state="5: LinkUp", link_layer=layer)
        tree.put(port, rate="400 Gb/sec (4X NDR)", lid="0x96", sm_lid="0x11c")
        tree.put(f"{port}/counters", link_downed=2)
        tree.put(f"{port}/gids", **{str(index): NO_GID for index in range(255)})
        tree.put(f"{port}/pkeys", **{str(index): "0x0000" for index in range(127)})
        tree.link(f"{device}/device", place)
        tree.link(f"{place}/driver", "sys/bus/pci/drivers/mlx5_core")
        tree.link(f"{CLASS}/{name}", device)
    port = root / CLASS / "mlx5_0/ports/1"
    for index, (gid, kind) in enumerate(
        [("fe80", "IB/RoCE v1"), ("fe80", "RoCE v2"), ("", ""), ("0000", "RoCE v2")]
    ):
        if gid:
            (port / f"gids/{index}").write_text(f"{gid}:0000:0000:0000:0000:ffff:0a00:0001\n")
            tree.put(f"{port}/gid_attrs/types", **{str(index): kind})
            tree.put(f"{port}/gid_attrs/ndevs", **{str(index): "ens1f0np0"})
    port = root / CLASS / "mlx5_1/ports/1"
    (port / "gids/0").write_text("fe80:0000:0000:0000:a088:c203:00aa:bbcc\n")
    (port / "pkeys/0").write_text("0xffff\n")
    (port / "pkeys/3").write_text("0x8001\n")
    return root


def test_a_roce_port_has_gids_of_its_interface(root: Path, check: Check) -> None:
    device = check("infiniband", infiniband.collect(str(root), {})).devices[0]
    assert (device.driver, device.bus_id, device.physfn) == ("mlx5_core", "0000:1a:00.0", "")
    assert (device.netdevs, device.ports[0].netdev) == (("ens1f0np0",), "ens1f0np0")
    told = [(gid.index, gid.type, gid.netdev) for gid in device.ports[0].gids]
    assert told == [
        (0, "IB/RoCE v1", "ens1f0np0"), (1, "RoCE v2", "ens1f0np0"), (3, "RoCE v2", "ens1f0np0"),
    ]  # fmt: skip
    assert device.ports[0].pkeys == ()


def test_an_infiniband_port_has_a_lid_and_partition_keys(root: Path, check: Check) -> None:
    port = check("infiniband", infiniband.collect(str(root), {})).devices[1].ports[0]
    assert (port.lid, port.sm_lid, port.pkeys) == (0x96, 0x11C, ("ffff", "8001"))
    assert (port.netdev, [gid.index for gid in port.gids]) == ("ib0", [0])


def test_the_empty_end_of_a_table_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(infiniband, "line", lambda root, path: read.append(path) or "0x0000")
    assert infiniband.table(str(root), f"/{CLASS}/mlx5_1/ports/1/pkeys/") == []
    assert len(read) == infiniband.EMPTY


def test_without_the_class_folder_no_device_is_read(tmp_path: Path, check: Check) -> None:
    with pytest.raises(Absent, match="no /sys/class"):
        infiniband.collect(str(tmp_path), {})
    (tmp_path / "sys/class").mkdir(parents=True)
    assert check("infiniband", infiniband.collect(str(tmp_path), {})).devices == ()


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, 4, "NDR")),
        ("200 Gb/sec (2X NDR)", (200.0, 2, "NDR")),
        ("800 Gb/sec (4X XDR)", (800.0, 4, "XDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1, "SDR")),
        ("10 Gb/sec (4X)", (10.0, 4, "")),
        ("56 Gb/sec (4X FDR)", (56.0, 4, "FDR")),
    ],
)
def test_rates(text: str, rate: tuple[float, int, str]) -> None:
    assert infiniband.parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "400", "400 Gb/sec", "fast (4X NDR)", "4e9 Gb/sec (4X NDR)"])
def test_a_text_that_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a rate"):
        infiniband.parse_rate(text)
