"""What is mounted where, as the kernel would look it up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.evidence.mounts import Mount
from nodevet.remote.probe.collectors import mounts
from nodevet.remote.state import mount

Check = Callable[[str, dict[str, Any]], Any]
CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures"
ROOT = "20 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n"
NFS = "filer:/home rw,vers=4.2,hard"


@pytest.fixture
def look(tmp_path: Path, check: Check) -> Callable[..., Any]:
    def looked(text: str, *paths: str, file: str = "proc/1/mountinfo") -> Any:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
        asks = {"asks": {"mounts": list(paths)}}
        return check("mounts", mounts.collect(str(tmp_path.resolve()), asks))

    return looked


def only(found: Any) -> Mount:
    (mount,) = found.mounts
    assert isinstance(mount, Mount)
    return mount


def test_mounted_and_missing_entries_are_found(look: Callable[..., Any]) -> None:
    text = ROOT + "30 20 9:0 / /scratch rw,noatime shared:2 master:1 - xfs /dev/md0 rw,noquota\n"
    found = look(text, "/scratch/", "/data", "/scratch/jobs", "/")
    told = {each.name: (each.mounted, each.type, each.source) for each in found.mounts}
    assert told == {
        "/": (True, "ext4", "/dev/sda2"),
        "/data": (False, None, None),
        "/scratch/": (True, "xfs", "/dev/md0"),
        "/scratch/jobs": (False, None, None),
    }
    scratch = next(each for each in found.mounts if each.name == "/scratch/")
    assert scratch.options == ("rw", "noatime")
    assert scratch.super_options == ("rw", "noquota")
    assert not any(each.automount for each in found.mounts)


def test_e06_mount_options_are_reported_whole_or_not_at_all(look: Callable[..., Any]) -> None:
    row = ROOT + "30 20 9:0 / /scratch rw shared:2 - xfs /dev/md0 {}\n"
    long = "lowerdir=" + ":".join(f"/layers/{number}" for number in range(100))
    assert only(look(row.format(f"rw,{long}"), "/scratch")).super_options == ("rw", long)
    many = only(look(row.format(",".join(f"o{number}" for number in range(200))), "/scratch"))
    assert (many.options, many.super_options) == (("rw",), None)
    assert many.errors["super_options"] == "more than 128 options, or a longer one"


def test_the_topmost_of_stacked_mounts_counts(look: Callable[..., Any]) -> None:
    # the kernel lists them by age, and the older one may be on top
    text = (
        ROOT
        + "30 40 0:50 / /data rw - tmpfs tmpfs rw\n"
        + "40 20 9:0 / /data rw - xfs /dev/md0 rw\n"
    )
    assert only(look(text, "/data")).type == "tmpfs"


def test_what_is_below_another_mount_is_not_mounted(look: Callable[..., Any]) -> None:
    text = (
        ROOT
        + "30 20 9:0 / /mnt/data rw - xfs /dev/md0 rw\n"
        + "40 20 0:50 / /mnt rw - tmpfs tmpfs rw\n"
    )
    assert only(look(text, "/mnt/data")).mounted is False
    assert "/mnt/data" not in [each.name for each in look(text).others]


def test_an_automount_that_was_not_used_is_distinguished(look: Callable[..., Any]) -> None:
    direct = "30 20 0:40 / /data rw - autofs systemd-1 rw,fd=44,timeout=0\n"
    indirect = "31 20 0:41 / /home rw - autofs /etc/auto.home rw,fd=6\n"
    used = f"32 30 0:42 / /data rw - nfs4 {NFS}\n"
    waiting = only(look(ROOT + direct, "/data"))
    assert (waiting.mounted, waiting.automount, waiting.type) == (False, True, None)
    below = only(look(ROOT + indirect, "/home/jane"))
    assert (below.mounted, below.automount) == (False, True)
    mounted = only(look(ROOT + direct + used, "/data"))
    assert (mounted.mounted, mounted.automount, mounted.type) == (True, False, "nfs4")


def test_mounts_of_the_probe_are_read_if_those_of_pid_1_are_hidden(
    look: Callable[..., Any],
) -> None:
    assert only(look(ROOT, "/", file="proc/self/mountinfo")).type == "ext4"


def test_the_mounts_of_a_container_are_never_taken_for_its_hosts(
    tmp_path: Path, look: Callable[..., Any]
) -> None:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
    with pytest.raises(FileNotFoundError):
        look(ROOT, "/", file="proc/self/mountinfo")


def test_escaped_paths_and_odd_rows(look: Callable[..., Any]) -> None:
    text = ROOT + r"30 20 9:0 / /my\040data rw - fuse.juicefs JuiceFS:a\040b rw" + "\n"
    assert only(look(text, "/my data")).source == "JuiceFS:a b"
    with pytest.raises(ValueError, match="not a row of mountinfo"):
        look("30 20 9:0\n", "/")
    with pytest.raises(ValueError, match="no root among the mounts"):
        look("", "/")
    assert only(look(ROOT, "relative")).errors["mounted"] == "not an absolute path"


def test_a_truncated_row_makes_only_its_mount_unknown(look: Callable[..., Any]) -> None:
    text = ROOT + "30 20 9:0 / /data rw shared:2 xfs /dev/md0 rw\n"
    found = look(text, "/data", "/")
    assert [(each.name, each.mounted) for each in found.mounts] == [("/", True), ("/data", None)]
    assert found.others is None or [each.name for each in found.others] == []


def test_mounts_of_containers_are_not_listed_and_can_be_asked_for(
    look: Callable[..., Any],
) -> None:
    pods = "".join(
        f"{100 + at} 20 0:{100 + at} / /run/containerd/task/{at}/rootfs rw - overlay overlay rw\n"
        f"{9000 + at} 20 0:5 / /var/lib/kubelet/pods/{at}/volumes/pv rw - nfs4 {NFS}\n"
        for at in range(3000)
    )
    asked = "/var/lib/kubelet/pods/7/volumes/pv"
    found = look(ROOT + pods + "90 20 9:0 / /scratch rw - xfs /dev/md0 rw\n", asked)
    assert only(found).type == "nfs4"
    assert [each.name for each in found.others] == ["/", "/scratch"]


@given(st.lists(st.text(alphabet="0123456789 -/abrw,:\\\n", max_size=60), max_size=20))
def test_any_text_is_parsed_or_refused(rows: list[str]) -> None:
    text = "\n".join(rows)
    try:
        tree = mounts.MountTree(mounts.parse_mounts(text))
    except ValueError:
        return
    assert mounts.requested_mount(tree, "/a/b")["name"] == "/a/b"


def test_too_many_unrequested_mounts_are_not_listed(look: Callable[..., Any]) -> None:
    disks = "".join(f"{100 + at} 20 9:{at} / /d{at} rw - xfs /dev/x{at} rw\n" for at in range(300))
    found = look(ROOT + disks, "/d299")
    assert only(found).mounted is True
    assert (found.others, found.errors["others"]) == (None, "more than 256 of them")


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES}")
def test_a_kubernetes_node(look: Callable[..., Any]) -> None:
    text = (CAPTURES / "disk" / "gpud-mountinfo").read_text()
    volume = "/var/lib/juicefs/volume/pv-ws-test-storage-rsync-training-by-lepton-0-rupytp"
    found = look(text, volume, "/nowhere", "/root/tmproot")
    told = {each.name: (each.mounted, each.type) for each in found.mounts}
    assert told == {
        "/nowhere": (False, None),
        "/root/tmproot": (True, "ext4"),
        volume: (True, "fuse.testfs"),
    }
    assert not any("kubelet" in each.name for each in found.others)


FSTAB = """\
# /scratch xfs
UUID=7\t/scratch/  xfs  defaults,noatime 0 2
filer:/home /home nfs vers=4.2,hard
/swap none swap sw 0 0
//nas/a /a\\040b cifs username=x,password=hunter2 0 0
/dev/sdb1 /twice ext4
/dev/sdc1 /twice ext4
/dev/sdd1 /both ext4
"""
UNITS = {
    "etc/systemd/system/local\\x2ddata.mount": "[Mount]\nWhat = /dev/md1\nOptions=ro,nodev\n",
    "etc/systemd/system/both.mount": "[Mount]\nWhat=/dev/sde1\n",
    "etc/systemd/system/changed.mount.d/x.conf": "[Mount]\nOptions=ro\n",
    "run/systemd/generator/scratch.mount": "[Mount]\nWhat=/dev/other\n",
}


@pytest.fixture
def configured(tmp_path: Path, look: Callable[..., Any]) -> Callable[..., Any]:
    for path, text in {"etc/fstab": FSTAB, **UNITS}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    by_uuid = tmp_path / "dev/disk/by-uuid"
    by_uuid.mkdir(parents=True)
    (by_uuid / "7").symlink_to("../../md0")

    def only_one(path: str) -> Any:
        (record,) = look(ROOT, path, "fstab").configured
        assert record.name == path
        return record

    return only_one


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/scratch", ("/etc/fstab", "xfs", "/dev/md0", ("noatime",))),
        ("/home", ("/etc/fstab", "nfs", "filer:/home", ("vers=4.2", "hard"))),
        (
            "/local-data",
            ("/etc/systemd/system/local\\x2ddata.mount", "auto", "/dev/md1", ("ro", "nodev")),
        ),
        ("/nowhere", ("", "", "", ())),
    ],
)
def test_a_fix_gets_the_mount_that_files_configure(
    configured: Callable[[str], Any], path: str, told: tuple[Any, ...]
) -> None:
    record = configured(path)
    assert (record.file, record.type, record.source, record.options) == told


@pytest.mark.parametrize(
    ("path", "field", "why"),
    [
        ("/a b", "options", "an option holds a password"),
        ("/twice", "file", "named more than once: /etc/fstab, /etc/fstab"),
        ("/both", "file", "named more than once: /etc/fstab, /etc/systemd/system/both.mount"),
        ("/changed", "file", "/etc/systemd/system/changed.mount.d changes its unit"),
    ],
)
def test_an_unread_value_of_a_file_has_a_reason(
    configured: Callable[[str], Any], path: str, field: str, why: str
) -> None:
    record = configured(path)
    assert (getattr(record, field), record.errors[field]) == (None, why)
    assert "hunter2" not in repr(record)


def test_a_pseudo_file_system_is_omitted_even_if_it_is_private(look: Callable[..., Any]) -> None:
    rows = "30 20 0:5 / /proc rw - proc proc rw\n31 20 9:0 / /data rw - xfs /dev/md0 rw\n"
    assert [each.name for each in look(ROOT + rows).others] == ["/", "/data"]


def test_whether_a_folder_is_empty_is_read_only_on_local_file_systems(
    configured: Callable[[str], Any], look: Callable[..., Any], tmp_path: Path
) -> None:
    for folder in ("scratch", "home/user", "nfs/a"):
        (tmp_path / folder).mkdir(parents=True)
    assert [configured(path).empty for path in ("/scratch", "/home", "/no")] == [True, False, None]
    assert configured("/no").errors["empty"] == "ENOENT"
    text = f"{ROOT}30 20 0:50 / /nfs rw - nfs4 filer:/ rw\n"
    (record,) = look(text, "/nfs/a", "fstab").configured
    assert (record.empty, record.errors["empty"]) == (None, "its folder is on nfs4")


def test_configured_mounts_are_read_only_on_request(look: Callable[..., Any]) -> None:
    assert look(ROOT, "/scratch").configured == ()


def test_the_state_of_a_mount_holds_all_that_restores_it(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    rows = (
        "30 20 9:0 /sub /a rw,noexec - xfs /dev/md0 rw,noquota\n31 20 0:5 / /b rw - autofs x rw\n"
    )
    (tmp_path / "proc/1/mountinfo").write_text(ROOT + rows)
    root = str(tmp_path.resolve())
    assert mount.look(root, "/a")["value"] == {
        "type": "xfs", "source": "/dev/md0", "root": "/sub", "options": ["rw", "noexec"],
    }  # fmt: skip
    assert [mount.look(root, path)["exists"] for path in ("/b", "/c", "/a/b")] == [False] * 3
    with pytest.raises(ValueError, match="not an absolute path"):
        mount.look(root, "a")


def test_the_state_of_a_path_that_a_link_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """`mount` would follow the link, and nothing at this path could be unmounted again."""
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(f"{ROOT}30 20 0:9 / /home rw - nfs f:/home rw\n")
    for folder in ("mnt/data", "home/a", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    for link, target in (("data", "/mnt/data"), ("d", "/mnt"), ("home/b", "/etc")):
        (tmp_path / link).symlink_to(target)
    root = str(tmp_path.resolve())
    for path in ("/data", "/d/data", "/d/new"):
        with pytest.raises(ValueError, match=r"a symbolic link leads to '?/mnt/"):
            mount.look(root, path)
    for path in ("/mnt/data", "/new", "/home/a", "/home/b"):  # the server may not answer
        assert mount.look(root, path) == {"exists": False, "value": None, "why": ""}


@pytest.mark.parametrize(
    ("line", "is_manager"),
    [
        ("ExecStart=/bin/mount -t xfs /dev/md0 /scratch", True),
        ("umount /scratch && reboot", True),
        ("mount /scratch/jobs; ls /scratch", False),
        ("Where=/scratch", False),
        ("remount /scratch.old", False),
    ],
)
def test_a_command_that_mounts_the_path_is_another_manager(line: str, is_manager: bool) -> None:
    words = mount.patterns("/", "/scratch").words
    assert words is not None and bool(words.search(line)) is is_manager
