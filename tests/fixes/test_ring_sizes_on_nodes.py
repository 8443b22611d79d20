"""Ring sizes of interfaces, on a node: wrong, done, rebooted, as before; what keeps nodevet away.

NetworkManager, systemd-networkd, netplan, systemd-udevd and ethtool are real, and so are the
interfaces, pairs of veth. These have no rings: a library that the programs preload answers the
ioctl of ethtool, as a driver that begins with 1024 descriptors at every boot. A udev rule gives
nic1 a PCI path, which no veth has.
"""

import pytest
from node_tools import put_on_node

from simulated_fleet import Boot, SimulatedFleet
from tests.fixes import test_network_link_on_nodes as links

pytestmark = pytest.mark.timeout(900)
SCENARIO = links.SCENARIO.replace("nics: 0", "nics: 0, disk_mb: 256")
BASELINE = links.BASELINE
NICS = links.NICS  # of NetworkManager, netplan, systemd-networkd
SITE = "/etc/systemd/network/20-rail.link"
OWN = "/etc/systemd/network/50-nodevet-rings-nic1.link"
DROP_IN = f"{SITE}.d/50-nodevet.conf"
ROWS = "sort /run/nodevet-sim/rings | grep '^nic[0-2]' | cut -d ' ' -f 2,4"
CONFIGURED = f"""\
sed -n '/^.ethtool.$/,/^$/p' "{links.KEYFILE}" | grep ring
grep -hs BufferSize {OWN} {DROP_IN}
"""
SET_UP = links.SET_UP.replace(
    '    ip link add "nic$number"',
    '    echo "nic$number 1024 8192 1024 4096" >>/run/nodevet-sim/rings\n'
    '    ip link add "nic$number"',
).replace("[Unit]\nBefore=", "[Unit]\nAfter=systemd-udevd.service\nBefore=")
UDEV = f"""\
for unit in systemd-udevd NetworkManager; do
    mkdir -p /etc/systemd/system/$unit.service.d
    printf '%s\\n' '[Unit]' ConditionPathIsReadWrite= '[Service]' \
        Environment=LD_PRELOAD=/usr/lib/nodevet-sim/rings.so SystemCallFilter= PrivateMounts=no \
        MemoryDenyWriteExecute=no >/etc/systemd/system/$unit.service.d/simulated.conf
done
echo 'SUBSYSTEM=="net", KERNEL=="nic1", ENV{{ID_PATH}}="pci-0000:3b:00.0"' \
    >/etc/udev/rules.d/79-test.rules
printf '[Match]\\nOriginalName=nic2\\n[Link]\\nAlias=rail\\n' >{SITE}
systemctl unmask systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket
systemctl daemon-reload
"""
WHY = """\
ls -l /run/udev/data; cat /run/systemd/netif/links/*; nmcli device
journalctl -b --no-pager -n 40 -u systemd-udevd -u interfaces
"""
STEADY = (
    links.STEADY.replace("exit 0", "break").replace("\nexit 1\n", "\n")
    + """\
[ "$(grep -ls ID_NET_LINK_FILE /run/udev/data/n* | wc -l)" -ge 8 ] && [ "$try" -lt 600 ]
"""
)
WRAPPER = "/usr/local/sbin/ethtool"


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("rings", SCENARIO, BASELINE % entries(*NICS))
    for tool in ("network-manager", "netplan.io", "ifupdown", "udev", "ethtool"):
        put_on_node(fleet, "n1", tool)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1}\n")
    fleet.run_on("n1", f"{SET_UP}{UDEV}")
    reboot(fleet)
    return fleet


def entries(*names: str) -> str:
    return ", ".join(f"{name}: {{state: any, ring_rx: 8192, ring_tx: maximum}}" for name in names)


def reboot(fleet: SimulatedFleet) -> None:
    links.reboot(fleet, f"{{ {STEADY} }} || {{ {WHY} exit 1; }}")


def sizes(fleet: SimulatedFleet) -> list[str]:
    """Receive and transmit rings of nic0, nic1 and nic2."""
    return fleet.run_on("n1", ROWS).splitlines()


WRONG, RIGHT = ["1024 1024"] * 3, ["8192 4096"] * 3


def test_each_manager_sets_ring_sizes_now_and_at_boot_and_a_rollback_is_exact(
    fleet: SimulatedFleet,
) -> None:
    def look() -> tuple[list[str], list[str], str]:
        configured = fleet.run_on("n1", CONFIGURED, check=False).split()
        return sizes(fleet), configured, links.disk(fleet)

    before = look()
    assert before[:2] == (WRONG, [])
    assert links.verdicts(fleet) == dict.fromkeys(NICS, "fail")
    addresses = fleet.run_on("n1", "ip -brief address")

    plan = links.planned(fleet, "life")
    result = links.applied(fleet, plan)
    assert [step["outcome"] for step in result["steps"]] == ["changed"], result
    assert links.verdicts(fleet) == dict.fromkeys(NICS, "ok")
    profile, udev = ["ring-rx=8192", "ring-tx=4096"], ["RxBufferSize=8192", "TxBufferSize=4096"]
    assert look()[:2] == (RIGHT, [*profile, *udev, *udev])
    assert fleet.run_on("n1", "ip -brief address") == addresses
    again = fleet.run_in_project("plan", *fleet.reach)
    assert again.returncode == 0, again

    reboot(fleet)
    assert links.verdicts(fleet) == dict.fromkeys(NICS, "ok")
    in_force = fleet.run_on("n1", "grep -h ID_NET_LINK_FILE= /run/udev/data/n* | sort -u")
    assert OWN in in_force and SITE in in_force, in_force
    undone = fleet.run_in_project("rollback", plan.with_suffix(""))
    assert undone.returncode == 0, undone
    assert look() == before
    reboot(fleet)
    assert look() == before


def test_interfaces_of_the_session_or_without_a_udev_path_are_not_touched(
    fleet: SimulatedFleet,
) -> None:
    """nic3 is ifupdown's, and has no PCI path."""
    fleet.baseline("others", BASELINE % entries("eth0", "nic3"))
    fleet.run_on("n1", "echo eth0 1024 8192 1024 4096 >>/run/nodevet-sim/rings")
    done = fleet.run_in_project("plan", "-i", fleet.place.inventory, "-b", "others")
    assert done.returncode == 3, done
    assert "eth0: it carries nodevet's session or a default route" in done.stdout
    assert "no ID_PATH of udev tells this one from them" in done.stdout


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (f"echo RxBufferSize=512 >>{SITE}", f"sed -i /RxBuffer/d {SITE}"),
        (f"mkdir {SITE}.d; printf '[Link]\\nTxBufferSize=512\\n' >{SITE}.d/99-site.conf",
         f"rm -r {SITE}.d"),
        ("sed -i 's/^nic0 1024/nic0 2048/' /run/nodevet-sim/rings",
         "sed -i 's/^nic0 2048/nic0 1024/' /run/nodevet-sim/rings"),
        (f"printf '\\n[ethtool]\\nring-rx=512\\n' >>'{links.KEYFILE}'",
         f"sed -i '/ethtool/,$d' '{links.KEYFILE}'"),
    ],
    ids=["link-file", "drop-in", "live", "profile"],
)  # fmt: skip
def test_a_later_change_by_an_administrator_makes_the_plan_stale(
    fleet: SimulatedFleet, change: str, undo: str
) -> None:
    before, disk = sizes(fleet), links.disk(fleet)
    plan = links.planned(fleet, "stale")
    fleet.run_on("n1", change)
    try:
        result = links.applied(fleet, plan)
    finally:
        fleet.run_on("n1", undo)
    assert (result["outcome"], result["refusal"]) == ("refused", "stale"), result
    assert sizes(fleet) == before and fleet.run_on("n1", f"ls {OWN} {DROP_IN}", check=False) == ""
    assert paths(links.disk(fleet)) == paths(disk)


def paths(rows: str) -> set[str]:
    return {row.split()[1] for row in rows.splitlines()}


def test_a_unit_that_sets_other_sizes_is_named(fleet: SimulatedFleet) -> None:
    unit = "/etc/systemd/system/tune.service"
    fleet.run_on(
        "n1",
        f"printf '%s\\n' '[Service]' 'ExecStart=/sbin/ethtool -G nic2 rx 512' '[Install]' "
        f"WantedBy=multi-user.target >{unit}; systemctl enable -q tune",
    )
    done = fleet.run_in_project("plan", *fleet.reach)
    fleet.run_on("n1", f"systemctl disable -q tune; rm {unit}")
    assert "tune.service" in done.stdout and done.returncode == 3, done


@pytest.mark.parametrize("does", ["exit 0", '[ $2 = nic2 ] && exit 9; exec /sbin/ethtool "$@"'])
def test_an_ethtool_that_fails_or_has_no_effect_leaves_the_node_as_before(
    fleet: SimulatedFleet, does: str
) -> None:
    disk = links.disk(fleet)
    plan = links.planned(fleet, "lie")
    with_ethtool(fleet, does)
    try:
        result = links.applied(fleet, plan)
    finally:
        fleet.run_on("n1", f"rm {WRAPPER}")
    assert [step["outcome"] for step in result["steps"]] == ["failed_and_rolled_back"], result
    assert sizes(fleet) == WRONG and links.disk(fleet) == disk
    assert fleet.run_on("n1", CONFIGURED, check=False) == ""


def test_a_full_disk_leaves_the_node_as_before(fleet: SimulatedFleet) -> None:
    disk = links.disk(fleet)
    plan = links.planned(fleet, "full")
    fleet.run_on("n1", "cat /dev/zero >/full 2>/dev/null; printf x >/x && exit 1; rm -f /x")
    try:
        result = links.applied(fleet, plan)
    finally:
        fleet.run_on("n1", "rm /full")
    assert [step["outcome"] for step in result["steps"]] == ["failed_and_rolled_back"], result
    assert "No space left on device" in result["why"], result
    assert sizes(fleet) == WRONG and links.disk(fleet) == disk


def test_a_controller_that_is_killed_between_the_files_and_the_value_resumes(
    fleet: SimulatedFleet,
) -> None:
    plan = links.planned(fleet, "kill")
    run = plan.with_suffix("")
    with_ethtool(fleet, "touch /run/at-it; while [ -e /run/at-it ]; do sleep 0.1; done; exit 1")
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    try:
        fleet.kill_when(lambda: fleet.run_on("n1", "ls /run/at-it", check=False), *words)
    finally:
        fleet.run_on("n1", f"rm -f {WRAPPER} /run/at-it")
    assert sizes(fleet) == WRONG and fleet.run_on("n1", f"ls {OWN} {DROP_IN}").split()
    resumed = fleet.run_in_project("apply", "--resume", run, *fleet.reach)
    assert resumed.returncode == 0, resumed
    assert sizes(fleet) == RIGHT
    undone = fleet.run_in_project("rollback", run)
    assert undone.returncode == 0, undone
    assert sizes(fleet) == WRONG


def with_ethtool(fleet: SimulatedFleet, does: str) -> None:
    """Let the program that sets rings do this instead."""
    script = f"cat >{WRAPPER} <<'END'\n#!/bin/sh\n{does}\nEND\nchmod 755 {WRAPPER}"
    fleet.run_on("n1", script)
