"""Who configures an interface, from each manager's files; and over which one a session comes."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import link_configs
from nodevet.remote.probe.collectors import link_managers
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]


def write(root: Path, **files: str) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def test_another_root_has_no_managers(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="on a running machine only"):
        link_managers.collect(str(tmp_path), {})


def test_networkd_knows_what_it_manages(tmp_path: Path) -> None:
    links = "run/systemd/netif/links/"
    write(
        tmp_path,
        **{
            f"{links}1": "ADMIN_STATE=unmanaged\n",
            f"{links}2": "ADMIN_STATE=configuring\nNETWORK_FILE=/etc/systemd/network/a.network\n",
            f"{links}3": "# private\nADMIN_STATE=pending\n",
        },
    )
    found = link_configs.networkd_files(str(tmp_path))
    assert found == {"2": "/etc/systemd/network/a.network", "3": None}


def test_the_last_drop_in_of_networkd_counts_and_the_first_folder(tmp_path: Path) -> None:
    path = "/etc/systemd/network/a.network"
    write(tmp_path, **{path[1:]: "[Link]\nMTUBytes=1500\n[Match]\nName=a\n"})
    root = str(tmp_path)
    assert link_configs.networkd_mtu(root, path) == "1500"
    write(tmp_path, **{"usr/lib/systemd/network/a.network.d/90-x.conf": "[Link]\nMTUBytes=4000\n"})
    write(tmp_path, **{f"{path[1:]}.d/50-nodevet.conf": "[Link]\nMTUBytes=9000\n"})
    record = link_configs.of_networkd(root, path, 1)
    assert (record["mtu"], record["own"]) == ("4000", "[Link]\nMTUBytes=9000\n")
    write(tmp_path, **{f"{path[1:]}.d/90-x.conf": "[Network]\nDHCP=yes\n"})
    assert link_configs.networkd_mtu(root, path) == "9000"
    missing = link_configs.of_networkd(root, "/etc/systemd/network/b.network", 1)
    assert (missing["mtu"], missing["errors"]["mtu"], missing["own"]) == (None, "ENOENT", "")


DEFINITIONS = """\
network:
  version: 2
  renderer: networkd
  ethernets:
    rail0:
      match:
        macaddress: 00:11:22:33:44:55
      addresses:
      - 2001:db8::1/64
      routes:
      - to: default
        via: 192.0.2.1
        mtu: 1400
    'on':
      mtu: 9000
  bonds:
    bond0.7:
      mtu: "4000"
"""


def test_a_netplan_definition_has_only_its_own_mtu() -> None:
    assert link_configs.parse_definitions(DEFINITIONS) == {
        "rail0": ("ethernets", ""),
        "on": ("ethernets", "9000"),
        "bond0.7": ("bonds", "4000"),
    }
    with pytest.raises(ValueError, match="two definitions 'rail0'"):
        link_configs.parse_definitions(f"{DEFINITIONS}  vlans:\n    rail0:\n      id: 7\n")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/run/systemd/network/10-netplan-rail0.network", "rail0"),
        ("/run/NetworkManager/system-connections/netplan-rail0.nmconnection", "rail0"),
    ],
)
def test_netplan_manages_an_interface_whose_file_it_generated(
    tmp_path: Path, path: str, name: str
) -> None:
    own = {"etc/netplan/99-nodevet-mtu-ens1.yaml": "network: {}\n"}
    write(tmp_path, **own)
    record = link_configs.Reading(manager="x", path=path, shared_by=3)
    root, known = str(tmp_path), {name: ("bonds", "")}
    plan = link_configs.of_netplan(root, "ens1", record, known)
    assert plan["manager"] == "netplan"
    assert [plan[key] for key in ("name", "definition", "mtu", "own", "shared_by")] == [
        *(name, "bonds", "", "network: {}\n", 3)
    ]
    gone = link_configs.of_netplan(root, "ens1", record, {})
    assert gone["errors"]["mtu"] == f"netplan has no definition '{name}'"
    other = link_configs.Reading(manager="x", path="/etc/systemd/network/a.network", shared_by=1)
    assert link_configs.of_netplan(root, "ens1", other, known) is other


def test_interfaces_that_networkmanager_only_shows_are_not_managed() -> None:
    active = "ens1:u1:/etc/a\\:b.nmconnection\neth0:u2:/run/eth0.nmconnection\n:u3:/etc/vpn\n"
    devices = (
        "ens1:connected\neth0:connected (externally)\nens2:disconnected\nlo:unmanaged\n"
        "ens3:connecting (getting IP configuration)\n"
    )
    assert link_configs.nm_profiles(active, devices) == {
        "ens1": ("u1", "/etc/a:b.nmconnection"),
        "ens2": ("", ""),
        "ens3": ("", ""),
    }
    unread = link_configs.of_nm("/", "", "", 1)
    assert unread["errors"]["mtu"] == "it has no active profile"


@pytest.mark.parametrize(
    ("text", "mtu"),
    [
        ("[ethernet]\nmtu=9000\n[ipv4]\n", "9000"),
        ("[802-3-ethernet]\nmtu = 9000\n", "9000"),
        ("[ethernet]\nmtu=0\n", ""),
        ("[infiniband]\nmtu=2044\n", ""),
        ("[ethernet]\n#mtu=9000\n", ""),
    ],
)
def test_the_mtu_of_a_keyfile(tmp_path: Path, text: str, mtu: str) -> None:
    write(tmp_path, **{"etc/a": text})
    record = link_configs.of_nm(str(tmp_path), "u", "/etc/a", 1)
    assert (record["mtu"], record["text"], record["owner"]) == (mtu, text, 0)


@pytest.mark.parametrize("row", ["password=x", "leap-password=x", "psk=x", "Private-Key=/x"])
def test_a_keyfile_with_a_secret_stays_on_the_node(tmp_path: Path, row: str) -> None:
    write(tmp_path, **{"etc/a": f"[802-1x]\n{row}\n[ethernet]\nmtu=1\n"})
    record = link_configs.of_nm(str(tmp_path), "u", "/etc/a", 1)
    assert (record["text"], record["mtu"]) == (None, "1")
    assert record["errors"]["text"] == "it may hold a secret"


INTERFACES = """\
source interfaces.d/*
source-directory /etc/network/more
auto ens1
iface ens1 inet dhcp
  mtu 9000
  hardware-dma-ring-rx 8192
iface ens1 inet6 \\
  auto
"""


def test_the_stanzas_of_ifupdown_and_what_they_include(tmp_path: Path) -> None:
    root = str(tmp_path)
    write(tmp_path, **{"etc/network/interfaces": INTERFACES})
    write(tmp_path, **{"etc/network/interfaces.d/a": "iface ens2 inet manual\n"})
    write(tmp_path, **{"etc/network/more/b": "iface rail* inet manual\nmtu 4000\n"})
    assert link_configs.ifupdown(root) == []  # not installed
    write(tmp_path, **{"usr/sbin/ifup": ""})
    found = link_configs.ifupdown(root)
    assert found == [
        ("ens1", "/etc/network/interfaces", {"mtu": "9000", "ring_rx": "8192"}),
        ("ens1", "/etc/network/interfaces", {}),
        ("ens2", "/etc/network/interfaces.d/a", {}),
        ("rail*", "/etc/network/more/b", {"mtu": "4000"}),
    ]
    (rail,) = link_configs.of_ifupdown("rail7", found)
    assert (rail["path"], rail["mtu"], rail["ring_tx"]) == ("/etc/network/more/b", "4000", "")
    assert link_configs.of_ifupdown("eth0", found) == []


def test_files_of_ifupdown_that_include_one_another_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, **{"etc/network/interfaces": "source /etc/network/interfaces\n"})
    write(tmp_path, **{"sbin/ifup": ""})
    with pytest.raises(ValueError, match="includes more than 64 files"):
        link_configs.ifupdown(str(tmp_path))


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ("SSH_CONNECTION=192.0.2.7 5 192.0.2.1 22", ("192.0.2.7", "192.0.2.1", "")),
        ("A=1\0SSH_CONNECTION=fe80::2%e1 5 fe80::1%e1 22\0B=2", ("fe80::2", "fe80::1", "e1")),
        ("XSSH_CONNECTION=192.0.2.7 5 192.0.2.1 22", None),
        ("SSH_CONNECTION=-x 5 192.0.2.1 22", None),
        ("SSH_CONNECTION=192.0.2.7 5 192.0.2.1 22; x", None),
        ("SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535", None),
        ("", None),
    ],
)
def test_the_addresses_of_a_session(environ: str, found: tuple[str, str, str] | None) -> None:
    assert link_managers.parse_session(environ) == found


def test_lower_interfaces_of_a_bond_are_included(tree: Any) -> None:
    for name, lower in (("bond0.7", "bond0"), ("bond0", "ens1"), ("ens1", "")):
        tree.put(f"sys/class/net/{name}", mtu=1500)
        if lower:
            tree.link(f"sys/class/net/{name}/lower_{lower}", f"sys/class/net/{lower}")
    root = str(tree.root)
    assert link_managers.with_lower(root, ["bond0.7", "gone"]) == [
        *("bond0", "bond0.7", "ens1", "gone")
    ]
    record = link_managers.link(root, "bond0", None, None, "nmcli: no")
    assert (record["lower"], record["upper"], record["managers"]) == (["ens1"], [], None)
    assert record["errors"]["managers"] == "nmcli: no"


def test_a_session_is_known_where_sudo_removed_its_variable() -> None:
    code = "from nodevet.remote.probe.collectors.link_managers import session; print(session())"
    python = f"env -i {shlex.quote(sys.executable)} -c {shlex.quote(code)}; true"
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.7 5 192.0.2.1 22"}
    done = subprocess.run(
        ["sh", "-c", python], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "('192.0.2.7', '192.0.2.1', '')\n", done
