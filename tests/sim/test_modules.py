"""Kernel modules that are simulated: what a scenario says of them, and modprobe over them."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from nodevet_sim import kernel
from nodevet_sim.description import ModuleEntry, SimulatedNode
from nodevet_sim.kernel import KernelError, manifest
from nodevet_sim.modules import described, module_list, rows
from nodevet_sim.scenario import ScenarioError, describe, load

Modprobe = Callable[..., tuple[int, str]]
LOADED = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]


def node(folder: Path, keys: str, template: str = "{}") -> SimulatedNode:
    path = folder / "s.yaml"
    path.write_text(
        "sim: 1\n"
        f"templates: {{t: {template}}}\n"
        f"nodes: {{n1: {{template: t, sockets: 1, cores: 1, {keys}}}}}\n"
    )
    return describe(load(path).nodes["n1"])


def how(found: SimulatedNode) -> dict[str, str]:
    return {module.name: module.how for module in found.modules}


def test_what_a_profile_loads_and_what_else_is_installed(tmp_path: Path) -> None:
    found = node(tmp_path, "gpus: {profile: l40s, count: 1}")
    assert how(found) == {
        **dict.fromkeys(LOADED, "device"),
        **dict.fromkeys(("nouveau", "nvidia_peermem"), "available"),
    }
    assert {module.name: module.needs for module in found.modules}["nvidia_drm"] == (
        "nvidia_modeset",
    )
    assert how(node(tmp_path, "gpus: none")) == {"nouveau": "available"}


def test_a_scenario_sets_how_each_module_is_loaded(tmp_path: Path) -> None:
    found = node(
        tmp_path,
        "gpus: {profile: l40s, count: 1}, modules: {nouveau: device, nvidia-drm: none}",
        "{modules: {nouveau: boot, nvidia_uvm: builtin, my_own: available}}",
    )
    assert how(found) == {
        **dict.fromkeys(("nvidia_modeset", "nvidia", "nouveau"), "device"),
        **dict.fromkeys(("nvidia_peermem", "my_own"), "available"),
    }
    assert "sys/module/nvidia_uvm/uevent" in found.files
    assert "sys/module/nvidia_uvm/initstate" not in found.files
    assert not any(path.startswith("sys/module/nvidia_drm/") for path in found.files)


@pytest.mark.parametrize("modules", ["{nouveau: loaded}", "{'a b': boot}", "{nouveau: null}"])
def test_a_mistake_is_reported(tmp_path: Path, modules: str) -> None:
    with pytest.raises(ScenarioError, match=r"modules"):
        node(tmp_path, f"gpus: none, modules: {modules}")


def test_a_captured_list_keeps_sizes_users_and_needs() -> None:
    text = (
        "mlx5_ib 100 0 - Live 0x0\nib_core 50 3 mlx5_ib, Live 0x0\n"
        "../x 1 0 - Live 0x0\nnvme 70 2 - Live 0x0\nshort\n"
    )
    _, modules = described({"proc/modules": text.encode()}, {"nvme": "boot"})
    assert modules == (
        ModuleEntry("mlx5_ib", "device", 100, 0, ("ib_core",)),
        ModuleEntry("ib_core", "device", 50, 2, ()),
        ModuleEntry("nvme", "boot", 70, 2, ()),
        ModuleEntry("nouveau", "available"),
    )
    assert rows(["nvidia_uvm", "nvidia"]).splitlines()[1].startswith("nvidia 16384 1 nvidia_uvm, ")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    try:
        return kernel.build(tmp_path_factory.mktemp("kernelfs"))
    except KernelError as error:
        if "is not installed" not in str(error):
            raise
        pytest.skip(str(error))


MODULES = (
    ModuleEntry("nvidia_uvm", "available", 100, 0, ("nvidia",)),
    ModuleEntry("nvidia_modeset", "device", 100, 0, ("nvidia",)),
    ModuleEntry("nvidia", "boot", 200),
    ModuleEntry("nouveau", "device", 5),
    ModuleEntry("nvme", "boot", 9, 1),
    ModuleEntry("odd", "available", 1, 0, ("gone",)),
)


@pytest.fixture
def daemon(program: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    mount = tmp_path / "kernel"
    mount.mkdir()
    content = {f"sys/module/{each.name}/initstate": "live\n" for each in MODULES}
    content |= {
        "proc/modules": "",
        "sys/module/kvm/uevent": "",
        kernel.MODULES: module_list(MODULES),
    }
    (tmp_path / "manifest").write_text(manifest(content, {}))
    daemon = subprocess.Popen(kernel.command(program, tmp_path / "manifest", mount))
    try:
        while not kernel.ready(mount):
            assert daemon.poll() is None
        yield daemon
    finally:
        daemon.terminate()
        daemon.wait(120)


@pytest.fixture
def mounted(daemon: subprocess.Popen[bytes], tmp_path: Path) -> Path:
    """The simulated kernel's files."""
    return tmp_path / "kernel"


@pytest.fixture
def call(mounted: Path, tmp_path: Path) -> Modprobe:
    """modprobe and its like over these files; the exit code, and all that was said."""
    text = files("nodevet_sim").joinpath("nspawn/units/kmod").read_text()
    text = text.replace("/run/nodevet-sim/kernel", str(mounted))
    text = text.replace("/sys/module", f"{mounted}/sys/module").replace("/etc/", f"{tmp_path}/etc/")
    (tmp_path / "kmod").write_text(text)

    def run(name: str, *words: str) -> tuple[int, str]:
        link = tmp_path / name
        link.unlink(missing_ok=True)
        link.symlink_to("kmod")
        done = subprocess.run(["sh", link, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def loaded(mounted: Path) -> list[str]:
    """By /proc/modules and by /sys/module, which agree."""
    found = [row.split()[0] for row in (mounted / "proc/modules").read_text().splitlines()]
    shown = {path.name for path in (mounted / "sys/module").iterdir()} - {"kvm"}
    assert shown == set(found)
    return found


def test_modprobe_loads_what_is_needed_and_unloads_what_nothing_uses(
    mounted: Path, call: Modprobe
) -> None:
    assert loaded(mounted) == ["nvidia", "nvme"]
    assert call("modprobe", "--", "nvidia-uvm") == (0, "")
    assert call("modprobe", "nvidia_uvm") == (0, "")
    assert loaded(mounted) == ["nvidia_uvm", "nvidia", "nvme"]
    assert call("lsmod")[1].splitlines()[2].split() == ["nvidia", "200", "1", "nvidia_uvm"]
    assert call("rmmod", "nvidia") == (
        1, "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n"
    )  # fmt: skip
    assert call("modprobe", "-r", "nvidia") == (1, "modprobe: FATAL: Module nvidia is in use.\n")
    assert call("rmmod", "--", "nvidia_uvm") == (0, "")
    assert loaded(mounted) == ["nvidia", "nvme"]
    assert call("modprobe", "nvidia_uvm") == call("modprobe", "-r", "nvidia_uvm") == (0, "")
    assert loaded(mounted) == ["nvme"]
    assert call("modprobe", "-r", "nvidia_uvm") == (0, "")
    assert call("modprobe", "-D", "nvidia_uvm")[1].count("insmod") == 2
    assert loaded(mounted) == ["nvme"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("modprobe", "nope"), "modprobe: FATAL: Module nope not found in directory /lib/modules/"),
        (("modprobe", "../x"), "modprobe: FATAL: Module ../x not found in directory /lib/modules/"),
        (("modprobe", "odd"), "modprobe: FATAL: Module gone not found in directory /lib/modules/"),
        (("modprobe", "-r", "nope"), "modprobe: FATAL: Module nope not found."),
        (("modprobe", "-r", "kvm"), "modprobe: FATAL: Module kvm is builtin."),
        (("modprobe", "-r", "nvme"), "modprobe: FATAL: Module nvme is in use."),
        (("rmmod", "nvme"), "rmmod: ERROR: Module nvme is in use"),
        (("rmmod", "nouveau"), "rmmod: ERROR: Module nouveau is not currently loaded"),
        (("modprobe",), "modprobe: ERROR: missing parameters. See -h."),
    ],
)
def test_modules_that_modprobe_refuses(
    mounted: Path, call: Modprobe, words: tuple[str, ...], said: str
) -> None:
    code, text = call(*words)
    assert code == 1 and text.startswith(said)
    assert loaded(mounted) == ["nvidia", "nvme"]
    assert call("modprobe", "kvm") == (0, "")


def test_a_blacklist_applies_to_coldplug_and_boot_but_not_to_modprobe_by_name(
    mounted: Path, call: Modprobe, tmp_path: Path
) -> None:
    for folder, text in (
        ("modprobe.d", "# no\n blacklist  nouveau\nblacklist nvidia-uvm\n"),
        ("modules-load.d", "# x\nnvidia_uvm\n\nnvidia-modeset\n"),
    ):
        (tmp_path / "etc" / folder).mkdir(parents=True)
        (tmp_path / "etc" / folder / "a.conf").write_text(text)
    assert call("modprobe", "-r", "nvidia") == (0, "")
    assert call("coldplug") == (0, "")
    assert loaded(mounted) == ["nvidia_modeset", "nvidia", "nvme"]
    assert call("modprobe", "-r", "nvidia_modeset") == (0, "")
    assert call("modules-load") == (0, "Module 'nvidia_uvm' is deny-listed\n")
    assert loaded(mounted) == ["nvidia_modeset", "nvidia", "nvme"]
    assert call("modprobe", "-b", "nouveau") == (0, "")
    assert "nouveau" not in loaded(mounted)
    assert call("modprobe", "nouveau") == (0, "")
    assert "nouveau" in loaded(mounted)
    (tmp_path / "etc/modules-load.d/b.conf").write_text("nope\n")
    assert call("modules-load") == (
        1, "Module 'nvidia_uvm' is deny-listed\nFailed to find module 'nope'\n"
    )  # fmt: skip


def test_a_reload_keeps_what_is_loaded_and_plugs_in_what_is_new(
    daemon: subprocess.Popen[bytes], mounted: Path, call: Modprobe, tmp_path: Path
) -> None:
    assert call("modprobe", "-r", "nvidia") == (0, "")
    changed = tuple(
        ModuleEntry("nouveau", "boot", 5) if m.name == "nouveau" else m for m in MODULES
    )
    content = {
        kernel.MODULES: module_list(changed),
        "proc/modules": "",
        "sys/module/kvm/uevent": "",
    }
    (tmp_path / "manifest").write_text(manifest(content, {}))
    daemon.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 120
    while "nouveau" not in (mounted / "proc/modules").read_text():
        assert time.monotonic() < deadline
    assert loaded(mounted) == ["nouveau", "nvme"]
