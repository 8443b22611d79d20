"""Captured /sys and /proc trees: every capture loads and says what is known of its machine."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
from pathlib import Path

import pytest

from nodevet.remote.probe.collectors import cpu, cpufreq, host, memory, modules, numa, pci
from nodevet_sim import captured
from nodevet_sim.captured import CapturedTree, area_of, areas, read
from nodevet_sim.machine import hgx
from nodevet_sim.state import StateError
from nodevet_sim.tree import write

CAPTURES = Path(__file__).parents[2] / ".." / "shared" / "captures"
HWLOC = "sysfs/hwloc/"
UTIL_LINUX = "copyleft/sysfs/util-linux/"
TREES = sorted(
    str(path.relative_to(CAPTURES))
    for pattern in ("sysfs/**/*.tar.*", "sysfs/*.ttar", UTIL_LINUX + "*", "node-bundle/*")
    for path in CAPTURES.glob(pattern)
)
HARDWARE = {"sys/devices/system/cpu", "sys/devices/system/node", "proc/cpuinfo"}


def path_of(name):
    path = CAPTURES / name
    if not path.exists():
        pytest.skip(f"no capture {path}")
    return path


def written(found, into):
    """The tree on disk, for the probe. Returns its root."""
    for name, content in found.files.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(content)
    for name, target in found.links.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).symlink_to(target)
    return str(into)


@pytest.mark.skipif(not TREES, reason=f"no captures in {CAPTURES}")
@pytest.mark.parametrize("name", TREES)
def test_every_capture_loads(name):
    found = read(path_of(name))
    names = [*found.files, *found.links]
    assert len(found.files) >= 10
    assert {name.split("/")[0] for name in names} <= {"sys", "proc"}
    assert not [name for name in names if ".." in name.split("/") or name.endswith("/")]
    assert areas(found)
    if name.startswith((HWLOC, UTIL_LINUX, "sysfs/ghw/")):
        assert areas(found) >= HARDWARE


def test_captures_have_the_numbers_that_the_manifest_states():
    fixtures = read(path_of("sysfs/procfs-fixtures.ttar"))
    assert len(fixtures.files) == 2647
    assert [name for name in fixtures.skipped if "/usr/bin" in name and "proc/26231/exe" in name]
    speeds = [name for name in fixtures.files if name.endswith("/current_link_speed")]
    assert len(speeds) == 6
    assert len([name for name in fixtures.files if "/aer_dev_" in name]) == 18
    assert fixtures.files["proc/26231/wchan"] == b"poll_schedule_timeout"  # no newline
    assert fixtures.files["proc/26231/cmdline"] == b"vim\0test.go\0+10\0"
    other = read(path_of("sysfs/node_exporter-sys.ttar"))
    assert other.files["sys/block/md0/md/level"] == b"raid0\n"
    kernel = read(path_of(UTIL_LINUX + "x86_64-64cpu-linux6.2.tar.gz"))
    place = "sys/devices/system/cpu/vulnerabilities/"
    assert len([name for name in kernel.files if name.startswith(place)]) == 11
    old = read(path_of("sysfs/ghw/linux-amd64-8581cf3a529e5d8b97ea876eade2f60d.tar.gz"))
    numa_files = [name for name in old.files if "/pci" in name and name.endswith("/numa_node")]
    assert len(numa_files) == 82


def test_node_bundles_hold_what_the_manifest_states():
    laptop = read(path_of("node-bundle/laptop-gtx850m-nodriver"))
    assert laptop.files["sys/bus/pci/devices/0000:01:00.0/numa_node"] == b"-1\n"
    assert "proc/driver/nvidia" not in areas(laptop)
    desktop = read(path_of("node-bundle/x570-rtx3090-xid56"))
    assert b"580.173.02" in desktop.files["proc/driver/nvidia/version"]
    # three files of one function are no PCI bus, and the nodes that are online no topology
    assert areas(desktop) == {
        "proc/buddyinfo",
        "proc/cmdline",
        "proc/cpuinfo",
        "proc/driver/nvidia",
        "proc/meminfo",
        "proc/modules",
        "sys/kernel/mm/transparent_hugepage",
    }
    assert area_of("sys/bus/pci/devices/0000:0a:00.0/numa_node") == "sys/bus/pci"


def test_the_probe_reads_a_skylake_server_as_its_maintainers_do(tmp_path):
    found = read(path_of(HWLOC + "32intel64-2p8co2t+8ve.tar.bz2"))
    assert len([name for name in found.files if name.endswith("/max_link_speed")]) == 29
    root = written(found, tmp_path)
    found = cpu.collect(root, {})
    assert (found["online"], found["cores"], found["sockets"]) == ("0-31", 16, 2)
    assert found["model_name"] == "Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz"
    nodes = numa.collect(root, {})["nodes"]
    assert [node["cpulist"] for node in nodes] == ["0-7,16-23", "8-15,24-31"]
    assert [node["memory_total_kb"] for node in nodes] == [47925628, 49519964]
    functions = pci.collect(root, {})["functions"]
    nics = [item for item in functions if item["class_code"] and item["class_code"][:2] == "02"]
    assert {item["numa_node"] for item in nics} == {0}
    assert all(item["link_gts"] and item["link_width_max"] and item["upstream"] for item in nics)


def test_the_probe_reads_captures_of_a_gb10_and_of_a_virtual_machine(tmp_path):
    gb10 = written(read(path_of(HWLOC + "nvidia-dgx-gb10.tar.bz2")), tmp_path / "gb10")
    assert cpu.collect(gb10, {})["packages"] == {"36": "0-19"}
    assert cpufreq.collect(gb10, {})["policies"][0]["governor"]
    assert host.collect(gb10, {})["dmi_vendor"] == "NVIDIA"
    machine = read(path_of("sysfs/ghw/linux-amd64-accel-nvidia.tar.gz"))
    functions = pci.collect(written(machine, tmp_path / "vm"), {})["functions"]
    (gpu,) = [item for item in functions if item["vendor"] == "10de"]
    assert (gpu["address"], gpu["upstream"]) == ("0000:06:00.0", ["0000:00:01.5"])
    assert gpu["errors"]["link_gts"] == "ENOENT"
    bundle = read(path_of("node-bundle/x99-titanx-driver352"))
    titan = written(bundle, tmp_path / "titan")
    assert "nvidia" in modules.collect(titan, {})["loaded"]
    assert memory.collect(titan, {})["total_kb"] > 1 << 20


def tar(*members, mode="w", **options):
    """A tar archive of (name, content) files and (name, TarInfo type, target) others."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, **options) as archive:
        for name, what, *target in members:
            info = tarfile.TarInfo(name)
            if target:
                info.type, info.linkname = what, target[0]
                archive.addfile(info)
            else:
                info.size = len(what)
                archive.addfile(info, io.BytesIO(what))
    return buffer.getvalue()


CPUS = ("host/sys/devices/system/cpu/online", b"0-3\n")


@pytest.fixture
def saved(tmp_path):
    def save(content, name="capture"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return save


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_only_sys_and_proc_are_read_from_an_archive(saved, pack):
    found = read(
        saved(
            pack(
                tar(
                    ("./host/README", b"hello"),
                    ("./host/dev/kmsg", b""),
                    ("./host/sys/bus/pci", tarfile.DIRTYPE, ""),
                    CPUS,
                    ("host/proc/empty", b""),
                    ("host/sys/block/sda", tarfile.SYMTYPE, "../devices/sda"),
                    ("host/sys/out", tarfile.SYMTYPE, "../../../../etc/passwd"),
                    ("host/proc/mounts", tarfile.SYMTYPE, "/proc/self/mounts"),
                    ("host/proc/1/exe", tarfile.SYMTYPE, "/usr/bin/x"),
                    ("host/sys/hard", tarfile.LNKTYPE, "host/README"),
                    ("host/sys/fifo", tarfile.FIFOTYPE, ""),
                    ("host/sys/null", tarfile.CHRTYPE, ""),
                    ("host/sys/a\nb", b"1"),
                    ("host/sys/caf\udce9", b"1"),
                    (CPUS[0], b"0-7\n"),
                )
            )
        )
    )
    assert found == CapturedTree(
        {"sys/devices/system/cpu/online": b"0-7\n", "proc/empty": b""},
        {
            "sys/block/sda": "../devices/sda",
            "sys/out": "../../../../etc/passwd",
            "proc/mounts": "/proc/self/mounts",
        },
        (
            "proc/1/exe: a link to /usr/bin/x, outside the tree",
            "sys/hard: a hard link",
            "sys/fifo: not a regular file",
            "sys/null: not a regular file",
            r"sys/a\nb: its name is not printable",
            r"sys/caf\udce9: its name is not printable",
        ),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar(("host/README", b"x")), "it contains neither sys nor proc; give the directory"),
        (tar(("a/sys/x", b""), ("b/sys/x", b"")), "sys or proc in several places: a, b; give one"),
        (tar(CPUS, ("host/sys/../../../etc/passwd", b"")), "leads out of it"),
        (tar(CPUS, ("/etc/passwd", b"")), "'/etc/passwd' leads out of it"),
        (
            tar(("sys/a", tarfile.SYMTYPE, "/sys"), ("sys/a/b", b"")),
            "sys/a/b lies below sys/a, which is not a directory",
        ),
        (tar(("sys/a", b""), ("sys/a/b", b"")), "sys/a/b lies below sys/a"),
        (tar(("sys/big", bytes((16 << 20) + 1))), "sys/big is larger than 16 MiB"),
        (tar(CPUS)[:700], "unexpected end of data"),
        (tar(CPUS, CPUS)[:1024], "the archive is truncated"),
        (tar(("sys/x", bytes(2000)))[:1024], "unexpected end of data"),
        (gzip.compress(tar(CPUS, CPUS))[:-30], "cannot be read as a capture"),
        (bz2.compress(tar(CPUS, CPUS))[:-8], "cannot be read as a capture"),
        (lzma.compress(tar(CPUS, CPUS))[:-8], "cannot be read as a capture"),
        (b"\x1f\x8bnonsense", "cannot be read as a capture"),
        (b"", "cannot be read as a captured tree: empty file"),
        (tar(("././@LongLink", tarfile.GNUTYPE_LONGNAME, "")) [:512] * 3000, "cannot be read as a"),
        (b"no archive at all" * 100, "cannot be read as a captured tree: invalid header"),
        (b"# Archive created by ttar\nPath: sys/x\nLines: 9\n1\n", ":3: ends before its lines"),
        (b"# Archive created by ttar\nPath: sys/x\nhello\n", ":3: not a valid line"),
        (b"# Archive created by ttar\nPath: ../sys/x\nLines: 0\n", "leads out of it"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_capture_is_refused(saved, content, message):
    path = saved(content)
    with pytest.raises(StateError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)


def test_bounds(saved, monkeypatch):
    monkeypatch.setattr(captured, "MEMBERS", 10)
    with pytest.raises(StateError, match="more than 10 members"):
        read(saved(tar(*((f"sys/{count}", b"") for count in range(11)))))
    monkeypatch.setattr(captured, "TOTAL", 1 << 20)
    with pytest.raises(StateError, match="more than 1 MiB of files"):
        read(saved(tar(("other/x", bytes(1 << 20)), ("sys/x", b"1"))))
    monkeypatch.setattr(captured, "STREAM", 1 << 20)
    with pytest.raises(StateError, match="unpacks to more than 1 MiB"):
        read(saved(gzip.compress(tar(("sys/x", b"1"), ("sys/y", bytes(2 << 20))))))


def test_a_large_file_elsewhere_does_not_matter(saved):
    found = read(saved(tar(("host/log", bytes((16 << 20) + 1)), CPUS)))
    assert list(found.files) == ["sys/devices/system/cpu/online"]


def test_a_directory_is_read_as_a_capture(tmp_path):
    top = tmp_path / "bundle" / "root"
    (top / "sys/bus").mkdir(parents=True)
    (top / "proc").mkdir()
    (top / "proc/cpuinfo").write_text("processor\t: 0\n")
    (top / "sys/link").symlink_to("../../../elsewhere")
    (top / "sys/dir").symlink_to(tmp_path)
    os.mkfifo(top / "sys/fifo")
    (tmp_path / "bundle/header.txt").write_text("x")
    found = read(tmp_path / "bundle")
    assert found.files == {"proc/cpuinfo": b"processor\t: 0\n"}
    assert found.links == {"sys/link": "../../../elsewhere"}
    assert found.skipped[-1] == "sys/fifo: not a regular file"
    assert found.skipped[0].startswith("sys/dir: a link to /")
    with pytest.raises(StateError, match="No such file or directory"):
        read(tmp_path / "none")


def test_a_file_that_cannot_be_read_from_the_disk_is_skipped_with_its_reason():
    member = captured._from_disk("sys/x", "/proc/self/mem")
    assert (member.kind, member.content) == ("skip", "cannot be read: Input/output error")


def test_ttar_escapes(saved):
    head = b"# Archive created by ttar -c\nDirectory: fixtures/proc\nMode: 755\n# ttar - -\n"
    rows = (
        b"Path: fixtures/proc/a\nLines: 2\n\\NULLBYTE NULLBYTE\nend\\EOF\nMode: 644\n",
        b"Path: fixtures/proc/b\nLines: 0\nMode: 644\n",
        b"Path: fixtures/proc/c\nLines: 1\nPath: xEOF\nMode: 644\n",
        b"Path: fixtures/proc/d\nSymlinkTo: self/mounts\n",
    )
    found = read(saved(head + b"".join(rows)))
    assert found.files == {
        "proc/a": b"NULLBYTE \0\nendEOF\n",
        "proc/b": b"",
        "proc/c": b"Path: x",
    }
    assert found.links == {"proc/d": "self/mounts"}


def test_every_hardware_file_of_a_described_machine_belongs_to_an_area(tmp_path):
    """So a scenario that drops the areas of a capture leaves nothing of another machine."""
    write(hgx("gpu-01", gpus=1, cores_per_socket=1), tmp_path / "node")
    found = read(tmp_path / "node")
    without = {
        name for name in (*found.files, *found.links)
        if area_of(name) is None and not name.startswith(("proc/1/", "proc/uptime"))
    }  # fmt: skip
    assert without == set()
    assert areas(found) == set(captured.AREAS) - {"proc/sys"}


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("sys/devices/pci0000:00/0000:00:01.0/vendor", "sys/bus/pci"),
        ("sys/devices/pci10000:e0/pci_bus", "sys/bus/pci"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "sys/devices/system/cpu"),
        ("sys/bus/cpu/devices/cpu0", "sys/devices/system/cpu"),
        ("sys/bus/node/devices/node0", "sys/devices/system/node"),
        ("sys/devices/virtual/dmi/id/sys_vendor", "sys/class/dmi"),
        ("sys/devices/virtual/net/lo", None),
        ("proc/cpuinfo", "proc/cpuinfo"),
        ("proc/cpuinfox", None),
        ("sys/devices/pci", None),
    ],
)
def test_areas_of_paths(path, area):
    assert area_of(path) == area
