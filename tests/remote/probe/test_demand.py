"""Which modules of the driver are loaded when a program first needs them."""

import os

import pytest

from nodevet.remote.probe.collectors import modules

RELEASE = "5.15.0-105-generic"


@pytest.fixture
def tree(tmp_path):
    """A driver of NVIDIA's installer that nobody has computed with since boot."""
    files = {
        "proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "proc/sys/kernel/modules_disabled": "0\n",
        f"lib/modules/{RELEASE}/modules.dep": (
            "kernel/drivers/video/nvidia.ko:\n"
            "kernel/drivers/video/nvidia-uvm.ko: kernel/drivers/video/nvidia.ko\n"
            "kernel/drivers/video/nvidia-modeset.ko.zst: kernel/drivers/video/nvidia.ko\n"
        ),
        "etc/modprobe.d/blacklist.conf": "blacklist nouveau\n",
        "usr/bin/nvidia-modprobe": "",
        "proc/modules": "nvidia 56705024 0 - Live 0x0 (PO)\n",
        "sys/module/nvidia/version": "550.90.07\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "usr/bin/nvidia-modprobe").chmod(0o4755)
    return tmp_path


@pytest.fixture
def found(tree, check):
    return lambda: check("modules", modules.collect(str(tree), {})).on_demand


@pytest.mark.skipif(os.geteuid() != 0, reason="a helper that is root's takes root to make")
def test_read_modules_of_a_run_driver_are_loaded_on_demand(found):
    assert found() == ("nvidia_modeset", "nvidia_uvm")


@pytest.mark.parametrize(
    "breaks",
    [
        lambda tree: (tree / "usr/bin/nvidia-modprobe").chmod(0o755),
        lambda tree: (tree / "usr/bin/nvidia-modprobe").unlink(),
        lambda tree: (tree / "proc/sys/kernel/modules_disabled").write_text("1\n"),
        lambda tree: (tree / f"lib/modules/{RELEASE}/modules.dep").write_text("kernel/nvme.ko:\n"),
        lambda tree: (tree / "etc/modprobe.d/x.conf").write_text(
            "install nvidia-uvm /bin/false\ninstall nvidia_modeset /bin/true\n"
        ),
    ],
    ids=["not setuid", "no helper", "no more modules", "not installed", "kept away"],
)
def test_read_what_cannot_be_loaded_is_not_on_demand(tree, found, breaks):
    breaks(tree)
    assert found() == ()


def test_read_an_index_of_modules_that_cannot_be_read_is_reported(tree, check):
    (tree / f"lib/modules/{RELEASE}/modules.dep").unlink()
    told = check("modules", modules.collect(str(tree), {}))
    assert (told.on_demand, told.why("on_demand")) == (None, "ENOENT")
