"""NFS mounts with their options and counts, from the kernel's own file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import nfs

Check = Callable[[str, dict[str, Any]], Any]
HEAD = "device sysfs mounted on /sys with fstype sysfs\n"
MOUNT = """\
device filer:/export mounted on {point} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=2,timeo=600,retrans=2
\tage:\t3600
\tcaps:\tcaps=0x3ffdf,wtmult=512,dtsize=32768,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t52 226 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 0
\tbytes:\t1207640230 0 0 0 1210214218 0 295483 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 10 24 26 5726
\txprt:\ttcp 833 0 3 0 11 6427 6427 0 12154 20 24 26 5726
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1000 1010 2 207680 1210292152 50 {rtt} 79407 1
\t       WRITE: 10 9 0 0 0 1 2 3 0
"""


@pytest.fixture
def look(tmp_path: Path, check: Check) -> Callable[..., Any]:
    def looked(text: str, file: str = "proc/1/mountstats") -> Any:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
        return check("nfs", nfs.collect(str(tmp_path.resolve()), {}))

    return looked


def test_options_and_counts_of_a_mount(look: Callable[..., Any]) -> None:
    found = look(HEAD + MOUNT.format(point=r"/my\040data", rtt=79386) + HEAD)
    assert found.found == 1
    (mount,) = found.mounts
    assert (mount.point, mount.source, mount.type) == ("/my data", "filer:/export", "nfs4")
    assert (mount.version, mount.age_s) == ("4.2", 3600)
    assert {"hard", "nconnect=2", "rsize=1048576"} <= set(mount.options)
    assert (mount.operations, mount.retransmissions, mount.timeouts) == (1011, 10, 2)
    assert (mount.queue_ms, mount.rtt_ms, mount.execute_ms) == (51, 79388, 79410)
    assert mount.failures == 1
    assert (mount.connections, mount.connects, mount.sends, mount.backlog) == (2, 4, 12855, 30)


def test_one_file_system_mounted_twice_is_reported_once(look: Callable[..., Any]) -> None:
    twice = MOUNT.format(point="/home", rtt=1) + MOUNT.format(point="/pods/home", rtt=1)
    found = look(twice + MOUNT.format(point="/data", rtt=2))
    assert [mount.point for mount in found.mounts] == ["/home", "/data"]
    assert found.found == 2


def test_volumes_of_containers_are_omitted(look: Callable[..., Any]) -> None:
    pods = "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~nfs/pv"
    text = "".join(MOUNT.format(point=pods.format(at), rtt=at) for at in range(200))
    found = look(text + MOUNT.format(point="/home", rtt=1))
    assert [mount.point for mount in found.mounts] == ["/home"]


def test_a_counter_that_wrapped_makes_only_its_value_unknown(look: Callable[..., Any]) -> None:
    (mount,) = look(MOUNT.format(point="/home", rtt=(1 << 64) - 5)).mounts
    assert mount.rtt_ms is None
    assert mount.queue_ms == 51
    assert "wrapped" in mount.errors["rtt_ms"]


def test_options_that_a_mount_lacks_are_named(look: Callable[..., Any]) -> None:
    (mount,) = look("device filer:/x mounted on /x with fstype nfs\n\tage:\tlong\n").mounts
    assert mount.errors["options"] == "no opts: in mountstats"
    assert mount.errors["age_s"] == "not a number: 'long'"
    assert mount.errors["operations"] == "no statistics of operations in mountstats"
    assert mount.errors["connections"] == "no xprt: in mountstats"


def test_no_nfs(look: Callable[..., Any]) -> None:
    found = look(HEAD, file="proc/self/mountstats")
    assert (found.found, found.mounts) == (0, ())


def test_more_file_systems_than_anyone_mounts(look: Callable[..., Any]) -> None:
    found = look("".join(MOUNT.format(point=f"/pv{at}", rtt=at) for at in range(200)))
    assert (found.found, found.mounts) == (200, None)
    assert found.errors["mounts"] == "more than 128 NFS file systems are mounted"


def test_node_exporter_reads_the_same_file_alike(
    capture: Callable[[str], str], captures: Path, look: Callable[..., Any]
) -> None:
    root = Path(capture("sysfs/node_exporter-proc-ethtool.tar.gz"))
    found = look((root / "proc/10/mountstats").read_text())
    metrics = (captures / "sysfs" / "node_exporter-e2e-output.txt").read_text()
    first, *_ = found.mounts
    labels = f'{{export="{first.source}",mountaddr="192.168.1.1",'
    told = {
        "age_seconds_total": first.age_s,
        "transport_connect_total": first.connects,
        "transport_sends_total": first.sends,
        "transport_backlog_queue_total": first.backlog,
    }
    for name, value in told.items():
        rows = [row for row in metrics.split("\n") if row.startswith(f"node_mountstats_nfs_{name}")]
        mine = [row for row in rows if labels in row and 'protocol="tcp"' in row]
        assert [float(row.rpartition(" ")[2]) for row in mine] == [value], name
