"""NUMA nodes without CPUs, and those whose CPUs are offline."""

import dataclasses

import pytest

from nodevet.evidence.numa import Numa, has_memory_alone
from nodevet.remote.probe import cpulist
from nodevet.remote.probe.collectors import cpu, numa, pci
from nodevet_sim.machine import hgx
from nodevet_sim.tree import write

NODES = "sys/devices/system/node"


@pytest.fixture
def tree(tmp_path):
    write(dataclasses.replace(hgx("gh1"), memory_only_nodes=2), tmp_path / "root")
    return tmp_path / "root"


def test_d21_nodes_of_memory_alone_are_distinguished_from_those_with_offline_cpus(
    tree, check
) -> None:
    (tree / f"{NODES}/node1/cpulist").write_text("\n")  # its links cpu<N> stay
    found: Numa = check("numa", numa.collect(str(tree), {}))
    assert found.nodes is not None
    assert [has_memory_alone(node) for node in found.nodes] == [False, False, True, True]
    assert [bool(node.cpus_present) for node in found.nodes] == [True, True, False, False]


@pytest.fixture
def before_lists(tree):
    """The tree as kernels have it that print masks alone, and end a file with NUL."""
    for pattern, mask in (
        ("sys/devices/system/node/node*/cpulist", "cpumap"),
        ("sys/devices/pci*/**/local_cpulist", "local_cpus"),
        ("sys/devices/system/cpu/cpu*/topology/thread_siblings_list", "thread_siblings"),
        ("sys/devices/system/cpu/cpu*/topology/core_cpus_list", "thread_siblings"),
    ):
        found = list(tree.glob(pattern))
        assert found
        for place in found:
            assert (place.parent / mask).is_file()
            place.unlink()
    for place in (tree / NODES / "online", tree / "sys/devices/system/cpu/online"):
        place.write_bytes(place.read_bytes() + b"\0")
    return tree


def test_t7_masks_are_read_where_there_are_no_lists(tree, request, check) -> None:
    def told():
        nodes = check("numa", numa.collect(str(tree), {}))
        functions = check("pci", pci.collect(str(tree), {})).functions
        cores = check("cpu", cpu.collect(str(tree), {}))
        lists = [(each.address, each.local_cpulist) for each in functions]
        return nodes, lists, cores

    before = told()
    request.getfixturevalue("before_lists")
    assert told() == before
    assert before[0].online == "0-3" and before[2].cores == 16


@pytest.mark.parametrize("text", ["", "g", "0x1", "123456789", "1,", "-1", ",".join("1" * 257)])
def test_t7_an_invalid_mask_is_an_error(text) -> None:
    with pytest.raises(ValueError, match="not a valid CPU mask"):
        cpulist.parse_mask(text)


def test_t7_a_mask_of_no_cpu_is_an_empty_list() -> None:
    assert cpulist.normal_mask("00000000,00000000") == ""
