"""Ring sizes by the ioctl of ethtool: of one without rings, and of the simulator's NICs."""

import os
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from nodevet.remote.probe.rings import ring_sizes

ASK = """\
import sys
from nodevet.remote.probe.rings import ring_sizes
print(ring_sizes("/", sys.argv[1]))
"""


def test_an_interface_without_rings_says_so() -> None:
    with pytest.raises(ValueError, match="its driver does not report ring sizes"):
        ring_sizes("/", "lo")
    with pytest.raises(OSError, match="No such device"):
        ring_sizes("/", "nodevet-none")
    with pytest.raises(ValueError, match="longer than 15 bytes"):
        ring_sizes("/", "x" * 16)
    with pytest.raises(ValueError, match="of the running machine only"):
        ring_sizes("/mnt", "lo")


def test_the_fields_of_the_kernels_structure(tmp_path: Path) -> None:
    """gcc and <linux/ethtool.h> say where each value is."""
    library = tmp_path / "rings.so"
    with as_file(files("nodevet_sim").joinpath("nspawn/rings.c")) as source:
        text = source.read_text().replace("/run/nodevet-sim/rings", str(tmp_path / "rings"))
    (tmp_path / "rings.c").write_text(text)
    build = ["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "rings.c"]
    subprocess.run(build, check=True)
    (tmp_path / "rings").write_text("ens1 11 12 13 14\n")
    done = subprocess.run(
        [sys.executable, "-c", ASK, "ens1"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str({"rx": 11, "rx_max": 12, "tx": 13, "tx_max": 14})
