"""What a node's CPUs, disks and networks did, from the files of kernels old and new."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import host_activity

Check = Callable[[str, dict[str, Any]], Any]
DISK = "   8  0 {} 10 0 80 5 20 0 160 7 0 9 12"
WISH = {"asks": {"host_activity": [{"seconds": 0.1, "interval": 0.1}]}, "whole_machine": True}


def put(root: Path, **files: str) -> None:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


@pytest.fixture
def collected(tmp_path: Path, check: Check) -> Callable[..., Any]:
    def made(**files: str) -> Any:
        put(tmp_path, **files)
        return check("host_activity", host_activity.collect(str(tmp_path.resolve()), WISH))

    return made


def test_a_tree_with_nothing_is_unknown_and_not_idle(collected: Callable[..., Any]) -> None:
    found = collected()
    for field in ("cpus", "disks", "networks", "interrupts"):
        assert getattr(found, field) is None
        assert found.errors[field]
    assert found.total.user is None
    assert found.pressure.io_full_us is None
    assert found.pressure.errors["io_full_us"] == "ENOENT"
    assert found.memory.available_kb is None


def test_stat_of_old_and_new_kernels_and_many_cpus() -> None:
    old = host_activity.parse_stat("cpu 1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\nbtime 9\n")
    assert old[0] == {"user": 3, "system": 3, "idle": 4, "iowait": 5, "irq": 13, "steal": 0}
    many = "".join(f"cpu{at} 1 0 0 9 0 0 0 0 5 5\n" for at in range(8192))
    total, cpus = host_activity.parse_stat(f"cpu 1 0 0 9 0 0 0 2 5 5\n{many}procs_running 3\n")
    assert (len(cpus), total["steal"], total["running"], total["user"]) == (8192, 2, 3, 1)
    with pytest.raises(ValueError, match="no row cpu"):
        host_activity.parse_stat("btime 9\n")


def test_pressure_that_has_no_full() -> None:
    found = host_activity.parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n")
    assert found == {"some": 12}


def test_disks_without_partitions_and_unused_ones(collected: Callable[..., Any]) -> None:
    extra = " 0 0 0 0 3 4"  # discards since 4.18, flushes since 5.5
    rows = [DISK.format("sda") + extra, DISK.format("sda1"), DISK.format("ram0")]
    rows += ["7 0 loop0 0 0 0 0 0 0 0 0 0 0 0", DISK.format("md0"), "8 0 sdz 1 2"]
    files = {
        "proc/diskstats": "\n".join(rows) + "\n",
        "sys/class/block/sda1/partition": "1\n",
    }
    found = collected(**files)
    assert [disk.name for disk in found.disks] == ["md0", "sda"]
    sda = found.disks[1]
    assert (sda.reads, sda.read_sectors, sda.read_ms) == ((10, 10), (80, 80), (5, 5))
    assert (sda.writes, sda.written_sectors, sda.write_ms) == ((20, 20), (160, 160), (7, 7))
    assert sda.busy_ms == (9, 9)


def test_the_busiest_of_thousands_of_disks_are_reported() -> None:
    fields = host_activity.DISK_FIELDS
    made = [{"name": f"sd{n}", **{key: [0, n] for key in fields}} for n in range(2000)]
    told, left_out = host_activity.busiest(made, fields)
    assert (len(told), left_out) == (512, 1488)
    assert {each["name"] for each in told} == {f"sd{n}" for n in range(1488, 2000)}


def test_a_network_counter_that_cannot_be_read(collected: Callable[..., Any]) -> None:
    files = {
        "sys/class/net/eth0/device/vendor": "0x15b3\n",
        "sys/class/net/eth0/speed": "-1\n",
        "sys/class/net/eth0/statistics/tx_bytes": "5\n",
        "sys/class/net/veth1/statistics/tx_bytes": "5\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "10\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    }
    eth, ib = collected(**files).networks
    assert (eth.name, eth.speed_mb_s, eth.received_b, eth.sent_b) == ("eth0", None, None, (5, 5))
    assert (ib.name, ib.speed_mb_s, ib.received_b) == ("mlx5_0/1", 400000, (40, 40))
    assert ib.sent_b is None


def test_interrupts_of_cards_and_odd_rows(tmp_path: Path) -> None:
    text = (
        "           CPU0       CPU2\n"
        "  24:          1          5  IR-PCI-MSI 1-edge      nvidia\n"
        "  25:          1          5  IR-PCI-MSI 1-edge      snd_hda\n"
        " ERR:          0\n"
    )
    put(tmp_path, **{"proc/interrupts": text})
    found = host_activity.interrupts(str(tmp_path.resolve()))
    assert found == {"24": ("nvidia", {0: 1, 2: 5})}


def test_an_interrupt_names_the_cpu_that_took_most_of_its_growth() -> None:
    made = host_activity.interrupt_of("24", ("nvidia", {0: 9, 1: 1}), ("nvidia", {0: 10, 1: 8}))
    assert (made["count"], made["cpu"]) == ([10, 18], 1)


def test_an_nfs_operation_without_an_earlier_count_is_unknown() -> None:
    numbers = dict.fromkeys((*host_activity.NFS_FIELDS, "execute_ms"), 5)
    made = host_activity.nfs_of(("/data", "filer:/data"), {}, {"READ": numbers})
    assert made["operations"][0]["operations"] is None
    assert made["operations"][0]["errors"]["operations"] == "not found"
