"""Faults of NICs and their links are found by their check and by no other: probed, not booted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.base import typed
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.network import Network
from nodevet.evidence.pci import Pci
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.collectors import infiniband, kernel_log, pci
from nodevet.remote.probe.collectors import network as network_of
from nodevet_sim import tree
from nodevet_sim.description import LogLine
from nodevet_sim.faults import network, rdma
from nodevet_sim.machine import BUSES, SimulatedMachine, machine_id
from nodevet_sim.scenario import describe as describe_node
from nodevet_sim.scenario.errors import ScenarioError
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
COUNTERS = {"link_downed": 10, "symbol_error": 100}
SAID: dict[str, dict[str, Any]] = {  # check -> its params, but for how many there are
    "infiniband": {"rate_gbps": 400, "width": 4, "uniform": True, "maximum": COUNTERS},
    "network_link": {"speed_gbps": 400, "mtu": 4092, "maximum": {"carrier_changes": 20}},
    "rdma": {},
}
FIRST, FOURTH = "ibp26s0", "ibp94s0"  # below 0000:1a:00.0 and 0000:5e:00.0
INTERFACES = {f"mlx5_{at}": f"ibp{bus + 1}s0" for at, bus in enumerate(BUSES)}
FOUND = {  # fault -> the checks and subjects that fail
    "address-missing": set(),  # what a boot does; see test_cluster_on_nodes.py
    "default-route-ipv6-missing": set(),  # see test_asked_on_nodes.py
    "default-route-missing": set(),
    "ib-port-down": {("infiniband", "mlx5_3:1"), ("network_link", FOURTH)},
    "ib-rate-degraded": {
        ("infiniband", "mlx5_3:1"),
        ("infiniband", "MT_0000000838"),
        ("network_link", FOURTH),
    },
    "link-bit-errors": set(),  # a program of the node says so
    "link-raw-errors": set(),
    "link-flapping": {("infiniband", "mlx5_3:1"), ("network_link", FOURTH)},
    "mtu-wrong": {("network_link", FIRST)},
    "nic-down": {("network_link", FIRST)},
    "rdma-interface-missing": {("network_link", ""), ("rdma", "mlx5_3")},
    "rdma-names-swapped": {("rdma", "mlx5_0"), ("rdma", "mlx5_1")},
}
OF_ETHERNET = {"link-outage"}
OF_EFA = {
    "efa-down": {("efa", "rdmap156s0")},
    "efa-unbound": {("efa", "")},
}

Judged = Callable[..., list[tuple[str, Finding]]]


def record(number: int, line: LogLine) -> str:
    """A line as /dev/kmsg has it."""
    return f"{line.level},{number},{round((line.seconds or 0.0) * 1e6)},-;{line.text}\n"


@pytest.fixture
def probed(tmp_path: Path) -> Callable[..., Evidence]:
    """What the probe reads of the network of a node with these faults."""

    def run(faults: list[object], **said: object) -> Evidence:
        known: dict[str, object] = {"gpus": "h100-sxm", "cores": 1, "faults": faults, **said}
        part = NodePart.model_validate_json(json.dumps(known))
        node = describe_node(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
        machine = SimulatedMachine("n1", machine_id("n1"), sockets=1, cores_per_socket=1)
        tree.write_out(machine, node.files, node.links, node.device_nodes, tmp_path / "root")
        root = str((tmp_path / "root").resolve())
        Path(root, "sys/class/net").mkdir(exist_ok=True)  # eth0 and lo are not simulated
        lines = (LogLine("Linux version 6.8.0"), *node.kernel_log)
        kmsg = Path(root, "dev/kmsg")
        kmsg.parent.mkdir(exist_ok=True)
        kmsg.write_text("".join(map(record, range(len(lines)), lines)))
        found = {
            "infiniband": infiniband.collect(root, {}),
            "kernel_log": kernel_log.collect(root, {}),
            "network": network_of.collect(root, {}),
            "pci": pci.collect(root, {}),
        }
        sections = {name: {"status": "ok", "data": data} for name, data in found.items()}
        return decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections}))

    return run


@pytest.fixture
def judged(probed: Callable[..., Evidence]) -> Judged:
    def run(
        faults: list[object],
        count: int = 8,
        devices: dict[str, str] | None = None,
        gid_index: int | None = None,
        **said: object,
    ) -> list[tuple[str, Finding]]:
        evidence, efa = probed(faults, **said), said.get("nic_kind") == "efa"
        params: dict[str, dict[str, Any]] = {
            "infiniband": {**SAID["infiniband"], "count": count},
            "network_link": {"drivers": {"mlx5_core": {**SAID["network_link"], "count": count}}},
            "rdma": {"count": count, "devices": devices or {}, "gid_index": gid_index},
            **({"efa": {"count": count}} if efa else {}),
        }
        if efa:
            del params["infiniband"], params["network_link"]
        return [
            (name, finding)
            for name, given in params.items()
            for finding in CATALOG.check(name).judge(
                evidence, typed.convert(given, CATALOG.check(name).params)
            )
        ]

    return run


def wrong(findings: list[tuple[str, Finding]]) -> set[tuple[str, str]]:
    return {(name, each.subject.id) for name, each in findings if each.verdict is Verdict.FAIL}


@pytest.mark.parametrize(
    ("profile", "count"),
    [("h100-sxm", 8), ("h200-sxm", 8), ("a100-sxm-80", 2), ("l40s", 2), ("t4", 2)],
)
def test_a_healthy_node_is_ok(profile: str, count: int, judged: Judged) -> None:
    odd = [
        (name, each)
        for name, each in judged([], count, gpus=profile)
        if each.verdict is not Verdict.OK
    ]
    assert odd == []


@pytest.mark.parametrize("fault", sorted(FOUND))
def test_a_fault_is_found_and_nothing_else(fault: str, judged: Judged) -> None:
    findings = judged([fault], devices=INTERFACES)
    assert wrong(findings) == FOUND[fault]
    assert not [each for _, each in findings if each.verdict is Verdict.UNKNOWN]


@pytest.mark.parametrize("fault", [None, *sorted(OF_EFA)])
def test_a_fault_of_efa_is_found_and_nothing_else(fault: str | None, judged: Judged) -> None:
    findings = judged([fault] if fault else [], nic_kind="efa")
    assert {each.subject.id for _, each in findings} > {"rdmap26s0", "rdmap60s0"}
    assert wrong(findings) - {("rdma", "")} == (OF_EFA[fault] if fault else set())
    assert not [each for _, each in findings if each.verdict is Verdict.UNKNOWN]


def test_every_fault_is_tried() -> None:
    tried = {*FOUND, *OF_ETHERNET, *OF_EFA, *ON_ROCE} - {""}
    assert tried == {*network.FAULTS, *rdma.FAULTS}


@pytest.mark.parametrize(
    ("fault", "actual"),
    [
        (None, "none"),
        ({"link-outage": {"seconds": 30}}, "30 s"),
        ({"link-outage": {"seconds": 30.1}}, "30.1 s"),
        ("link-outage", "1 min 35 s"),
        ({"link-outage": {"interface": "enp94s0"}}, "1 min 35 s"),
    ],
)
def test_a_link_outage_is_found_only_on_its_interface(
    fault: object, actual: str, probed: Callable[..., Evidence]
) -> None:
    check = CATALOG.check("network_link")
    wish = {"drivers": {"mlx5_core": {"count": 8, "maximum_outage_s": 30}}}
    evidence = probed([fault] if fault else [], nic_kind="ethernet")
    findings = {each.subject.id: each
                for each in check.judge(evidence, typed.convert(wish, check.params))}  # fmt: skip
    name = "enp94s0" if isinstance(fault, dict) and "interface" in str(fault) else "enp26s0"
    found = findings.pop(name)
    assert found.verdict is (Verdict.OK if actual in ("none", "30 s") else Verdict.FAIL)
    assert isinstance(found.actual, dict) and found.actual["outage"] == actual
    assert {each.verdict for each in findings.values()} == {Verdict.OK}


ON_ROCE: dict[str, set[tuple[str, str]]] = {
    "": set(),
    "rdma-address-missing": {("rdma", "mlx5_3")},
    "rdma-gid-missing": {("rdma", "mlx5_3")},
    "rdma-interface-missing": {("rdma", "mlx5_3")},
    "rdma-names-swapped": {("rdma", "mlx5_0"), ("rdma", "mlx5_1")},
}


@pytest.mark.parametrize("fault", sorted(ON_ROCE))
def test_faults_of_roce_interfaces_and_gids_are_found(fault: str, judged: Judged) -> None:
    named = fault != "rdma-interface-missing"  # which is seen without
    devices = {name: f"en{interface[2:]}" for name, interface in INTERFACES.items() if named}
    said = {"nic_kind": "ethernet", "gid_index": 3}
    findings = judged([fault] if fault else [], devices=devices, **said)
    rdma_ones = [(name, each) for name, each in findings if name == "rdma"]
    assert len(rdma_ones) == 9
    assert wrong(rdma_ones) == ON_ROCE[fault]


def test_a_gid_of_roce_v2_is_missing_whatever_its_index(judged: Judged) -> None:
    findings = judged(["rdma-gid-missing"], nic_kind="ethernet")
    (finding,) = (each for name, each in findings if (name, each.verdict) == ("rdma", Verdict.FAIL))
    assert (finding.subject.id, finding.actual) == ("mlx5_3", {"GID": "IB/RoCE v1"})


def test_port_interface_and_bus_agree(
    probed: Callable[..., Evidence],
) -> None:
    evidence = probed([])
    devices = (evidence[Infiniband].data or Infiniband()).devices or ()
    interfaces = (evidence[Network].data or Network()).by_name
    functions = (evidence[Pci].data or Pci()).by_address
    assert [device.name for device in devices] == [f"mlx5_{number}" for number in range(8)]
    for device in devices:
        (port,) = device.ports or ()
        interface = interfaces[port.netdev or ""]
        function = functions[device.bus_id or ""]
        assert interface.bus_id == device.bus_id and function.kind == "nic"
        assert interface.driver == device.driver == function.driver == "mlx5_core"
        assert interface.numa_node == device.numa_node == function.numa_node
        assert (port.pkeys, [gid.index for gid in port.gids or ()]) == (("ffff",), [0])


def test_nics_that_are_added_come_with_their_interfaces(judged: Judged) -> None:
    assert wrong(judged([], 10, nics=10)) == set()


def test_a_node_without_nics_cannot_have_such_a_fault(judged: Judged) -> None:
    for fault, words in (("ib-port-down", "no RDMA device"), ("nic-down", "no NIC")):
        with pytest.raises(ScenarioError, match=words):
            judged([fault], nics=0)
    with pytest.raises(ScenarioError, match="there is no mlx5_9; the node has 8, from 0"):
        judged([{"ib-port-down": {"device": 9}}])
    with pytest.raises(ScenarioError, match="the kernel logs only Ethernet links"):
        judged(["link-outage"])
    with pytest.raises(ScenarioError, match="there is no interface eth7"):
        judged([{"nic-down": {"interface": "eth7"}}])
