"""How near GPUs and NICs of real machines are to each other, by lspci and by NCCL's topologies."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nodevet.checking.pci_path import distance_between
from nodevet.evidence.pci import PciFunction

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES}")
XE9680 = CAPTURES / "lspci/gpud-dell-xe9680-8xh100-vvv.txt"


def by_lspci(path):
    """The functions of `lspci -vvv`, each with the ports above it by the bridges' buses."""
    found = {}
    for block in path.read_text().split("\n\n"):
        head = re.match(r"([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:]+): (.*)", block.strip())
        if head:
            buses = re.search(r"primary=.., secondary=(..), subordinate=..", block)
            node = re.search(r"NUMA node: (\d+)", block)
            found[f"0000:{head[1]}"] = (head[2], head[3], buses and buses[1], node and int(node[1]))
    port_of = {bus: address for address, (_, _, bus, _) in found.items() if bus}

    def above(address):
        port = port_of.get(address[5:7])
        return [] if port is None else [port, *above(port)]

    return [
        (kind, name, PciFunction(address=address, numa_node=node, upstream=tuple(above(address))))
        for address, (kind, name, _, node) in found.items()
    ]


def by_nccl(path):
    """The GPUs and NICs of an NCCL topology, which names the upper port of each switch only."""
    gpus, nics = [], []
    for cpu in ElementTree.parse(path).iter("cpu"):
        numa = int(cpu.get("numaid"))

        def walk(parent, upstream, numa=numa):
            for each in parent.findall("pci"):
                address = each.get("busid").lower()
                kind = each.get("class")[2:4]
                below = (f"{address}+", *upstream)  # the port that leads down to it
                function = PciFunction(address=address, numa_node=numa, upstream=below)
                if kind == "03":
                    gpus.append(function)
                elif kind == "02":
                    nics.append(function)
                walk(each, (address, *below))

        walk(cpu, ())
    return gpus, nics


def test_the_gpus_of_an_xe9680_are_below_four_host_bridges_at_each_cpu():
    gpus = [each for kind, _, each in by_lspci(XE9680) if kind == "3D controller"]
    assert len(gpus) == 8
    pairs = Counter(
        distance_between(one, other, False).level for one, other in combinations(gpus, 2)
    )
    assert pairs == {"NODE": 12, "SYS": 16}


def test_each_gpu_of_an_xe9680_has_a_connectx_7_below_its_switch():
    functions = by_lspci(XE9680)
    gpus = [each for kind, _, each in functions if kind == "3D controller"]
    nics = [each for _, name, each in functions if "ConnectX-7" in name]
    assert len(nics) == 8
    near = [
        [nic.address for nic in nics if distance_between(gpu, nic, False).level == "PIX"]
        for gpu in gpus
    ]
    assert [len(each) for each in near] == [1] * 8
    assert len({address for each in near for address in each}) == 8


@pytest.mark.parametrize(
    ("name", "level", "nics"),
    [
        ("nccl-H100-topology.xml", "PXB", 1),  # two levels of switches
        ("nccl-ndv4-topo.xml", "PIX", 2),  # two GPUs and two NICs below a switch
        ("nccl-ndv5-topo.xml", "PIX", 1),
        ("nccl-p4d-24xl-topo.xml", "PIX", 1),  # shared by two GPUs
    ],
)
def test_the_nearest_nics_of_cloud_shapes(name, level, nics):
    gpus, all_nics = by_nccl(CAPTURES / "topo" / name)
    assert len(gpus) == 8
    for gpu in gpus:
        distances = [distance_between(gpu, nic, False) for nic in all_nics]
        nearest = min(distances, key=lambda distance: distance.rank).level
        assert (nearest, sum(each.level == nearest for each in distances)) == (level, nics)
