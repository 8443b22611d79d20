"""In a container that has the machine mounted, NVML is the machine's or its driver container's."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from nodevet.remote.probe import files, gpu_nvml
try:
    pynvml = gpu_nvml.load(sys.argv[1])
    pynvml.nvmlInit()
except files.Absent as error:
    print(error)
except pynvml.NVMLError as error:
    print(type(error).__name__)
with open("/proc/self/maps") as maps:
    print(*sorted({line.split()[-1] for line in maps if "libnvidia-ml" in line}))
"""


def loaded(root: Path) -> list[str]:
    words = [sys.executable, "-c", PROGRAM, str(root)]
    done = subprocess.run(words, capture_output=True, text=True, env={"HOME": "/"})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def put(library: Path, folder: Path) -> Path:
    """The library with its links, as a driver installs it; the path of the file itself."""
    folder.mkdir(parents=True)
    shutil.copy(library, folder / "libnvidia-ml.so.580.105.08")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.105.08")
    return folder / "libnvidia-ml.so.580.105.08"


@pytest.mark.parametrize(
    "place",
    [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib64",
        "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "home/kubernetes/bin/nvidia/lib64",
    ],
)
def test_the_library_of_the_machine_is_loaded_once(nvml: Path, tmp_path: Path, place: str) -> None:
    file = put(nvml, tmp_path / place)
    assert loaded(tmp_path)[-1] == str(file)


def test_a_link_of_the_machine_stays_within_it(nvml: Path, tmp_path: Path) -> None:
    file = put(nvml, tmp_path / "host/opt/driver")
    link = tmp_path / "host/usr/lib64"
    link.parent.mkdir()
    link.symlink_to("/opt/driver")  # absolute, on the machine
    assert loaded(tmp_path / "host")[-1] == str(file)


def test_a_missing_driver_is_reported(tmp_path: Path) -> None:
    (first, maps) = loaded(tmp_path)
    if maps:
        pytest.skip("this machine has a driver")
    assert first == "NVML_ERROR_LIBRARY_NOT_FOUND: libnvidia-ml.so.1 is not installed"
