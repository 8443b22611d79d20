"""Swap: the whole change, what is refused, and the way back."""

import base64
import re

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand, State, restore
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

TABLE = """\
# /etc/fstab
UUID=1 / ext4 errors=remount-ro 0 1
/swapfile none swap sw 0 0
\tUUID=2\tnone swap\tdefaults,pri=5\u2028 0 0
#/old none swap sw 0 0
/spare none swap noauto 0 0
/data none ext4 swap 0 0"""
OFF = """\
# /etc/fstab
UUID=1 / ext4 errors=remount-ro 0 1
# Off by nodevet: /swapfile none swap sw 0 0
# Off by nodevet: \tUUID=2\tnone swap\tdefaults,pri=5\u2028 0 0
#/old none swap sw 0 0
/spare none swap noauto 0 0
/data none ext4 swap 0 0"""
FSTAB = Resource(kind="file", name="/etc/fstab")


def area(name="/swapfile", size=1000, used=0, priority=-2, **rest):
    whole = {"kind": "file", "size_kb": size, "used_kb": used, "priority": priority}
    return {"name": name} | whole | rest


def node(*areas, **other):
    areas = areas or (area(),)
    whole = {
        "swap_total_kb": sum(each["size_kb"] for each in areas),
        "swap_free_kb": sum(each["size_kb"] - (each["used_kb"] or 0) for each in areas),
        "available_kb": 1_000_000,
        "swaps": list(areas),
        "fstab": [],
        "swap_units": [],
    }
    return {"memory": whole | other}


def off(name):
    return RunCommand(words=("swapoff", "--", name), seconds=900)


def test_swap_turned_on_by_hand_is_turned_off(plan):
    (change,) = plan("swap", "none", node())
    assert change.actions == (off("/swapfile"),)
    assert change.resources == (Resource(kind="swap", name="/swapfile"),)
    assert (change.expected, change.actual, change.unit) == ("none", "1000 KiB", "")
    assert (change.risk, change.effective, change.note) == (Risk.IDLE, "now", "")


def test_the_lines_of_fstab_are_kept_as_comments(plan):
    table = {"text": TABLE, "mode": 0o640, "owner": 0, "group": 7}
    areas = (area(), area("/dev/sda2", 9000, 10, 5), area("/dev/sdb2", 9000, 20, -3))
    (change,) = plan("swap", 0, node(*areas, fstab=[table]))
    assert change.actions == (
        WriteFile(path="/etc/fstab", content=OFF, mode=0o640, owner=0, group=7),
        RunCommand(words=("systemctl", "daemon-reload")),
        off("/dev/sdb2"),
        off("/swapfile"),
        off("/dev/sda2"),
    )
    names = ("/dev/sdb2", "/swapfile", "/dev/sda2")
    assert change.resources == (FSTAB, *(Resource(kind="swap", name=name) for name in names))
    assert (change.risk, change.note) == (
        Risk.DRAIN,
        "30 KiB are swapped out and return to memory",
    )


def test_a_unit_that_systemd_made_is_masked(plan):
    unit = {"name": "dev-sda2.swap", "path": "/run/systemd/generator.late/dev-sda2.swap"}
    (change,) = plan("swap", "none", node(area("/dev/sda2"), swap_units=[unit]))
    assert change.actions == (SetUnit(name="dev-sda2.swap", masked=True), off("/dev/sda2"))
    assert change.resources == (
        Resource(kind="unit", name="dev-sda2.swap"),
        Resource(kind="swap", name="/dev/sda2"),
    )


UNIT = {"name": "x.swap", "path": "/usr/lib/systemd/system/x.swap"}
ETC = {"name": "x.swap", "path": "/etc/systemd/system/x.swap", "what": "/x"}


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (node(swaps=None, errors={"swaps": "EACCES"}), "/proc/swaps: EACCES"),
        (node(swaps=[]), "/proc/meminfo has 1000 KiB, but /proc/swaps lists none"),
        (node(area("/dev/zram0")), "/dev/zram0 is compressed memory: remove zram-generator"),
        (node(area("/a\\040b")), "is not a plain path"),
        (node(area("swap")), "is not a plain path"),
        (node(area("/a;b\n")), "is not a plain path"),
        (node(area(), area()), "lists one area twice"),
        (node(area(priority=None)), "/swapfile: priority: not in the evidence"),
        (node(area(used=None)), "/swapfile: used_kb: not in the evidence"),
        (node(area(used=-1)), "implausible"),
        (node(swap_free_kb=1001), "implausible"),
        (node(available_kb=None, errors={"available_kb": "no row"}), "available_kb: no row"),
        (node(swap_free_kb=None), "swap_free_kb: not in the evidence"),
        (node(available_kb=1999, swap_free_kb=0), "1000 KiB are swapped out"),
        (node(area(used=600), available_kb=1199, swap_free_kb=1000), "600 KiB are swapped out"),
        (node(fstab=None, errors={"fstab": "it is a link"}), "/etc/fstab: it is a link"),
        (node(fstab=[{"text": None}]), "/etc/fstab: the evidence has only a part of the file"),
        (node(fstab=[{"text": TABLE}]), "/etc/fstab: the evidence has only a part of the file"),
        (node(fstab=[{"text": TABLE}] * 2), "/etc/fstab is in the evidence twice"),
        (node(swap_units=None, errors={"swap_units": "EIO"}), "units of type swap: EIO"),
        (node(swap_units=[ETC]), "systemctl disable --now x.swap"),
        (node(swap_units=[UNIT | {"path": None}]), "x.swap: path: not in the evidence"),
        (node(swap_units=[UNIT | {"what": "/dev/zram1"}]), "x.swap belongs to zram"),
    ],
)
def test_swap_that_nodevet_cannot_turn_off_is_refused(plan, sections, told):
    with pytest.raises(FixError, match=re.escape(told)):
        plan("swap", "none", sections)


def test_swap_that_fills_half_of_the_available_memory_can_be_turned_off(plan):
    (change,) = plan("swap", "none", node(area(used=600), available_kb=1200))
    assert change.risk is Risk.DRAIN


def test_a_lower_limit_is_refused_since_it_does_not_say_which_swap_may_stay(plan):
    with pytest.raises(
        FixError,
        match="the baseline allows 500 KiB, but does not say which swap may stay: reduce it",
    ):
        plan("swap", 500, node())
    assert plan("swap", 1000, node()) == []


def test_a_finding_from_other_evidence_is_refused(plan, wrong, evidence):
    findings = wrong("swap", "none", evidence(node()))
    for other in (node(area(size=999)), {"memory": {}}, {}):
        with pytest.raises(FixError):
            plan("swap", "none", other, findings)
    assert plan("swap", "none", node(), []) == []


# --- the way back


def seen(name, *, priority, fstab=()):
    value = {"active": True, "priority": priority, "fstab": list(fstab)}
    return State(resource=Resource(kind="swap", name=name), exists=True, value=value)


def test_a_rollback_restores_priority_discard_and_the_kernels_order():
    table = State(
        resource=FSTAB,
        exists=True,
        value={
            "content": base64.b64encode(TABLE.encode()).decode(),
            "mode": 0o640,
            "owner": 0,
            "group": 7,
        },
    )
    unit = State(
        resource=Resource(kind="unit", name="dev-sda2.swap"),
        exists=True,
        value={"enabled": "generated", "active": "active", "masked": False},
    )
    line = "/dev/sda2 none swap sw,pri=5,discard=pages 0 0"
    swaps = (
        seen("/dev/sdb2", priority=-3),
        seen("/swapfile", priority=-2),
        seen("/dev/sda2", priority=5, fstab=[line]),
    )
    assert restore(table, unit, *swaps) == (
        WriteFile(path="/etc/fstab", content=TABLE, mode=0o640, owner=0, group=7),
        RunCommand(words=("swapon", "-p", "5", "--discard=pages", "--", "/dev/sda2")),
        RunCommand(words=("swapon", "--", "/swapfile")),
        RunCommand(words=("swapon", "--", "/dev/sdb2")),
        SetUnit(name="dev-sda2.swap", running=True, masked=False),
    )
    assert restore(table)[1:] == (RunCommand(words=("systemctl", "daemon-reload")),)
