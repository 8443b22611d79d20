"""Ring sizes of interfaces: who sets them at boot, and when nodevet leaves them to a person."""

from typing import Any

import pytest

from nodevet.fixing.model import FixError
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.ring import SetRings
from tests.fixes.test_network_link import (
    IFUPDOWN,
    KEYFILE,
    MANAGER,
    NETPLAN,
    NETWORKD,
    TEXT,
    interface,
    link,
    node,
)

RINGS = {"rx": 1024, "rx_max": 8192, "tx": 1024, "tx_max": 4096}
MARK = "# Written by nodevet.\n"
OWN = "/etc/systemd/network/50-nodevet-rings-ens1.link"
SITE = {"path": "/etc/systemd/network/10-rail.link", "shared_by": 1, "id_path": "pci-0000:3b:00.0",
        "same_id_path": 1, "text": "[Match]\nOriginalName=ens1\n[Link]\n"}  # fmt: skip
DEFAULT = {
    **SITE,
    "path": "/usr/lib/systemd/network/99-default.link",
    "shared_by": 9,
    "text": "# of systemd\n[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep path\n",
}
DROP_IN = "/etc/systemd/network/10-rail.link.d/50-nodevet.conf"
SIZES = "[Link]\nRxBufferSize=8192\nTxBufferSize=4096\n"
NOW = SetRings(interface="ens1", rx=8192, tx=4096)


def params(*names: str, **wish: Any) -> dict[str, Any]:
    usual = wish or {"ring_rx": 8192, "ring_tx": "maximum"}
    return {"interfaces": {name: {"state": "any", **usual} for name in names or ("ens1",)}}


def rail(*managers: dict[str, Any], file: dict[str, Any] | None = None, **nic: Any) -> Any:
    """ens1 with this .link file and these managers."""
    return node(*managers, nic={"rings": RINGS, **nic}, of_nic={"link_file": file or SITE})


@pytest.mark.parametrize(
    "managers", [(), (NETWORKD,), (NETPLAN,), (IFUPDOWN,), (NETWORKD, NETPLAN)]
)
def test_udev_sets_ring_sizes_at_boot_whatever_manages_the_interface(plan, managers):
    (change,) = plan("network_link", params(), rail(*managers))
    assert change.actions == (WriteFile(path=DROP_IN, content=f"{MARK}{SIZES}"), NOW)
    assert change.resources == tuple(action.resource for action in change.actions)
    assert change.expected == {"ring_rx": 8192, "ring_tx": 4096} and change.unit == ""
    assert change.actual == {"ring_rx": 1024, "ring_tx": 1024} and change.note == ""


def test_a_link_file_shared_with_other_interfaces_is_copied_for_this_interface(plan):
    (change,) = plan("network_link", params(), rail(file=DEFAULT))
    match = f"{MARK}[Match]\nPath=pci-0000:3b:00.0\n\n"
    copy = WriteFile(path=OWN, content=f"{match}{SIZES}NamePolicy=keep path\n")
    assert change.actions == (copy, NOW)
    again = {**SITE, "path": OWN, "text": copy.content, "own": copy.content, "ring_rx": "8192",
             "ring_tx": "4096"}  # fmt: skip
    (change,) = plan("network_link", params(), rail(file=again))
    assert change.actions == (NOW,), "the boot is right"
    (change,) = plan("network_link", params(ring_rx=4096), rail(file=again))
    assert change.actions[0].content == copy.content.replace(
        "RxBufferSize=8192\nTxBufferSize=4096", "RxBufferSize=4096\nTxBufferSize=4096"
    )


def test_netplans_file_gets_a_drop_in_in_etc(plan):
    file = {**SITE, "path": "/run/systemd/network/10-netplan-rail.link"}
    (change,) = plan("network_link", params(), rail(NETPLAN, file=file))
    assert change.actions[0].path == "/etc/systemd/network/10-netplan-rail.link.d/50-nodevet.conf"


def test_interfaces_of_one_file_share_a_drop_in_if_all_get_the_same(plan):
    shared = {**SITE, "shared_by": 2}
    more = ((interface("ens2", rings=RINGS), link("ens2", link_file=shared)),)
    sections = node(nic={"rings": RINGS}, of_nic={"link_file": shared}, more=more)
    (change,) = plan("network_link", params("ens1", "ens2"), sections)
    assert [type(action) for action in change.actions] == [WriteFile, SetRings, SetRings]
    assert change.actions[0].path == DROP_IN
    with pytest.raises(FixError, match="which other interfaces share, sorts before nodevet's file"):
        plan("network_link", params("ens1"), sections)


def test_the_networkmanager_profile_sets_ring_sizes_and_mtu(plan):
    (change,) = plan("network_link", params(ring_rx=8192, mtu=9000), rail(MANAGER))
    text = TEXT.replace("[ethernet]\n", "[ethernet]\nmtu=9000\n")
    file, load, *now = change.actions
    assert file.content == f"{text}\n[ethtool]\nring-rx=8192\n" and load.words[-1] == KEYFILE
    assert now == [WriteKernel(path="/sys/class/net/ens1/mtu", value="9000"),
                   SetRings(interface="ens1", rx=8192)]  # fmt: skip
    assert change.expected == {"mtu": 9000, "ring_rx": 8192}
    done = {**MANAGER, "text": f"{TEXT}[ethtool]\nring-rx = 8192\nring-tx=4096\n"}
    (change,) = plan("network_link", params(), rail(done))
    assert change.actions == (NOW,)


def test_nodevets_own_drop_in_keeps_the_size_that_is_right(plan):
    own = f"{MARK}[Link]\nRxBufferSize=512\nTxBufferSize=1024\n"
    file = {**SITE, "own": own, "ring_rx": "512", "ring_tx": "1024"}
    (change,) = plan("network_link", params(ring_rx=8192), rail(file=file))
    assert change.actions[0].content == f"{MARK}[Link]\nRxBufferSize=8192\nTxBufferSize=1024\n"


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (rail(NETWORKD, MANAGER), "systemd-networkd and NetworkManager configure it"),
        (rail({**MANAGER, "text": f"{TEXT}[ethtool]\nring-rx=99\n"}), "profile says ring-rx 99"),
        (rail({**IFUPDOWN, "ring_rx": "99"}), "says hardware-dma-ring-rx"),
        (rail(file={**SITE, "path": ""}), "systemd-udevd applies no .link file"),
        (rail(file={**SITE, "ring_rx": "99"}), "says RxBufferSize=99: change it there"),
        (
            rail(file={**SITE, "ring_rx": "99", "own": f"{MARK}[Link]\nRxBufferSize=8\n"}),
            "or a drop-in of it says RxBufferSize=99",
        ),
        (rail(file={**DEFAULT, "others": ["/etc/a.conf"]}), "has drop-ins"),
        (rail(file={**DEFAULT, "id_path": ""}), "no ID_PATH of udev tells this one"),
        (rail(file={**DEFAULT, "same_id_path": 2}), "no ID_PATH of udev tells this one"),
        (rail(file={**DEFAULT, "id_path": "a\n[Link]"}), "no ID_PATH of udev tells this one"),
        (rail(file={**SITE, "shared_by": 2}), "sorts before nodevet's file"),
        (rail(type=32), "not set MTU and rings of this kind"),
        (
            node(nic={"rings": RINGS}, of_nic={"link_file": SITE}, carriers=["ens1"]),
            "carries nodevet's session or a default route",
        ),
        (
            node(nic={"rings": RINGS}, of_nic={"errors": {"link_file": "EACCES"}}),
            ".link file: EACCES",
        ),
        (rail(rings={**RINGS, "rx_max": 4096}), "allows at most 4096 descriptors of rx"),
        (rail(operstate="down"), "repair state first"),
    ],
)
def test_rings_that_a_person_must_change_are_refused(plan, sections, why):
    up = {"interfaces": {"ens1": {"ring_rx": 8192, "state": "up"}}}
    with pytest.raises(FixError, match=f"^ens1: .*{why}"):
        plan("network_link", up, sections)


def test_a_member_of_a_bond_has_rings_of_its_own(plan):
    (change,) = plan("network_link", params(), rail(master="bond0"))
    assert change.actions[-1] == NOW
