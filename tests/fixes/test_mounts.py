"""What /etc/fstab or a unit says is mounted; whatever they do not say is a person's decision."""

import pytest

from nodevet.evidence.core import NOT_ASKED
from nodevet.fixing.model import FixError, Risk
from nodevet.remote.fstab import mount_unit
from nodevet.resource import Resource, State, restore
from nodevet.resource import mount as resource
from nodevet.resource.unit import SetUnit

UNIT = "/etc/systemd/system/scratch.mount"
XFS = {
    "empty": True,
    "type": "xfs",
    "source": "/dev/md0",
    "options": ["noatime"],
    "file": "/etc/fstab",
}
MISSING = {"mounted": False, "automount": False}
STOPPED = {"load_state": "loaded", "active_state": "inactive", "file_state": "disabled"}
MOUNT = "timeout -k 5 60 mount -- /scratch"


def mounted(*options, whole=("rw",), **parts):
    row = {"type": "xfs", "source": "/dev/md0", "root": "/", "options": ["rw", *options]}
    return {"mounted": True, "automount": False, **row, "super_options": list(whole), **parts}


def node(current=MISSING, said=XFS, unit=STOPPED, path="/scratch"):
    return {
        "mounts": {
            "mounts": [{"name": path, **current}],
            "others": [],
            "configured": [] if said is None else [{"name": path, **said}],
        },
        "services": {"units": [{"name": "scratch.mount", **unit}]},
    }


def words(change):
    return [each.label for each in change.actions]


def test_a_line_of_fstab_is_mounted(plan):
    (change,) = plan("mounts", {"/scratch": "xfs"}, node())
    assert words(change) == [MOUNT]
    assert change.resources == (Resource(kind="mount", name="/scratch"),)
    assert (change.risk, change.actions[0].seconds) == (Risk.LIVE, 80)
    assert change.note == ""


@pytest.mark.parametrize(
    "empty", [{"empty": False}, {"empty": None, "errors": {"empty": "on nfs"}}]
)
def test_mounting_over_a_folder_that_is_not_empty_needs_a_drained_node(plan, empty):
    (change,) = plan("mounts", {"/scratch": "xfs"}, node(said=XFS | empty))
    assert (change.risk, change.note.startswith("/scratch is not empty")) == (Risk.DRAIN, True)


def test_a_missing_folder_is_refused_unless_a_unit_creates_it(plan):
    missing = {**XFS, "empty": None, "errors": {"empty": "ENOENT"}}
    with pytest.raises(FixError, match="the folder does not exist: `mkdir /scratch`"):
        plan("mounts", {"/scratch": "xfs"}, node(said=missing))
    (change,) = plan("mounts", {"/scratch": "xfs"}, node(said={**missing, "file": UNIT}))
    assert change.risk is Risk.LIVE


def test_a_parent_is_mounted_before_what_is_in_it(plan):
    sections = node()
    for part in ("mounts", "configured"):
        rows = sections["mounts"][part]
        rows.append({**rows[0], "name": "/scratch/a"})
    changes = plan("mounts", {"/scratch/a": "xfs", "/scratch": "xfs"}, sections)
    assert [change.subjects for change in changes] == [("mount /scratch",), ("mount /scratch/a",)]


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"type": ["ext4", "xfs"], "source": "/dev/md*", "options": ["noatime"]}, {}),
        ({"type": "xfs", "without": ["noexec"], "options": ["exec"]}, {}),
        ({"type": "nfs4", "options": ["vers=4.2"]}, {"type": "nfs", "options": ["nfsvers=4.2"]}),
        ({"type": "ext4"}, {"type": "auto"}),
        ({"read_only": True}, {"options": ["ro"]}),
    ],
)
def test_equal_options_count_as_mounted(plan, expected, said):
    (change,) = plan("mounts", {"/scratch": expected}, node(said={**XFS, **said}))
    assert words(change) == [MOUNT]


def test_a_unit_is_started_and_enabled(plan):
    (change,) = plan("mounts", {"/scratch": "xfs"}, node(said={**XFS, "file": UNIT}))
    assert change.actions == (SetUnit(name="scratch.mount", enabled=True, running=True),)
    assert {each.label for each in change.resources} == {"mount /scratch", "unit scratch.mount"}


@pytest.mark.parametrize(
    ("expected", "said", "why"),
    [
        ("ext4", {}, r"fstab says type xfs, and ext4 is expected; if .* `SOURCE /scratch ext4 def"),
        ({"source": "/dev/md1"}, {}, "says source /dev/md0, and /dev/md1 is expected"),
        ({"source": "/dev/md1"}, {"source": "/dev/disk/by-uuid/7"}, "says source /dev/disk/by-uu"),
        ({"options": ["nodev"]}, {}, "says options no nodev, and nodev is expected"),
        ({"without": ["noatime"]}, {}, "says options noatime, and no noatime is expected"),
        ({"read_only": True}, {}, r"says access read-write.*`SOURCE /scratch TYPE ro 0 0`"),
        ("xfs", {"options": ["ro"]}, "says access read-only, and read-write is expected"),
        ("xfs", {"options": ["noauto"]}, "/etc/fstab has the option noauto"),
        ("nfs4", {"type": "nfs", "options": ["bg"]}, "/etc/fstab has the option bg"),
        ("xfs", {"file": ""}, r"neither /etc/fstab nor a unit names it; .*`SOURCE /scratch xfs"),
        ("xfs", {"file": None, "errors": {"file": "EACCES"}}, "and its unit: EACCES"),
        ("xfs", {"options": None, "errors": {"options": "an option holds a password"}}, "password"),
    ],
)
def test_an_expectation_that_fstab_or_the_unit_contradicts_is_refused(plan, expected, said, why):
    with pytest.raises(FixError, match=why):
        plan("mounts", {"/scratch": expected}, node(said={**XFS, **said}))


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ({"load_state": "masked"}, "masked on purpose"),
        ({"load_state": "not-found"}, "it does not exist"),
        ({"active_state": "activating"}, "is activating; plan again"),
        ({"file_state": "static"}, "scratch.mount is static: nothing would mount it at boot"),
        ({"file_state": None}, "scratch.mount: file_state: "),
    ],
)
def test_a_unit_that_systemd_cannot_start_is_refused(plan, unit, why):
    with pytest.raises(FixError, match=why):
        plan("mounts", {"/scratch": "xfs"}, node(said={**XFS, "file": UNIT}, unit=STOPPED | unit))


@pytest.mark.parametrize(
    ("expected", "said", "current", "options", "risk"),
    [
        ({"options": ["noatime"]}, ["noatime"], mounted("relatime"), "noatime", Risk.LIVE),
        ({"without": ["noexec"]}, [], mounted("noexec", "relatime"), "relatime", Risk.LIVE),
        ({"options": ["noexec"]}, ["noexec"], mounted("noatime"), "noexec noatime", Risk.DRAIN),
        ({"read_only": True}, ["ro"], mounted("relatime"), "ro relatime", Risk.DRAIN),
        ({"options": ["exec"]}, [], mounted("noexec"), "strictatime", Risk.LIVE),
        (
            "xfs",
            [],
            mounted("nosuid", "relatime", options=["ro", "nosuid", "relatime"]),
            "nosuid relatime",
            Risk.LIVE,
        ),
    ],
)
def test_only_options_of_the_mount_are_set(plan, expected, said, current, options, risk):
    """All of them are named, as they are or as they should be."""
    (change,) = plan("mounts", {"/scratch": expected}, node(current, {**XFS, "options": said}))
    (action,) = change.actions
    head, named = action.words[:6], action.words[6].split(",")
    assert head == ("timeout", "-k", "5", "60", "mount", "-o")
    assert action.words[7:] == ("--", "/scratch")
    assert named[:2] == ["remount", "bind"] and len(named) == 8
    quiet = {"rw", "suid", "dev", "exec", "diratime"}
    assert [word for word in named[2:] if word not in quiet] == options.split()
    assert (change.risk, change.note) == (risk, "")


@pytest.mark.parametrize(
    ("expected", "said", "current", "why"),
    [
        ("xfs", [], mounted(type="tmpfs"), "something else is mounted there"),
        ({"source": "/dev/md0"}, [], mounted(source="/dev/sda1"), "something else is mounted"),
        ("xfs", [], mounted(whole=["ro"]), "read-only, perhaps after an error"),
        ({"options": ["hard"]}, ["hard"], mounted(whole=["rw", "soft"]), "hard: only a new mount"),
        ({"without": ["soft"]}, [], mounted(whole=["rw", "soft"]), "no soft: only a new mount"),
        ({"options": ["nodev"]}, [], mounted(), "says options no nodev"),
    ],
)
def test_whatever_needs_a_new_mount_is_refused(plan, expected, said, current, why):
    with pytest.raises(FixError, match=why):
        plan("mounts", {"/scratch": expected}, node(current, {**XFS, "options": said}))


def test_nothing_is_unmounted(plan):
    with pytest.raises(FixError, match="nodevet unmounts nothing"):
        plan("mounts", {"/scratch": "absent"}, node(mounted()))


def test_new_options_of_a_mount_unit_are_left_to_systemctl_reload(plan):
    sections = node(mounted(), {**XFS, "file": UNIT})
    with pytest.raises(FixError, match=r"`systemctl reload scratch\.mount`"):
        plan("mounts", {"/scratch": {"options": ["noatime"]}}, sections)


@pytest.mark.parametrize("path", ["/scratch/", "/a b", "/$(reboot)", "/a/../b", "/a\nb", "/"])
def test_only_a_plain_mount_path_reaches_a_command(plan, path):
    with pytest.raises(FixError, match="is not a plain path of a mount"):
        plan("mounts", {path: "xfs"}, node(path=path))


def test_unread_values_plan_nothing(plan, wrong, evidence):
    findings = wrong("mounts", {"/scratch": "xfs"}, evidence(node()))
    for sections in ({}, {"mounts": {"status": "error", "why": "no"}}, node(said=None)):
        with pytest.raises(FixError, match=NOT_ASKED):
            plan("mounts", {"/scratch": "xfs"}, sections, findings)
    assert plan("mounts", {"/scratch": "xfs"}, node(mounted())) == []


STATE = {"type": "xfs", "source": "/dev/md0", "root": "/", "options": ["rw", "noatime"]}


def of_mount(**parts):
    name = Resource(kind="mount", name="/scratch")
    return State(resource=name, exists=True, value={**STATE, **parts})


def test_a_rollback_unmounts_or_sets_the_earlier_options():
    gone = State(resource=of_mount().resource, exists=False)
    (unmount,) = restore(gone)
    assert unmount.label == "timeout -k 5 60 umount -- /scratch"
    (again,) = restore(of_mount(options=["ro", "$(reboot)", "nosuid"]))
    words = "remount,bind,ro,nosuid,dev,exec,diratime,strictatime"
    assert again.label == f"timeout -k 5 60 mount -o {words} -- /scratch"


def test_the_mount_state_shows_whether_a_command_took_effect():
    gone = State(resource=of_mount().resource, exists=False)
    kind = resource.KIND
    mount = resource.mount("/scratch").words
    assert (kind.command_holds(mount, [gone]), kind.command_holds(mount, [of_mount()])) == (0, 1)
    noexec = resource.remount("/scratch", ("rw", "noatime"), ("noexec",)).words
    assert kind.command_holds(noexec, [of_mount()]) is False
    assert kind.command_holds(noexec, [of_mount(options=["rw", "noexec", "noatime"])]) is True
    assert kind.command_holds(("reboot",), [of_mount()]) is None
    assert all(map(kind.names_all, (mount, noexec, resource.unmount("/scratch").words)))
    assert not kind.names_all(("reboot",)) and not kind.names_all(("timeout", "-k", "5", "60"))


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a/b", "a-b.mount"), ("/.a", r"\x2ea.mount"), ("/a/.b_c-d", r"a-.b_c\x2dd.mount")],
)
def test_the_unit_of_a_path_has_the_name_that_systemd_gives_it(path, name):
    assert mount_unit(path) == name
