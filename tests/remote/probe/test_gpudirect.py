"""GPUDirect's modules, files and device nodes, on trees of files and on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import gpudirect

Check = Callable[[str, dict[str, Any]], Any]


def put(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root.resolve())


def test_a_node_with_gpudirect_storage_and_gdrcopy_is_read(tmp_path: Path, check: Check) -> None:
    root = put(
        tmp_path,
        {
            "/sys/module/nvidia_fs/version": "2.19.6\n",
            "/sys/module/gdrdrv/version": "2.4.1\n",
            "/proc/driver/nvidia-fs/stats": "GDS Version: 1.9.0.20\n",
            "/etc/cufile.json": '{\n// a comment\n"properties": {"use_pci_p2pdma": true}}\n',
        },
    )
    found = check("gpudirect", gpudirect.collect(root, {}))
    assert (found.nvidia_fs, found.nvidia_fs_version, found.nvidia_fs_stats) == (
        True,
        "2.19.6",
        True,
    )
    assert (found.gdrdrv, found.gdrdrv_version, found.gdrdrv_device) == (True, "2.4.1", "")
    assert found.p2pdma is True


def test_a_node_without_gpudirect_storage_and_gdrcopy_is_read(tmp_path: Path, check: Check) -> None:
    found = check("gpudirect", gpudirect.collect(str(tmp_path.resolve()), {}))
    assert not found.errors
    assert (found.nvidia_fs, found.gdrdrv, found.nvidia_fs_stats, found.p2pdma) == (False,) * 4
    assert found.nvidia_fs_version == found.gdrdrv_version == found.gdrdrv_device == ""


def test_a_device_node_is_reported_with_its_permissions(tmp_path: Path, check: Check) -> None:
    assert gpudirect.device("/", "/dev/null") == "0666"
    root = put(tmp_path, {"/dev/gdrdrv": ""})
    found = check("gpudirect", gpudirect.collect(root, {}))
    assert found.errors["gdrdrv_device"] == "not a character device"


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ('{"use_pci_p2pdma": true}', True),
        ('{"use_pci_p2pdma" :false}', False),
        ('{\n  // "use_pci_p2pdma": true\n}', False),
        ("", False),
    ],
)
def test_the_p2pdma_setting_of_cufile_json_is_parsed(text: str, on: bool) -> None:
    assert gpudirect.parse_p2pdma(text) is on
