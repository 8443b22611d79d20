"""Huge pages of every size, and the CPUs that are plugged in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodevet.remote.probe.collectors import cpu, memory

Check = Callable[[str, dict[str, Any]], Any]


def write(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root.resolve())


def test_huge_pages_of_every_size_and_all_together(tmp_path: Path, check: Check) -> None:
    pages = "sys/kernel/mm/hugepages"
    root = write(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 100 kB\nHugetlb:        16779264 kB\n",
            f"{pages}/hugepages-1048576kB/nr_hugepages": "16\n",
            f"{pages}/hugepages-1048576kB/free_hugepages": "many\n",
            f"{pages}/hugepages-2048kB/nr_hugepages": "1\n",
            f"{pages}/hugepages-2048kB/free_hugepages": "0\n",
            f"{pages}/hugepages-pink/free_hugepages": "0\n",
        },
    )
    found = check("memory", memory.collect(root, {}))
    assert found.hugetlb_kb == 16779264
    assert [(each.size_kb, each.total, each.free) for each in found.hugepages] == [
        (2048, 1, 0),
        (1048576, 16, None),
    ]
    assert found.hugepages[1].errors == {"free": "not a number: 'many'"}


def test_a_kernel_without_huge_pages(tmp_path: Path, check: Check) -> None:
    found = check("memory", memory.collect(write(tmp_path, {"proc/meminfo": "MemTotal: 1 kB"}), {}))
    assert found.hugepages is None
    assert found.errors["hugepages"] == "ENOENT"


def test_present_cpus_may_be_fewer_than_the_possible_cpus(tmp_path: Path, check: Check) -> None:
    place = "sys/devices/system/cpu"
    files = {"online": "0-6\n", "offline": "7-15\n", "present": "0-7\n"}
    root = write(tmp_path, {f"{place}/{name}": text for name, text in files.items()})
    found = check("cpu", cpu.collect(root, {}))
    assert (found.online, found.offline, found.present) == ("0-6", "7-15", "0-7")
