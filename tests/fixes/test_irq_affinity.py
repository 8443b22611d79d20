"""Interrupts of GPUs and NICs: which unit places them, what it leaves alone, and who else may."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.remote.look import look
from nodevet.resource import (
    ActionError,
    Resource,
    State,
    Traces,
    has_ended,
    holds,
    kind_of,
    restore,
)
from nodevet.resource.interrupts import PlaceInterrupts
from nodevet_sim.tree import hgx, write

GPU, NIC = "0000:19:00.0", "0000:1a:00.0"
GONE = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
LISTS = ("smp_affinity_list", "effective_affinity_list")


STARTS = {
    "exec_start": "/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS",
    "others": [],
    "selinux_enforcing": False,
}


def node(gpu="8", nic="0-3", irqbalance=GONE, host=None, address=NIC, starts=STARTS):
    functions = [
        {"address": GPU, "kind": "gpu", "irqs": 1, "irq_cpus": gpu, "local_cpulist": "0-3"},
        {"address": address, "kind": "nic", "irqs": 4, "irq_cpus": nic, "local_cpulist": "0-3"},
    ]
    return {
        "host": {"virtualization": "none", "cmdline": "quiet"} if host is None else host,
        "pci_settings": {"count": 2, "functions": functions},
        "services": {"units": [{"name": "irqbalance.service", **irqbalance}]},
        "irqbalance": starts,
    }


def test_the_unit_and_the_plan_cover_the_interrupts_of_every_checked_function(plan):
    (change,) = plan("irq_affinity", {}, node())
    file, unit = change.actions
    assert (change.risk, change.subjects) == (Risk.LIVE, (f"pci {GPU}",))
    assert (unit.enabled, unit.running, unit.restart) == (True, True, True)
    assert [r.name for r in change.resources if r.kind == "interrupts"] == [GPU, NIC]
    assert f"place {GPU};" in file.content and f"place {NIC};" in file.content
    (change,) = plan("irq_affinity", {"of": ["gpu"]}, node())
    assert NIC not in change.actions[0].content


ACTIVE = {"load_state": "loaded", "active_state": "active", "file_state": "disabled"}
ENABLED = {"load_state": "loaded", "active_state": "failed", "file_state": "enabled"}
MASKED = {"load_state": "masked", "active_state": "inactive", "file_state": "masked"}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (node(irqbalance=ENABLED), "starts at boot and does not run"),
        (node(irqbalance={**ACTIVE, "load_state": "masked"}), "is masked and still runs"),
        (node(irqbalance=ACTIVE, starts=STARTS | {"others": ["/etc/x:3"]}), "/etc/x:3 is not the"),
        (node(irqbalance=ACTIVE, starts=STARTS | {"exec_start": "/bin/sh"}), "does not know how"),
        (node(irqbalance=ACTIVE, starts=STARTS | {"exec_start": ""}), "does not know how"),
        (node(irqbalance=ACTIVE, starts=STARTS | {"selinux_enforcing": True}), "SELinux"),
        (node(irqbalance=ACTIVE, starts={}), "exec_start: not in the evidence"),
        (node(irqbalance={**ACTIVE, "active_state": None}), "active_state: not in the evidence"),
        (node(host={"cmdline": "isolcpus=managed_irq,1-3"}), "command line has isolcpus="),
        (node(host={"cmdline": "quiet nohz_full=1-3"}), "command line has nohz_full="),
        (node(host={"cmdline": None}), "could not read whether the command line"),
        (node(address="0000:1a:00.0 /;reboot"), "is not the address of a PCI function"),
    ],
)
def test_interrupts_that_others_place_are_not_touched(plan, sections, reason):
    with pytest.raises(FixError) as caught:
        plan("irq_affinity", {}, sections)
    assert reason in str(caught.value)


def test_irqbalance_skips_the_checked_functions_and_places_the_others(plan):
    (change,) = plan("irq_affinity", {"of": ["gpu"]}, node(irqbalance=ACTIVE))
    policy, drop_in, restart, *rest = change.actions
    assert [action.label for action in rest] == [
        "write /etc/systemd/system/nodevet-irq-affinity.service",
        "enable and restart nodevet-irq-affinity.service",
    ]
    for device, answer in ((GPU, "ban=true"), (NIC, "")):
        words = ["sh", "-c", policy.content, "policy", f"/sys/bus/pci/devices/{device}", "24"]
        assert subprocess.run(words, capture_output=True, text=True).stdout.strip() == answer
    assert drop_in.content.splitlines()[-2:] == [
        "ExecStart=",
        f"ExecStart={STARTS['exec_start']} --policyscript={policy.path}",
    ]
    assert (restart.name, restart.running, restart.restart) == ("irqbalance.service", True, True)
    assert policy.mode == 0o755 and not drop_in.path.startswith(policy.path)


def test_a_masked_irqbalance_places_nothing(plan, wrong, evidence):
    assert plan("irq_affinity", {}, node(irqbalance=MASKED))
    other = node()
    findings = wrong("irq_affinity", {}, evidence(other))
    other["pci_settings"] = {"count": 1, "functions": other["pci_settings"]["functions"][1:]}
    with pytest.raises(FixError, match="do not come from this evidence"):
        plan("irq_affinity", {}, other, findings)


# --- on files ---------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    write(replace(hgx("n1"), cores_per_socket=2, smt=False), tmp_path)
    return tmp_path


def irqs(tree, address):
    folder = tree / f"sys/bus/pci/devices/{address}/msi_irqs"
    return [tree / f"proc/irq/{name}" for name in sorted(path.name for path in folder.iterdir())]


def set_lists(irq, cpus):
    for name in LISTS:
        (irq / name).write_text(f"{cpus}\n")


def run(tree, script):
    """What the shell of a node does with a script, on these files."""
    script = script.replace("/sys/", f"{tree}/sys/").replace("/proc/", f"{tree}/proc/")
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True)


def script_of(change):
    """As systemd hands it to the shell."""
    text = change.actions[0].content.split("ExecStart=/bin/sh -c '", 1)[1].split("'\n", 1)[0]
    return text.replace("\\\n", " ").replace("$$", "$").replace("%%", "%")


def test_only_an_interrupt_that_goes_to_another_cpu_is_moved(tree, plan):
    local = (tree / f"sys/bus/pci/devices/{NIC}/local_cpulist").read_text().strip()
    far = (tree / "sys/bus/pci/devices/0000:9c:00.0/local_cpulist").read_text().strip()
    assert local != far
    first, other = local[0], far[0]
    near, moved, mixed, unused = irqs(tree, NIC)
    set_lists(near, first)
    set_lists(moved, far)
    (mixed / "smp_affinity_list").write_text(f"{first},{other}\n")
    (mixed / "effective_affinity_list").unlink()
    (unused / "smp_affinity_list").write_text(f"{far}\n")
    (unused / "effective_affinity_list").write_text("\n")
    (change,) = plan("irq_affinity", {}, node())
    done = run(tree, script_of(change))
    assert done.returncode == 0, done
    found = [(irq / LISTS[0]).read_text().strip() for irq in (near, moved, mixed, unused)]
    assert found == [first, local, local, far]


def test_a_refused_write_fails_the_unit_and_the_others_are_moved(tree, plan):
    (first,) = irqs(tree, GPU)
    local = (tree / f"sys/bus/pci/devices/{NIC}/local_cpulist").read_text().strip()
    (first / LISTS[0]).unlink()
    (first / LISTS[0]).mkdir()  # no one can write to it
    (first / LISTS[1]).write_text("8000\n")
    set_lists(irqs(tree, NIC)[0], "8000")
    (change,) = plan("irq_affinity", {}, node())
    assert run(tree, script_of(change)).returncode == 1
    assert (irqs(tree, NIC)[0] / LISTS[0]).read_text().strip() == local


def seen(tree, address):
    request = {"root": str(tree), "resources": [{"kind": "interrupts", "name": address}]}
    return State(resource=Resource(kind="interrupts", name=address), **look(request)[0])


def test_each_interrupt_gets_its_own_cpus_back(tree):
    for number, irq in enumerate(irqs(tree, NIC)):
        set_lists(irq, number)
    before = seen(tree, NIC)
    assert before.value == ["0", "1", "2", "3"]
    (back,) = restore(before)
    assert holds(back, [before]) is True
    for irq in irqs(tree, NIC):
        set_lists(irq, "5-6")
    assert holds(back, [seen(tree, NIC)]) is False
    done = run(tree, back.command(seconds=9).get_raw_value())
    assert done.returncode == 0 and seen(tree, NIC) == before, done
    online = "/sys/devices/system/cpu/online"  # as an interrupt of the kernel: it takes no CPUs
    first, *others = irqs(tree, NIC)
    (first / LISTS[0]).unlink()
    (first / LISTS[0]).symlink_to(online)
    for irq in others:
        set_lists(irq, "5-6")
    managed = PlaceInterrupts(address=NIC, cpus=(Path(online).read_text().strip(), "1", "2", "3"))
    done = run(tree, managed.command(seconds=9).get_raw_value())
    assert done.returncode == 0, done
    assert [(irq / LISTS[0]).read_text().strip() for irq in others] == ["1", "2", "3"]
    refused = PlaceInterrupts(address=NIC, cpus=("77", "4", "5", "6"))
    assert run(tree, refused.command(seconds=9).get_raw_value()).returncode == 1
    assert [(irq / LISTS[0]).read_text().strip() for irq in others] == ["4", "5", "6"]
    short = PlaceInterrupts(address=NIC, cpus=("0", "1"))
    assert run(tree, short.command(seconds=9).get_raw_value()).returncode == 1
    assert restore(seen(tree, "0000:ff:00.0")) == ()
    fewer = State(resource=before.resource, exists=True, value=["0", "1"])
    assert has_ended(before, fewer) and not has_ended(before, before)


def test_interrupts_that_a_killed_rollback_restored_in_part_belong_to_the_step():
    def of(*cpus):
        return State(resource=Resource(kind="interrupts", name=NIC), exists=True, value=[*cpus])

    traces = Traces(before=of("0", "1"), after=of("2", "3"), actions=(), effective="now")
    kind = kind_of(traces.before.resource)
    assert kind.is_of_step(traces, of("0", "3")) is True
    assert kind.is_of_step(traces, of("1", "3")) is kind.is_of_step(traces, of("0")) is None


@pytest.mark.parametrize(("address", "cpus"), [("0000:1a:00.0;reboot", "0"), (NIC, "0;reboot")])
def test_an_invalid_address_or_cpu_list_never_reaches_the_shell(address, cpus):
    with pytest.raises(ActionError, match="not interrupts and their CPUs"):
        PlaceInterrupts(address=address, cpus=(cpus,)).command(seconds=9)


def test_a_path_in_place_of_a_pci_address_is_not_read(tmp_path):
    assert seen(tmp_path, "../../../etc").why == "not the address of a PCI function"
