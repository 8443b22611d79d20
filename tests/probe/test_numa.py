"""NUMA nodes without CPUs, and those whose CPUs are offline."""

import dataclasses

import pytest

from nodevet.evidence import Numa, has_memory_alone
from nodevet.probe import numa
from nodevet.sim.machine import hgx
from nodevet.sim.tree import write

NODES = "sys/devices/system/node"


@pytest.fixture
def tree(tmp_path):
    write(dataclasses.replace(hgx("gh1"), memory_only_nodes=2), tmp_path / "root")
    return tmp_path / "root"


def test_d21_nodes_of_memory_alone_are_told_from_those_with_offline_cpus(tree, check) -> None:
    (tree / f"{NODES}/node1/cpulist").write_text("\n")  # its links cpu<N> stay
    found: Numa = check("numa", numa.collect(str(tree), {}))
    assert found.nodes is not None
    assert [has_memory_alone(node) for node in found.nodes] == [False, False, True, True]
    assert [bool(node.cpus_present) for node in found.nodes] == [True, True, False, False]
