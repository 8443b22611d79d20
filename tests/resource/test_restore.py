"""What restores each kind of resource, and what is refused because nothing would."""

import base64
from typing import Any

import pytest

from nodevet.resource import Action, Resource, RestoreError, RunCommand, State, restore
from nodevet.resource.file import WriteFile, text_of
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.package.apt import guard_hook, mark
from nodevet.resource.unit import SetUnit

GPU = "GPU-11111111-2222-3333-4444-555555555555"


def seen(kind: str, name: str, value: Any = None, *, exists: bool = True, why: str = "") -> State:
    return State(resource=Resource(kind=kind, name=name), exists=exists, value=value, why=why)


def file(data: bytes, path: str = "/etc/x.conf", **rest: Any) -> State:
    value = {"content": base64.b64encode(data).decode(), "mode": 0o600, "owner": 7, "group": 8}
    return seen("file", path, value | rest)


def unit(
    enabled: Any = "enabled",
    active: Any = "active",
    *,
    masked: bool = False,
    name: str = "a.service",
) -> State:
    return seen("unit", name, {"enabled": enabled, "active": active, "masked": masked})


def gpu(field: str, value: Any, *, exists: bool = True) -> State:
    return seen("gpu", f"{GPU}:{field}", value, exists=exists)


def module(name: str, loaded: bool, *brings: str) -> State:
    return seen("module", name, {"loaded": loaded, "brings": list(brings)}, exists=loaded)


def unload(name: str) -> RunCommand:
    """Where it is loaded."""
    test = 'test ! -d "/sys/module/$1" || exec rmmod -- "$1"'
    return RunCommand(words=("sh", "-c", test, "rmmod", name))


def smi(*words: str) -> RunCommand:
    return RunCommand(words=("nvidia-smi", "-i", GPU, *words))


@pytest.mark.parametrize(
    ("before", "action"),
    [
        (seen("file", "/etc/x.conf", exists=False), WriteFile(path="/etc/x.conf", content=None)),
        (
            file("größer\n".encode()),
            WriteFile(path="/etc/x.conf", content="größer\n", mode=0o600, owner=7, group=8),
        ),
        (file(b""), WriteFile(path="/etc/x.conf", content="", mode=0o600, owner=7, group=8)),
        (seen("kernel", "/proc/sys/a", "1"), WriteKernel(path="/proc/sys/a", value="1")),
        (
            seen("kernel", "/proc/sys/a", "4\t8\t9\n"),
            WriteKernel(path="/proc/sys/a", value="4 8 9"),
        ),
        (
            seen("kernel", "/sys/thp", "always [madvise] never"),
            WriteKernel(path="/sys/thp", value="madvise"),
        ),
        (unit(), SetUnit(name="a.service", enabled=True, running=True, masked=False)),
        (
            unit("disabled", "inactive"),
            SetUnit(name="a.service", enabled=False, running=False, masked=False),
        ),
        (unit("static", "failed"), SetUnit(name="a.service", running=False, masked=False)),
        (
            unit("masked", "inactive", masked=True),
            SetUnit(name="a.service", running=False, masked=True),
        ),
        (unit(False, True), SetUnit(name="a.service", enabled=False, running=True, masked=False)),
        (
            seen("unit", "a.service", exists=False),
            SetUnit(name="a.service", enabled=False, running=False),
        ),
        (gpu("power_limit_mw", 500000), smi("-pl", "500")),
        (gpu("power_limit_mw", "699050"), smi("-pl", "699.050")),
        (gpu("persistence_mode", False), smi("-pm", "0")),
        (gpu("persistence_mode", "1"), smi("-pm", "1")),
        (gpu("ecc_pending", True), smi("-e", "1")),
        (gpu("mig_pending", False), smi("-mig", "0")),
        (gpu("compute_mode", "DEFAULT"), smi("-c", "0")),
        (gpu("compute_mode", "PROHIBITED"), smi("-c", "2")),
        (gpu("compute_mode", "EXCLUSIVE_PROCESS"), smi("-c", "3")),
        (gpu("locked_clock_graphics_min_mhz", None, exists=False), smi("-rgc")),
        (gpu("locked_clock_memory_max_mhz", None, exists=False), smi("-rmc")),
        (gpu("app_clock_graphics_mhz", None, exists=False), smi("-rac")),
        (module("nouveau", True), RunCommand(words=("modprobe", "--", "nouveau"))),
        (module("nouveau", False), unload("nouveau")),
        (
            seen("swap", "/dev/sda2", {"active": True, "fstab": []}),
            RunCommand(words=("swapon", "--", "/dev/sda2")),
        ),
        (seen("swap", "all", {"active": True, "fstab": ["x"]}), RunCommand(words=("swapon", "-a"))),
        (
            seen("swap", "/swap", {"active": False, "fstab": []}, exists=False),
            RunCommand(words=("swapoff", "--", "/swap")),
        ),
        (
            seen("process", "42", {"cpus": "0-3,8", "mems": "0", "threads": {}}),
            RunCommand(words=("taskset", "-a", "-p", "-c", "0-3,8", "42")),
        ),
    ],
)
def test_one_changed_resource_is_restored_by_one_action(before: State, action: Action) -> None:
    assert restore(before) == (action,)


def test_clocks_that_one_command_sets_are_restored_by_one_command() -> None:
    locked = [
        gpu("locked_clock_graphics_min_mhz", 210),
        gpu("locked_clock_graphics_max_mhz", 1980),
        gpu("app_clock_graphics_mhz", 1755),
        gpu("app_clock_memory_mhz", 2619),
    ]
    assert set(restore(*locked)) == {smi("-lgc", "210,1980"), smi("-ac", "2619,1755")}
    assert len(restore(*locked)) == 2


def test_restoring_only_one_clock_of_a_pair_is_refused() -> None:
    with pytest.raises(RestoreError, match="are restored together"):
        restore(gpu("app_clock_graphics_mhz", 1755))


def test_pairs_of_two_gpus_are_not_mixed() -> None:
    other = seen("gpu", "GPU-2:app_clock_memory_mhz", 2619)
    with pytest.raises(RestoreError, match="together"):
        restore(gpu("app_clock_graphics_mhz", 1755), other)


def test_threads_of_a_process_keep_their_own_cpus() -> None:
    value = {"cpus": "0-7", "mems": "0", "threads": {"44": {"cpus": "3", "mems": "0"}}}
    assert restore(seen("process", "42", value)) == (
        RunCommand(words=("taskset", "-a", "-p", "-c", "0-7", "42")),
        RunCommand(words=("taskset", "-p", "-c", "3", "44")),
    )
    assert restore(seen("process", "42", exists=False)) == ()


def test_a_new_unit_is_stopped_before_its_file_is_removed_and_systemd_reloads() -> None:
    path = "/etc/systemd/system/nodevet-a.service"
    new = seen("unit", "nodevet-a.service", exists=False)
    assert restore(seen("file", path, exists=False), new) == (
        SetUnit(name="nodevet-a.service", enabled=False, running=False),
        WriteFile(path=path, content=None),
        RunCommand(words=("systemctl", "daemon-reload")),
    )


def test_a_unit_that_was_there_starts_with_its_old_file() -> None:
    path = "/etc/systemd/system/a.service.d/x.conf"
    old = unit("disabled", "active")
    done = restore(old, seen("file", path, exists=False))
    assert done == (
        WriteFile(path=path, content=None),
        SetUnit(name="a.service", enabled=False, running=True, masked=False),
    )


def test_a_unit_that_the_step_restarted_is_restarted_again() -> None:
    actions = (SetUnit(name="a.service", restart=True),)
    drop_in = seen("file", "/etc/systemd/system/a.service.d/x.conf", exists=False)
    assert restore(unit(), drop_in, actions=actions)[-1] == SetUnit(
        name="a.service", enabled=True, running=True, restart=True, masked=False
    )
    # only what changed is put back: the unit itself is as it was
    assert restore(drop_in, actions=actions)[-1] == SetUnit(name="a.service", restart=True)
    stopped = restore(unit(active="inactive"), drop_in, actions=actions)[-1]
    assert isinstance(stopped, SetUnit) and not stopped.restart and stopped.running is False


def test_networkmanager_reloads_a_restored_profile() -> None:
    path = "/etc/NetworkManager/system-connections/a.nmconnection"
    load = RunCommand(words=("nmcli", "connection", "load", path))
    mtu = WriteKernel(path="/sys/class/net/ens1/mtu", value="1500")
    before = (file(b"[ethernet]\n", path), seen("kernel", mtu.path, "1500"))
    back = WriteFile(path=path, content="[ethernet]\n", mode=0o600, owner=7, group=8)
    assert restore(*before, actions=(load, mtu)) == (back, mtu, load)
    assert restore(*before, actions=(mtu,)) == (back, mtu)
    assert restore(before[1], actions=(load, mtu)) == (mtu,)


def test_the_last_change_is_restored_first() -> None:
    one, two = seen("kernel", "/sys/epp", "balance"), seen("kernel", "/sys/governor", "powersave")
    assert [getattr(action, "path", "") for action in restore(one, two)] == [
        "/sys/governor",
        "/sys/epp",
    ]


def test_files_are_restored_before_the_modules_and_swap_that_need_them() -> None:
    loaded, swap = module("nouveau", True), seen("swap", "all", {"active": True})
    done = restore(seen("file", "/etc/modprobe.d/x.conf", exists=False), loaded, swap)
    assert [type(action) for action in done] == [WriteFile, RunCommand, RunCommand]
    assert set(done[1:]) == {*restore(loaded), *restore(swap)}


def test_modules_are_unloaded_before_their_dependencies_which_are_unloaded_too() -> None:
    drm = module("nvidia-drm", False, "nvidia", "nvidia_modeset")
    uvm = module("nvidia_uvm", False, "nvidia")
    done = restore(module("nvidia", False), drm, uvm, module("nouveau", True))
    assert done[0] == RunCommand(words=("modprobe", "--", "nouveau"))
    names = ("nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm")
    assert set(done[1:]) == {unload(name) for name in names} and len(done) == 5
    places = {action: place for place, action in enumerate(done)}
    for first, then in (
        ("nvidia_drm", "nvidia_modeset"),
        ("nvidia_uvm", "nvidia"),
        ("nvidia_modeset", "nvidia"),
    ):
        assert places[unload(first)] < places[unload(then)]


def package(name: str, value: Any, *, exists: bool = True) -> State:
    return seen("package", name, value, exists=exists)


CHANGE_HELD = "--allow-change-held-packages"
APT = (RunCommand(words=("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "a=2")),)


def test_packages_are_restored_at_once_and_held_as_they_were() -> None:
    before = (
        package("b", {"version": "1:550.90.07-0ubuntu1~22.04", "held": False}),
        package("a", {"version": "1.0", "held": True, "automatic": True}),
        package("c", None, exists=False),
    )
    configure, install, auto, hold, unhold = restore(*before, actions=APT)
    assert isinstance(configure, RunCommand) and isinstance(install, RunCommand)
    assert configure.words[3:] == ("dpkg", "--force-confold", "--configure", "-a")
    assert install.words[3:5] == ("apt-get", "-y")
    assert {"--allow-downgrades", CHANGE_HELD, "--purge"} < set(install.words)
    assert f"DPkg::Pre-Install-Pkgs::={guard_hook(['a', 'b', 'c'])}" in install.words
    told = install.words[install.words.index("install") + 1 :]
    assert told == ("a=1.0", "b=1:550.90.07-0ubuntu1~22.04", "c-")
    assert configure.seconds == install.seconds == 1800
    assert (auto,) == mark("auto", ["a"])
    assert (hold,) == mark("hold", ["a"])
    assert unhold.short_label == "unhold b=1:550.90.07-0ubuntu1~22.04"


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (package("a", {"version": "$(x)"}), "'$(x)' is not a version"),
        (package("a", "1.0"), "is not a valid state"),
        (seen("package", "a", why="dpkg-query hangs"), "dpkg-query hangs"),
    ],
)
def test_a_package_that_cannot_be_restored_is_refused(before: State, message: str) -> None:
    with pytest.raises(RestoreError) as caught:
        restore(before, actions=APT)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (file(b"\xff\xfe"), "file /etc/x.conf: its content is not UTF-8 text"),
        (file(b"", content="%%%"), "not base64"),
        (file(b"", content=None), "its content was not read"),
        (file(b"", mode=None), "None is not a number"),
        (file(b"", mode=True), "True is not a number"),
        (seen("file", "/etc/x", {"target": "/etc/y"}), "is a symbolic link to '/etc/y'"),
        (seen("file", "/etc/x", "text"), "'text' is not a valid state"),
        (seen("file", "/etc/x", why="EACCES"), "its earlier state is unknown: EACCES"),
        (seen("kernel", "/sys/x", exists=False), "there is no such file"),
        (seen("kernel", "/sys/x"), "its value was not read"),
        (seen("kernel", "/sys/x", ""), "cannot be written back"),
        (seen("kernel", "/sys/x", "a\nb"), "cannot be written back"),
        (seen("kernel", "/sys/x", "[a] [b]"), "marks several words"),
        (unit(active="activating"), "plan again when it has settled"),
        (unit("linked"), "it is linked"),
        (unit("enabled-runtime"), "it is enabled-runtime"),
        (unit(active=None), "neither on nor off"),
        (seen("unit", "a.service"), "is not a valid state"),
        (gpu("power_limit_mw", None), "the driver does not say"),
        (gpu("power_limit_mw", "lots"), "'lots' is not a number"),
        (gpu("power_limit_mw", -1), "-1 is not a number"),
        (gpu("persistence_mode", None, exists=False), "the driver does not say"),
        (gpu("persistence_mode", "perhaps"), "neither on nor off"),
        (gpu("compute_mode", "FAST"), "'FAST' is not a compute mode"),
        (gpu("pcie_width", 8), "pcie_width cannot be restored"),
        (seen("gpu", "power_limit_mw", 1), "does not name a GPU and a field"),
        (seen("module", "x", {"loaded": "perhaps", "brings": []}), "neither on nor off"),
        (module("x", False, "-r"), "'-r' is not a valid module name"),
        (seen("module", "x", why="EACCES"), "its earlier state is unknown: EACCES"),
        (seen("process", "1; reboot", {"cpus": "0", "threads": {}}), "not a valid process id"),
        (seen("process", "1", {"cpus": "$(x)"}), "is not a list of CPUs"),
        (seen("swap", "/x", {}), "neither on nor off"),
        (package("a", {"version": "1"}), "only what apt-get, dnf or zypper installed"),
        (seen("firmware", "x"), "a firmware cannot be restored"),
    ],
)
def test_a_change_that_cannot_be_restored_is_refused(before: State, message: str) -> None:
    with pytest.raises(RestoreError) as caught:
        restore(before)
    assert message in str(caught.value)
    assert before.resource.label in str(caught.value) or "process id" in message


def test_text_of_a_file() -> None:
    assert text_of(file(b"a\r\nb")) == "a\r\nb"
    assert text_of(file(b"\xff")) is None
