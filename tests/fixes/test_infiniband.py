"""InfiniBand ports that are disabled: which of them nodevet enables, and which it leaves alone."""

from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.needed import needed_action
from nodevet.fixing.model import FixError, Risk
from nodevet.model import NeededAction
from nodevet.resource import Resource
from nodevet.resource.infiniband_port import PROGRAM, SetInfinibandPort

DISABLED = {"state": "DOWN", "phys_state": "Disabled"}
POLLING = {"state": "DOWN", "phys_state": "Polling"}


def device(name: str, port: dict[str, Any], **fields: Any) -> dict[str, Any]:
    up = {
        "number": 1,
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "width": 4,
        "netdev": "ib0",
        "counters": [],
        "pkeys": ["ffff"],
    }
    usual = {
        "physfn": "",
        "hca_type": "MT4129",
        "fw_ver": "28.41",
        "board_id": "MT_1",
        "netdevs": ["ib0"],
    }
    return {"name": name, "ports": [up | port], **usual, **fields}


def node(*devices: dict[str, Any], **sections: Any) -> dict[str, Any]:
    links = [
        {"name": "ens9", "kind": "", "lower": [], "upper": []},
        {"name": "bond0", "kind": "bond", "lower": ["ib0", "ib1"], "upper": []},
        *({"name": f"ib{at}", "kind": "", "lower": [], "upper": []} for at in (0, 1)),
    ]
    return {
        "infiniband": {"devices": devices, "found": [each["name"] for each in devices]},
        "files": {"files": [{"path": PROGRAM, "exists": True, "kind": "file"}]},
        "link_managers": {"carriers": ["ens9"], "links": links},
        **sections,
    }


def enable(name: str) -> SetInfinibandPort:
    return SetInfinibandPort(device=name, port=1, enabled=True)


def test_each_disabled_port_is_enabled_on_a_drained_node(plan):
    nodes = node(device("mlx5_0", DISABLED), device("ibp3s0", DISABLED), device("mlx5_2", {}))
    (change,) = plan("infiniband", 3, nodes)
    assert change.actions == (enable("mlx5_0"), enable("ibp3s0"))
    assert change.resources == tuple(
        Resource(kind="infiniband_port", name=f"{name}/1") for name in ("mlx5_0", "ibp3s0")
    )
    assert change.subjects == ("port mlx5_0:1", "port ibp3s0:1")
    assert change.risk is Risk.DRAIN and "not in the plan" not in change.note


def test_ports_that_are_not_disabled_are_named_in_the_note(plan):
    nodes = node(device("mlx5_0", POLLING), device("mlx5_1", DISABLED))
    (change,) = plan("infiniband", 3, nodes)
    assert change.actions == (enable("mlx5_1"),)
    assert "mlx5_0:1: it is enabled, and no link partner answers" in change.note
    assert "the node: only a disabled port has a fix" in change.note


@pytest.mark.parametrize(
    ("port", "fields", "why"),
    [
        (POLLING, {}, "no link partner answers: see its cable and the switch"),
        ({"state": "INIT"}, {}, "it is not disabled: INIT (LinkUp)"),
        ({"state": "DOWN", "phys_state": None}, {}, "phys_state: "),
        (DISABLED, {"hca_type": None}, "hca_type: "),
        (DISABLED, {"hca_type": "MT4126"}, "virtual function: its host sets the port"),
        (DISABLED, {"netdevs": None}, "its interfaces are unknown"),
        ({"rate_gbps": 200.0}, {}, "it is not disabled: ACTIVE (LinkUp)"),
        (DISABLED, {"fw_ver": "1"}, "repair firmware first: the check fails until then"),
    ],
)
def test_only_disabled_ports_of_this_machine_are_accepted(plan, port, fields, why):
    expected = {"count": 1, "rate_gbps": 400, "firmware": "28.*"}
    with pytest.raises(FixError) as refused:
        plan("infiniband", expected, node(device("mlx5_0", port, **fields)))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("port", "action"),
    [
        (DISABLED, NeededAction.DRAIN_FIX),
        ({**DISABLED, "pkeys": []}, NeededAction.DRAIN_FIX),
        ({"pkeys": []}, NeededAction.SITE),
        (POLLING, NeededAction.SITE),
        ({"state": "INIT"}, NeededAction.SITE),
        ({"state": "ARMED"}, NeededAction.SITE),
        ({"rate_gbps": 100.0}, NeededAction.SITE),
        ({**DISABLED, "link_layer": "Ethernet"}, NeededAction.SITE),
    ],
)
def test_a_report_offers_the_fix_only_for_faults_that_it_repairs(wrong, evidence, port, action):
    layer = port.get("link_layer", "InfiniBand")
    expected = {"count": 1, "rate_gbps": 400, "link_layer": layer}
    if layer == "InfiniBand":
        expected["pkeys"] = ["0xffff"]
    (finding,) = wrong("infiniband", expected, evidence(node(device("mlx5_0", port))))
    catalog = Catalog()
    actions = catalog.check("infiniband").actions
    assert needed_action(finding, "infiniband", actions, catalog) is action


def test_an_ethernet_port_is_refused_in_favour_of_its_interface(plan):
    port = {**DISABLED, "link_layer": "Ethernet"}
    with pytest.raises(FixError, match="not an InfiniBand port: for an Ethernet port, set its"):
        plan("infiniband", {"count": 1, "link_layer": "Ethernet"}, node(device("mlx5_0", port)))


@pytest.mark.parametrize(
    "name",
    ["-C", "mlx5 0", "a;reboot", "../mlx5_0", "$(id)", "mlx5_0\n", "a" * 20, "mlx5_٣", "a.b"],
)
def test_an_invalid_device_name_is_refused(plan, name):
    with pytest.raises(FixError, match="is not a name that nodevet passes on"):
        plan("infiniband", 1, node(device(name, DISABLED)))


@pytest.mark.parametrize("number", [0, -1, 255, 999])
def test_an_invalid_port_number_is_refused(plan, number):
    with pytest.raises(FixError, match="is not a name that nodevet passes on"):
        plan("infiniband", 1, node(device("mlx5_0", {**DISABLED, "number": number})))


def test_missing_partition_keys_do_not_block_the_fix_of_a_disabled_port(plan):
    port = {**DISABLED, "pkeys": []}
    (change,) = plan("infiniband", {"count": 1, "pkeys": ["0x8001"]}, node(device("mlx5_0", port)))
    assert change.actions == (enable("mlx5_0"),)


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"files": {"files": [{"path": PROGRAM, "exists": False}]}}, "install infiniband-diags"),
        ({"files": {"files": [{"path": PROGRAM, "exists": None}]}}, "exists is unknown"),
        ({"files": {"files": []}}, "exists is unknown"),
        ({"files": {"status": "error", "why": "broke"}}, "exists is unknown: broke"),
        (
            {"link_managers": {"status": "error", "why": "broke"}},
            "could not read what configures it",
        ),
        ({"link_managers": {"carriers": None, "links": []}}, "which interface carries its session"),
    ],
)
def test_unread_values_plan_nothing(plan, sections, why):
    with pytest.raises(FixError) as refused:
        plan("infiniband", 1, node(device("mlx5_0", DISABLED), **sections))
    assert why in str(refused.value)


@pytest.mark.parametrize("carrier", ["ib0", "bond0"])
def test_a_device_over_which_the_node_is_reached_is_not_touched(plan, carrier):
    sections = node(device("mlx5_0", DISABLED))
    sections["link_managers"]["carriers"] = ["ens9", carrier]
    with pytest.raises(FixError, match="it carries nodevet's session or a default route"):
        plan("infiniband", 1, sections)


def test_nothing_is_planned_if_another_interface_of_ipoib_carries_the_session(plan):
    """The kernel does not say over which interface a child of IPoIB goes."""
    sections = node(device("mlx5_0", DISABLED))
    child = {"name": "ib1.8001", "kind": "ipoib", "lower": [], "upper": []}
    sections["link_managers"]["links"].append(child)
    sections["link_managers"]["carriers"] = ["ib1.8001"]
    with pytest.raises(FixError, match="carries the session over an unknown interface"):
        plan("infiniband", 1, sections)
