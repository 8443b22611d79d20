"""Huge pages, kernel parameters, units and modules: the whole change, and what is refused."""

import subprocess
import sys

import msgspec
import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand, State, perform, restore
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

HEAD = "# Written by nodevet.\n"
THP = "/sys/kernel/mm/transparent_hugepage"
RULE = "/etc/tmpfiles.d/nodevet-transparent-hugepage.conf"
CONF = "/etc/sysctl.d/90-nodevet-sysctl.conf"
LOAD = "/etc/modules-load.d/nodevet-kernel-modules.conf"
DENY = "/etc/modprobe.d/nodevet-{}.conf"


def memory(enabled, defrag=None):
    return {"memory": {"thp_enabled": enabled, "thp_defrag": defrag}}


def parameters(**values):
    listed = [{"name": name.replace("__", "."), "value": text} for name, text in values.items()]
    return {"sysctl": {"parameters": listed}}


def unit(name, active="inactive", file="disabled", load="loaded", **rest):
    return {
        "name": name,
        "load_state": load,
        "active_state": active,
        "sub_state": "",
        "file_state": file,
    } | rest


def units(*listed):
    return {"services": {"units": list(listed)}}


def modules(loaded, builtin=(), version="550.1"):
    return {
        "modules": {"loaded": loaded, "builtin": list(builtin), "nvidia_version": version},
        "gpu": {"driver_version": "550.1"},
    }


# --- transparent_hugepage


def test_huge_pages_are_set_now_and_at_every_boot(plan):
    params = {"enabled": ["madvise", "never"], "defrag": "madvise"}
    (change,) = plan("transparent_hugepage", params, memory("always", "madvise"))
    assert change.actions == (
        WriteFile(
            path=RULE,
            content=f"{HEAD}w {THP}/enabled - - - - madvise\nw {THP}/defrag - - - - madvise\n",
        ),
        WriteKernel(path=f"{THP}/enabled", value="madvise"),
    )
    assert change.resources == (
        Resource(kind="file", name=RULE),
        Resource(kind="kernel", name=f"{THP}/enabled"),
    )
    assert (change.expected, change.actual) == ({"enabled": "madvise"}, {"enabled": "always"})
    assert change.subjects == ("transparent_hugepage enabled",)
    assert (change.risk, change.effective) == (Risk.LIVE, "now")


def test_another_accepted_value_is_not_changed(plan):
    params = {"enabled": ["madvise", "never"], "defrag": "madvise"}
    (change,) = plan("transparent_hugepage", params, memory("never", "always"))
    assert change.actions[0].content == f"{HEAD}w {THP}/defrag - - - - madvise\n"


@pytest.mark.parametrize("now", [("always", "always"), (None, "defer")])
def test_huge_pages_that_were_not_read_are_refused(plan, wrong, evidence, now):
    params = {"enabled": ["madvise", "never"], "defrag": "madvise"}
    findings = wrong("transparent_hugepage", params, evidence(memory("always", "always")))
    if now[0] is None:
        with pytest.raises(FixError, match="enabled: nodevet could not read it"):
            plan("transparent_hugepage", params, memory(*now), findings)
        with pytest.raises(FixError, match="needs a value for it too"):
            plan("transparent_hugepage", params, memory(*now))
    else:
        assert plan("transparent_hugepage", params, memory(*now), findings)


# --- sysctl

WANT = {
    "kernel.numa_balancing": 0,
    "vm.swappiness": {"maximum": 10},
    "vm.min_free_kbytes": {"minimum": 1000, "maximum": 9000},
    "net.ipv4.conf.eth0/1.forwarding": {"one_of": [0, 2]},
}


def node(**other):
    texts = {
        "kernel.numa_balancing": "0",
        "vm.swappiness": "1",
        "vm.min_free_kbytes": "2000",
        "net.ipv4.conf.eth0/1.forwarding": "2",
    } | {name.replace("__", "."): text for name, text in other.items()}
    listed = [{"name": name, "value": text} for name, text in texts.items() if text is not None]
    return {"sysctl": {"parameters": listed}}


def test_a_sysctl_is_set_now_and_at_every_boot(plan):
    (change,) = plan("sysctl", WANT, node(kernel__numa_balancing="1"))
    assert change.actions == (
        WriteFile(path=CONF, content=f"{HEAD}kernel.numa_balancing = 0\n"),
        WriteKernel(path="/proc/sys/kernel/numa_balancing", value="0"),
    )
    assert change.resources == (
        Resource(kind="file", name=CONF),
        Resource(kind="kernel", name="/proc/sys/kernel/numa_balancing"),
    )
    assert (change.expected, change.actual) == (
        {"kernel.numa_balancing": "0"},
        {"kernel.numa_balancing": 1},
    )
    assert (change.risk, change.effective) == (Risk.LIVE, "now")


def test_sysctls_of_an_earlier_plan_stay_in_the_file(plan):
    """The second time the file still holds what the first time put there."""
    (first,) = plan("sysctl", WANT, node(vm__swappiness="60", vm__min_free_kbytes="10"))
    lines = "kernel.numa_balancing = 0\nvm.min_free_kbytes = 1000\nvm.swappiness = 10\n"
    assert first.actions[0].content == HEAD + lines
    after = {"vm__swappiness": "10", "vm__min_free_kbytes": "1000"}
    (second,) = plan("sysctl", WANT, node(kernel__numa_balancing="1", **after))
    assert second.actions[0].content == HEAD + lines
    assert [action.path for action in second.actions[1:]] == ["/proc/sys/kernel/numa_balancing"]
    assert plan("sysctl", WANT, node(**after)) == []


def test_a_dot_inside_a_part_of_a_sysctl_name_is_escaped(plan):
    sections = node()
    sections["sysctl"]["parameters"][-1]["value"] = "1"
    (change,) = plan("sysctl", WANT, sections)
    assert change.actions[1] == WriteKernel(
        path="/proc/sys/net/ipv4/conf/eth0.1/forwarding", value="0"
    )
    assert "\nnet.ipv4.conf.eth0/1.forwarding = 0\n" in change.actions[0].content


@pytest.mark.parametrize(
    ("params", "other", "told"),
    [
        (WANT, {"vm__swappiness": None}, "vm.swappiness: the probe was not asked for it, but the"),
        (
            WANT,
            {"vm__min_free_kbytes": "a"},
            "vm.min_free_kbytes: its present value is not a number",
        ),
        (WANT | {"kernel.core_pattern": ""}, {}, "kernel.core_pattern: nodevet cannot write an"),
    ],
)
def test_a_plan_is_refused_if_its_sysctl_file_would_be_wrong(plan, params, other, told):
    with pytest.raises(FixError) as refused:
        plan("sysctl", params, node(kernel__numa_balancing="1", **other))
    assert told in str(refused.value)


def test_a_parameter_of_several_numbers_can_be_restored():
    resource = Resource(kind="kernel", name="/proc/sys/net/ipv4/tcp_rmem")
    actions = restore(State(resource=resource, exists=True, value="4096\t131072\t6291456"))
    assert actions == (WriteKernel(path=resource.name, value="4096 131072 6291456"),)
    assert len(list(perform(actions))) == 1


# --- services


@pytest.mark.parametrize(
    ("params", "now", "actions", "risk"),
    [
        ({"running": ["a.service"]}, {}, [SetUnit(name="a.service", running=True)], Risk.LIVE),
        (
            {"running": ["a.service"], "enabled": ["a.service"]},
            {"active": "failed"},
            [SetUnit(name="a.service", running=True, enabled=True)],
            Risk.LIVE,
        ),
        (
            {"running": ["a.service"], "enabled": ["a.service"]},
            {"active": "active"},
            [SetUnit(name="a.service", enabled=True)],
            Risk.LIVE,
        ),
        (
            {"stopped": ["a.service"], "disabled": ["a.service"]},
            {"active": "active", "file": "enabled"},
            [SetUnit(name="a.service", running=False, enabled=False)],
            Risk.DRAIN,
        ),
        (
            {"disabled": ["a.service"]},
            {"active": "active", "file": "enabled"},
            [SetUnit(name="a.service", enabled=False)],
            Risk.LIVE,
        ),
        (
            {"stopped": ["a.service"]},
            {"active": "failed"},
            [RunCommand(words=("systemctl", "reset-failed", "--", "a.service"))],
            Risk.LIVE,
        ),
    ],
)
def test_a_unit_is_brought_to_its_expected_state(plan, params, now, actions, risk):
    (change,) = plan("services", params, units(unit("a.service", **now)))
    assert list(change.actions) == actions
    assert change.resources == (Resource(kind="unit", name="a.service"),)
    assert (change.risk, change.subjects, change.note) == (risk, ("unit a.service",), "")


@pytest.mark.parametrize(
    ("params", "shown", "told"),
    [
        ("running", {"load": "not-found", "file": ""}, "it does not exist"),
        ("running", {"load": "masked", "file": "masked"}, "it is masked"),
        (
            "running",
            {"active": "activating", "sub_state": "auto-restart"},
            "it is activating; plan again",
        ),
        ("running", {"load": "bad-setting"}, "systemd could not load it"),
        ("running", {"load_state": None, "errors": {"load_state": "EIO"}}, "load_state: EIO"),
        ("running", {"file_state": None, "errors": {"file_state": "EIO"}}, "file_state: EIO"),
        ("enabled", {"file": "static"}, "it is static"),
        ("enabled", {"file": "enabled-runtime"}, "it is enabled-runtime"),
        ("disabled", {"file": "static"}, "it is static"),
    ],
)
def test_a_unit_that_nodevet_may_not_change_is_refused(plan, params, shown, told):
    with pytest.raises(FixError) as refused:
        plan("services", {params: ["a.service"]}, units(unit("a.service", **shown)))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["ssh.service", "sshd.socket", "sshd@1.service", "dbus.service", "NetworkManager.service"],
)
def test_units_that_keep_the_node_reachable_are_not_stopped(plan, name):
    running = unit(name, active="active", file="enabled")
    for params in ({"stopped": [name]}, {"disabled": [name]}):
        with pytest.raises(FixError, match="unreachable without it"):
            plan("services", params, units(running))
    assert plan("services", {"running": [name]}, units(unit(name)))


@pytest.mark.parametrize("name", ["poweroff.target", "systemd-reboot.service", "data.mount"])
def test_power_off_reboot_and_mount_units_are_not_started(plan, name):
    with pytest.raises(FixError, match="does not change"):
        plan("services", {"running": [name]}, units(unit(name)))


def test_a_step_that_cannot_be_fixed_does_not_stop_the_others(plan):
    params = {"running": ["a.service", "b.service", "c.service"]}
    gone = unit("b.service", load="not-found", file="")
    found = plan("services", params, units(unit("a.service"), gone, unit("c.service")))
    assert [change.subjects for change in found] == [("unit a.service",), ("unit c.service",)]
    assert found[0].note.startswith("not in the plan: b.service: it does not exist")
    assert found[1].note == ""


# --- kernel_modules


def test_modules_are_loaded_or_blacklisted(plan):
    params = {"loaded": ["nvidia", "nvidia-uvm"], "absent": ["nouveau", "nvidiafb"]}
    now, later = plan("kernel_modules", params, modules(["nvidia", "nouveau"]))
    assert now.actions == (
        WriteFile(path=LOAD, content=f"{HEAD}nvidia\nnvidia_uvm\n"),
        WriteFile(path=DENY.format("nvidia"), content=None),
        WriteFile(path=DENY.format("nvidia_uvm"), content=None),
        RunCommand(words=("modprobe", "--", "nvidia_uvm")),
    )
    assert now.resources[-1] == Resource(kind="module", name="nvidia_uvm")
    assert (now.risk, now.effective, now.note) == (Risk.LIVE, "now", "")
    assert later.actions == tuple(
        WriteFile(path=DENY.format(name), content=f"{HEAD}blacklist {name}\n")
        for name in ("nouveau", "nvidiafb")
    )
    assert later.resources[-1] == Resource(kind="module", name="nouveau")
    assert not set(now.resources) & set(later.resources)
    assert (later.risk, later.effective) == (Risk.REBOOT, "reboot")
    assert "initramfs" in later.note
    assert (later.expected, later.actual) == ({"nouveau": "not loaded"}, {"nouveau": "loaded"})
    assert plan("kernel_modules", params, modules(["nvidia", "nouveau", "nvidia_uvm"])) == [later]
    assert plan("kernel_modules", params, modules(["nvidia"])) == [now]


def test_a_module_blacklisted_on_the_kernel_command_line_is_not_loaded(plan):
    for word in ("modprobe.blacklist=x,nvidia-uvm", "module_blacklist=nvidia_uvm"):
        sections = modules([]) | {"host": {"cmdline": f"ro {word} quiet"}}
        with pytest.raises(FixError, match="command line blacklists nvidia_uvm"):
            plan("kernel_modules", {"loaded": ["nvidia_uvm"]}, sections)
    sections = modules([]) | {"host": {"cmdline": "modprobe.blacklist=nouveau"}}
    assert plan("kernel_modules", {"loaded": ["nvidia_uvm"]}, sections)


def test_a_built_in_module_or_a_version_mismatch_is_refused(plan):
    with pytest.raises(FixError, match="nouveau is built into the kernel"):
        plan("kernel_modules", {"absent": ["nouveau"]}, modules([], ["nouveau"]))
    with pytest.raises(FixError, match="differ in version"):
        plan("kernel_modules", {}, modules(["nvidia"], version="550.2"))
    (change,) = plan("kernel_modules", {"loaded": ["a"]}, modules([], version="550.2"))
    assert "differ in version" in change.note


# --- all of them

CASES = [
    ("transparent_hugepage", "madvise", memory("always"), memory("madvise")),
    ("sysctl", {"vm.swappiness": 10}, parameters(vm__swappiness="60"),
     parameters(vm__swappiness="10")),
    ("services", {"running": ["a.service"]}, units(unit("a.service")),
     units(unit("a.service", active="active"))),
    ("kernel_modules", {"loaded": ["a"], "version_matches": False}, modules([]), modules(["a"])),
    ("kernel_modules", {"absent": ["a"], "version_matches": False}, modules(["a"]), modules([])),
]  # fmt: skip


@pytest.mark.parametrize(("check", "params", "bad", "good"), CASES)
def test_no_plan_without_a_fault_or_without_its_evidence(
    plan, wrong, evidence, check, params, bad, good
):
    assert plan(check, params, good) == []
    assert plan(check, params, bad, []) == []
    findings = wrong(check, params, evidence(bad))
    assert findings
    for sections in ({}, good, {name: {"status": "error", "why": "EIO"} for name in bad}):
        with pytest.raises(FixError):
            plan(check, params, sections, findings)


@pytest.mark.parametrize(("check", "params", "bad", "good"), CASES)
def test_every_action_is_a_command_and_survives_json(plan, check, params, bad, good):
    for change in plan(check, params, bad):
        assert len(list(perform(change.actions))) == len(change.actions)
        assert msgspec.json.decode(msgspec.json.encode(change), type=type(change)) == change


def test_a_plan_needs_no_pyinfra():
    code = (
        "import sys\n"
        "from nodevet.fixes import kernel_modules, services, sysctl, transparent_hugepage\n"
        "sys.exit('pyinfra' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd="/").returncode == 0
