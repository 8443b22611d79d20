"""The MTU of interfaces: who sets it at boot, and when nodevet leaves it to a person."""

from typing import Any

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel

KEYFILE = "/etc/NetworkManager/system-connections/rail.nmconnection"
TEXT = "[connection]\nid=rail\n\n[ethernet]\n\n[ipv4]\nmethod=manual\n"
NETWORKD = {
    "manager": "systemd-networkd",
    "path": "/etc/systemd/network/20-rail.network",
    "mtu": "",
    "own": "",
}
NETPLAN = {
    "manager": "netplan",
    "path": "/run/systemd/network/10-netplan-rail.network",
    "name": "rail",
    "definition": "ethernets",
    "mtu": "",
    "own": "",
}
MANAGER = {
    "manager": "NetworkManager",
    "path": KEYFILE,
    "name": "11111111-2222-3333-4444-555555555555",
    "mtu": "",
    "text": TEXT,
    "mode": 0o600,
    "owner": 0,
    "group": 0,
}
IFUPDOWN = {"manager": "ifupdown", "path": "/etc/network/interfaces", "mtu": ""}
DROP_IN = "/etc/systemd/network/20-rail.network.d/50-nodevet.conf"
OWN_NETPLAN = """\
# Written by nodevet.
network:
  version: 2
  ethernets:
    "rail":
      mtu: 9000
"""


def interface(name: str, **fields: Any) -> dict[str, Any]:
    usual = {"kind": "physical", "type": 1, "mtu": 1500, "master": "", "operstate": "up"}
    return {"name": name, "driver": "mlx5_core", "counters": [], **usual, **fields}


def link(name: str, *managers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    usual = {"kind": "", "max_mtu": 9978, "lower": [], "upper": []}
    return {"name": name, "managers": managers, **usual, **fields}


def node(
    *managers: dict[str, Any],
    nic: dict[str, Any] | None = None,
    of_nic: dict[str, Any] | None = None,
    more: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (),
    **section: Any,
) -> dict[str, Any]:
    """ens1 with these managers and fields, ens9 over which the node is reached, and `more`."""
    pairs = [
        (interface("ens1", **(nic or {})), link("ens1", *managers, **(of_nic or {}))),
        (interface("ens9"), link("ens9")),
        *more,
    ]
    interfaces = [pair[0] for pair in pairs]
    return {
        "network": {"interfaces": interfaces, "found": [each["name"] for each in interfaces]},
        "link_managers": {"carriers": ["ens9"], "links": [pair[1] for pair in pairs], **section},
    }


def params(mtu: int = 9000, *names: str) -> dict[str, Any]:
    return {"interfaces": {name: {"state": "any", "mtu": mtu} for name in names or ("ens1",)}}


NOW = WriteKernel(path="/sys/class/net/ens1/mtu", value="9000")


@pytest.mark.parametrize(
    ("manager", "actions"),
    [
        (
            NETWORKD,
            (WriteFile(path=DROP_IN, content="# Written by nodevet.\n[Link]\nMTUBytes=9000\n"),),
        ),
        (
            NETPLAN,
            (
                WriteFile(
                    path="/etc/netplan/99-nodevet-mtu-ens1.yaml", content=OWN_NETPLAN, mode=0o600
                ),
                RunCommand(words=("netplan", "get", "ethernets.rail.mtu")),
            ),
        ),
        (
            MANAGER,
            (
                WriteFile(
                    path=KEYFILE,
                    content=TEXT.replace("[ethernet]\n", "[ethernet]\nmtu=9000\n"),
                    mode=0o600,
                ),
                RunCommand(words=("nmcli", "connection", "load", KEYFILE)),
            ),
        ),
        ({**IFUPDOWN, "mtu": "9000"}, ()),
        ({**NETWORKD, "mtu": "9000"}, ()),
    ],
)
def test_the_manager_sets_the_mtu_at_boot_and_the_kernel_sets_it_now(plan, manager, actions):
    (change,) = plan("network_link", params(), node(manager))
    assert change.actions == (*actions, NOW)
    files = [action.resource for action in actions if action.resource]
    assert change.resources == (*files, Resource(kind="kernel", name=NOW.path))
    assert (change.expected, change.actual, change.risk) == (9000, 1500, Risk.DRAIN)
    assert change.subjects == ("interface ens1",)


def test_nodevet_may_overwrite_its_own_earlier_file(plan):
    own = OWN_NETPLAN.replace("9000", "4200")
    (change,) = plan("network_link", params(), node({**NETPLAN, "mtu": "4200", "own": own}))
    assert change.actions[0].content == OWN_NETPLAN


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("[connection]\nid=a\n", "[connection]\nid=a\n\n[ethernet]\nmtu=9000\n"),
        ("[802-3-ethernet]\nmtu=0\nx=1", "[802-3-ethernet]\nmtu=9000\nx=1\n"),
        ("[ethernet]\n[ipv4]\nmtu=1\n", "[ethernet]\nmtu=9000\n[ipv4]\nmtu=1\n"),
    ],
)
def test_a_keyfile_gets_its_mtu_in_the_group_of_ethernet(plan, text, then):
    (change,) = plan("network_link", params(), node({**MANAGER, "text": text}))
    assert change.actions[0].content == then


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (node(NETWORKD, carriers=["ens1"]), "carries nodevet's session or a default route"),
        (node(NETWORKD, carriers=[]), "could not read which interface carries its session"),
        (
            node(NETWORKD, carriers=None, errors={"carriers": "no SSH_CONNECTION"}),
            "no SSH_CONNECTION",
        ),
        (node(NETWORKD, carriers=["wg0"]), "nodevet could not read its parts: wg0"),
        (
            node(
                NETWORKD,
                carriers=["wg0"],
                more=((interface("wg0"), link("wg0", kind="wireguard")),),
            ),
            r"wg0 \(wireguard\) carries the session over an unknown interface",
        ),
        (
            node(
                NETWORKD,
                carriers=["bond0.7"],
                more=(
                    (interface("bond0.7"), link("bond0.7", kind="vlan", lower=["bond0"])),
                    (interface("bond0"), link("bond0", kind="bond", lower=["ens1"])),
                ),
            ),
            "a default route, as a part of bond0.7",
        ),
        (node(), "neither NetworkManager, netplan, systemd-networkd nor ifupdown"),
        (node(NETWORKD, MANAGER), "systemd-networkd and NetworkManager configure it"),
        (node(of_nic={"managers": None, "errors": {"managers": "nmcli hangs"}}), "nmcli hangs"),
        (node(IFUPDOWN), "add the line `mtu 9000` to its stanza in /etc/network/interfaces"),
        (node({**NETWORKD, "mtu": "1500"}), "its configuration says mtu 1500"),
        (node({**NETWORKD, "shared_by": 2}), "configures other interfaces too"),
        (
            node({**NETWORKD, "path": "/run/systemd/network/a.network"}),
            "is not a file that outlasts",
        ),
        (node({**NETWORKD, "mtu": None, "errors": {"mtu": "EACCES"}}), "mtu: EACCES"),
        (node({**NETWORKD, "own": None}), "nodevet's own file"),
        (node({**NETPLAN, "mtu": "4000"}), "its configuration says mtu 4000"),
        (node({**NETPLAN, "name": "a: {mtu: 1}"}), "is not the id of a definition"),
        (node({**NETPLAN, "definition": "bridges"}), "is not the id of a definition"),
        (node({**MANAGER, "mtu": "1500"}), "its profile says mtu 1500"),
        (
            node({**MANAGER, "path": "/run/NetworkManager/system-connections/a.nmconnection"}),
            "is not a keyfile in /etc",
        ),
        (node({**MANAGER, "path": KEYFILE + "\n-x"}), "is not a keyfile in /etc"),
        (
            node({**MANAGER, "text": None, "errors": {"text": "it may hold a secret"}}),
            "it may hold a secret",
        ),
        (node({**NETWORKD, "manager": "wicked"}), "does not know wicked"),
        (node(NETWORKD, nic={"master": "bond0"}), "set the MTU of bond0"),
        (node(NETWORKD, nic={"kind": "bridge"}), r"not set MTU and rings of this kind \(bridge\)"),
        (node(NETWORKD, nic={"type": 32}), "not set MTU and rings of this kind"),
        (node(NETWORKD, of_nic={"max_mtu": 8000}), "allows at most 8000"),
        (node(NETWORKD, of_nic={"max_mtu": None}), "max_mtu"),
    ],
)
def test_interfaces_that_a_person_must_change_are_refused(plan, sections, why):
    with pytest.raises(FixError, match=f"^ens1: .*{why}"):
        plan("network_link", params(), sections)


@pytest.mark.parametrize(
    ("mtu", "above", "why"),
    [
        (1200, 1500, "turns IPv6 off"),
        (1400, 1500, "ens1.5 on it has a larger MTU, which would shrink too"),
    ],
)
def test_a_lower_mtu_that_would_change_ipv6_or_a_vlan_is_refused(plan, mtu, above, why):
    vlan = (interface("ens1.5", kind="vlan", mtu=above), link("ens1.5", lower=["ens1"]))
    sections = node(NETWORKD, of_nic={"upper": ["ens1.5"]}, more=(vlan,))
    with pytest.raises(FixError, match=why):
        plan("network_link", params(mtu), sections)


def bond(*members: int, of_member: str = "") -> dict[str, Any]:
    """bond0 with members of these MTUs; `of_member`: the MTU that their configuration sets."""
    names = [f"ens{number}" for number in range(20, 20 + len(members))]
    pairs = [
        (
            interface(name, mtu=mtu, master="bond0"),
            link(name, {**NETWORKD, "mtu": of_member}, upper=["bond0"]),
        )
        for name, mtu in zip(names, members, strict=True)
    ]
    of_bond = link("bond0", {**NETPLAN, "definition": "bonds"}, kind="bond", lower=names)
    return node(more=((interface("bond0", kind="bond"), of_bond), *pairs))


def test_a_bond_is_planned_only_if_its_members_get_the_same_mtu(plan):
    (change,) = plan("network_link", params(9000, "bond0"), bond(1500, 1500))
    assert "  bonds:\n" in change.actions[0].content
    assert change.actions[-1].path == "/sys/class/net/bond0/mtu"
    with pytest.raises(FixError, match="its member ens21 has another MTU"):
        plan("network_link", params(9000, "bond0"), bond(1500, 1400))
    with pytest.raises(FixError, match="of its member ens20 may set another MTU"):
        plan("network_link", params(9000, "bond0"), bond(1500, 1500, of_member="1500"))
    assert plan("network_link", params(9000, "bond0"), bond(1500, 1500, of_member="9000"))


def test_interfaces_of_one_file_are_changed_together_or_not_at_all(plan):
    shared = {**NETWORKD, "shared_by": 2}
    other = (interface("ens2"), link("ens2", shared))
    (change,) = plan("network_link", params(9000, "ens1", "ens2"), node(shared, more=(other,)))
    assert [type(action) for action in change.actions] == [WriteFile, WriteKernel, WriteKernel]
    carried = node(shared, more=(other,), carriers=["ens2"])
    with pytest.raises(FixError, match="configures other interfaces too"):
        plan("network_link", params(9000, "ens1", "ens2"), carried)


def test_a_refused_interface_is_named_in_the_note_of_the_others(plan):
    other = (interface("ens2"), link("ens2"))
    (change,) = plan("network_link", params(9000, "ens1", "ens2"), node(NETWORKD, more=(other,)))
    assert change.subjects == ("interface ens1",)
    assert "not in the plan: ens2: neither NetworkManager" in change.note


def test_the_mtu_of_a_vlan_may_not_exceed_that_of_its_parent(plan):
    vlan = (interface("ens2.5", kind="vlan"), link("ens2.5", NETWORKD, kind="vlan", lower=["ens1"]))
    with pytest.raises(FixError, match="set the MTU of ens1 first"):
        plan("network_link", params(9000, "ens2.5"), node(more=(vlan,)))


def test_only_a_wrong_mtu_has_a_fix(plan, wrong, evidence):
    want = {"interfaces": {"ens1": {"mtu": 9000}}}
    with pytest.raises(FixError, match="repair state first"):
        plan("network_link", want, node(NETWORKD, nic={"operstate": "down"}))
    down = {"interfaces": {"ens1": {}}}
    with pytest.raises(FixError, match="only a wrong MTU or ring size has a fix"):
        plan("network_link", down, node(NETWORKD, nic={"operstate": "down"}))


@pytest.mark.parametrize("name", ["a b", "a;reboot", "$(x)", "-n", "..", "a\nb", "x" * 16])
def test_only_a_plain_interface_name_reaches_a_command(plan, name):
    hostile = (interface(name), link(name, NETWORKD))
    want = {"drivers": {"mlx5_core": {"state": "any", "mtu": 9000}}}
    (change,) = plan("network_link", want, with_right_others(node(NETWORKD, more=(hostile,))))
    assert change.subjects == ("interface ens1",)
    assert "is not a name that nodevet accepts" in change.note


def with_right_others(sections: dict[str, Any]) -> dict[str, Any]:
    """The same with the expected MTU on the interface over which the node is reached."""
    for each in sections["network"]["interfaces"]:
        if each["name"] == "ens9":
            each["mtu"] = 9000
    return sections
