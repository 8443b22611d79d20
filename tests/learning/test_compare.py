"""Hosts with similar hardware held against one another: who is not as most are; nothing is
hidden.
"""

from like_nodes import node

from nodevet.checking.catalog import Catalog
from nodevet.learn.compare import Comparison, as_document, as_nodeset, compare
from nodevet.learn.sheet import comparison_sheet
from nodevet.sheet import FORMATS, render, terminal
from planned_fleet import capped

CATALOG = Catalog()


def table(found: Comparison) -> str:
    return terminal.render(comparison_sheet(found))


def eight(**odd: object) -> Comparison:
    nodes = {f"gpu{n}": node(f"gpu{n}") for n in range(1, 9)} | odd
    return compare(nodes, CATALOG)


def test_the_majority_value_is_expected_and_the_other_hosts_are_named() -> None:
    found = eight(gpu3=node("gpu3", governor="powersave"), gpu7=node("gpu7", governor="powersave"))
    assert found.outliers == ("gpu3", "gpu7")
    assert "cpu_governor  performance on 6 of 8; powersave on gpu[3,7]" in table(found)
    assert as_nodeset(found) == "gpu[3,7]"
    assert found.exit_code == 1


def test_hosts_that_are_alike() -> None:
    found = eight()
    assert found.outliers == ()
    assert found.exit_code == 0
    assert "8 hosts compared, all alike" in table(found)
    assert as_nodeset(found) == ""


def test_a_single_gpu_of_one_host_is_found() -> None:
    reset = node("gpu5", recovery_action="GPU_RESET")
    found = eight(gpu5=reset)
    assert found.outliers == ("gpu5",)
    assert "gpu_lost" in table(found)


def test_two_hosts_that_differ_are_reported_without_an_outlier() -> None:
    nodes = {"gpu1": node("gpu1"), "gpu2": node("gpu2", **capped(500_000))}
    found = compare(nodes, CATALOG)
    assert found.outliers == ()
    assert found.exit_code == 1
    assert "no majority: 700 on gpu1; 500 on gpu2" in table(found)


def test_a_fault_on_one_of_two_is_reported() -> None:
    nodes = {"gpu1": node("gpu1"), "gpu2": node("gpu2", recovery_action="GPU_RESET")}
    assert "gpu_lost" in table(compare(nodes, CATALOG))


def test_a_fault_of_all_hosts_is_not_a_difference() -> None:
    nodes = {name: node(name, recovery_action="GPU_RESET") for name in ("gpu1", "gpu2", "gpu3")}
    assert compare(nodes, CATALOG).exit_code == 0


def test_hosts_of_other_hardware_are_groups_of_their_own() -> None:
    found = eight(old1=node("old1", pci_device="10de:20b2", name="A100", governor="powersave"))
    assert [len(group.hosts) for group in found.groups] == [8, 1]
    assert found.exit_code == 0
    assert "old1: A100: no other host has that hardware" in table(found)


def test_a_host_that_could_not_be_read_is_not_forgotten() -> None:
    nodes = {name: node(name) for name in ("gpu1", "gpu2")}
    found = compare(nodes, CATALOG, {"gpu3": "connection refused"})
    assert found.exit_code == 3
    assert "gpu3: not compared: connection refused" in table(found)
    for form in FORMATS:
        text = render(form, as_document(found), lambda: comparison_sheet(found))
        assert "gpu3" in text and "connection refused" in text, form


def test_one_host_alone_cannot_be_compared() -> None:
    found = compare({"gpu1": node("gpu1")}, CATALOG)
    assert found.exit_code == 3
    assert "this needs two hosts" in table(found)
