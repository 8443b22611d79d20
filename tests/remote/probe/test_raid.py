"""Software RAID and ZFS pools as the kernel tells them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import raid

Check = Callable[[str, dict[str, Any]], Any]
HEAD = "Personalities : [raid1] [raid6]\n"
MD0 = """
md0 : active raid1 sdb1[1] sda1[0]
      248896 blocks super 1.2 [2/2] [UU]
      bitmap: 0/30 pages [0KB], 65536KB chunk
"""
END = "\nunused devices: <none>\n"


@pytest.fixture
def look(tmp_path: Path, check: Check) -> Callable[..., Any]:
    def looked(text: str, files: dict[str, str] | None = None) -> Any:
        for path, content in {"proc/mdstat": text, **(files or {})}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return check("raid", raid.collect(str(tmp_path.resolve()), {}))

    return looked


def test_a_complete_array_and_a_pool(look: Callable[..., Any]) -> None:
    files = {
        "sys/block/md0/md/array_state": "clean\n",
        "proc/spl/kstat/zfs/tank/state": "ONLINE\n",
        "proc/spl/kstat/zfs/arcstats": "many\n",
    }
    found = look(HEAD + MD0 + END, files)
    (array,) = found.arrays
    assert (array.name, array.active, array.level) == ("md0", True, "raid1")
    assert (array.devices, array.devices_active) == (2, 2)
    assert (array.members, array.failed) == (("sda1", "sdb1"), ())
    assert (array.array_state, array.sync_action) == ("clean", "")
    assert [(pool.name, pool.state) for pool in found.pools] == [("tank", "ONLINE")]
    assert (found.arrays_found, found.pools_found) == (1, 1)


def test_neither_md_nor_zfs(tmp_path: Path, check: Check) -> None:
    found = check("raid", raid.collect(str(tmp_path.resolve()), {}))
    assert (found.arrays, found.pools, found.arrays_found, found.pools_found) == ((), (), 0, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("md0 : active raid1 sda1[0]\n", "not the beginning of /proc/mdstat"),
        (HEAD + "md0 : asleep raid1 sda1[0]\n", "not an array of /proc/mdstat"),
        (HEAD + "md0 : active raid1 sda1[0] sdb1\n", "not a list of members"),
        (HEAD + "".join(f"md{at} : active raid0 sda[0]\n" for at in range(300)), "more than 256"),
    ],
)
def test_an_invalid_mdstat_is_unknown(look: Callable[..., Any], text: str, why: str) -> None:
    found = look(text)
    assert found.arrays is None
    assert why in found.errors["arrays"]
    assert found.pools == ()


def test_arrays_of_every_kind(capture: Callable[[str], str], check: Check) -> None:
    found = check("raid", raid.collect(capture("sysfs/procfs-fixtures.ttar"), {}))
    arrays = {array.name: array for array in found.arrays}
    assert found.arrays_found == len(arrays) == 18
    counts = {name: (array.devices_active, array.devices) for name, array in arrays.items()}
    assert counts["md3"] == (8, 8)
    assert counts["md6"] == (1, 2)
    assert counts["md42"] == (2, 3)
    assert counts["md10"] == (None, None)
    assert [name for name in arrays if not arrays[name].active] == ["md4", "md219"]
    assert [name for name in arrays if arrays[name].container] == ["md219"]
    assert arrays["md9"].failed == ("sde", "sdf")
    assert arrays["md9"].spares == ("sdg",)
    assert arrays["md11"].read_only == "auto-read-only"
    assert arrays["md101"].read_only == "read-only"
    doing = {name: array.sync_action for name, array in arrays.items() if array.sync_action}
    assert doing == {
        "md6": "recovery",
        "md8": "resync",
        "md9": "resync delayed",
        "md11": "resync pending",
        "md42": "reshape",
        "md201": "check",
    }
    assert arrays["md6"].sync_percent == 8.5
