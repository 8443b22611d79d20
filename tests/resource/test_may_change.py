"""What a step can have changed: what it names, what hangs together with that, and nothing else."""

import pytest

from nodevet.resource import Action, Resource, RunCommand, may_change
from nodevet.resource.file import WriteFile
from nodevet.resource.gpu import nvidia_smi, setting
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import RELOAD, SetUnit

GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
PREFERENCE = "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
UNIT = "/etc/systemd/system/nodevet-power-limit.service"
POWER, CLOCK = setting("GPU-1", "power_limit_mw"), setting("GPU-1", "app_clock_memory_mhz")


def kernel(path: str) -> Resource:
    return Resource(kind="kernel", name=path)


def module(name: str) -> Resource:
    return Resource(kind="module", name=name)


CAN: list[tuple[tuple[Action, ...], tuple[Resource, ...], Resource]] = [
    ((WriteKernel(path=THP, value="never"),), (kernel(THP),), kernel(THP)),
    ((WriteKernel(path=GOVERNOR, value="x"),), (kernel(GOVERNOR),), kernel(PREFERENCE)),
    (
        (WriteKernel(path="/proc/sys/net/ipv4/ip_forward", value="1"),),
        (kernel("/proc/sys/net/ipv4/ip_forward"),),
        kernel("/proc/sys/net/ipv4/conf/all/rp_filter"),
    ),
    (
        (WriteKernel(path="/proc/sys/vm/nr_hugepages", value="8"),),
        (kernel("/proc/sys/vm/nr_hugepages"),),
        kernel("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"),
    ),
    ((nvidia_smi("GPU-1", "-mig", "1"),), (setting("GPU-1", "mig_pending"),), POWER),
    ((SetUnit(name="tuned.service", running=False),), (), kernel(GOVERNOR)),
    ((SetUnit(name="train.service", restart=True),), (), POWER),
    ((RunCommand(words=("apt-get", "install", "x")),), (), kernel(THP)),
    ((RunCommand(words=("sh", "-c", "x")),), (), POWER),
    ((RunCommand(words=("systemd-tmpfiles", "--create")),), (), kernel(THP)),
    ((RunCommand(words=()),), (), POWER),
    (
        (RunCommand(words=("nvidia-smi", "-pl", "500")),),
        (setting("GPU-2", "power_limit_mw"),),
        POWER,
    ),
    ((RunCommand(words=("nvidia-smi", "-i", "GPU-2", "-r")),), (setting("GPU-2", "x"),), POWER),
    ((nvidia_smi("2", "-pl", "500"),), (setting("GPU-2", "power_limit_mw"),), POWER),
    (
        (SetUnit(name="nvidia-persistenced.service", restart=True),),
        (setting("GPU-2", "persistence_mode"),),
        POWER,
    ),
    ((RunCommand(words=("modprobe", "-r", "nvidia_uvm")),), (module("nvidia_uvm"),), POWER),
    (
        (RunCommand(words=("modprobe", "acpi_cpufreq")),),
        (module("acpi_cpufreq"),),
        kernel(GOVERNOR),
    ),
]
CANNOT: list[tuple[tuple[Action, ...], tuple[Resource, ...], Resource]] = [
    ((WriteKernel(path=THP, value="never"),), (kernel(THP),), kernel(GOVERNOR)),
    (
        (WriteKernel(path="/proc/sys/vm/swappiness", value="1"),),
        (kernel("/proc/sys/vm/swappiness"),),
        kernel("/proc/sys/kernel/numa_balancing"),
    ),
    ((nvidia_smi("GPU-1", "-pl", "500"),), (POWER,), kernel(GOVERNOR)),
    ((nvidia_smi("GPU-2", "-pl", "500"),), (setting("GPU-2", "power_limit_mw"),), POWER),
    (
        (
            WriteFile(path=UNIT, content="[Service]\n"),
            SetUnit(name="nodevet-power-limit.service", enabled=True, running=True),
        ),
        (Resource(kind="file", name=UNIT), POWER, CLOCK),
        kernel(GOVERNOR),
    ),
    ((SetUnit(name="nvidia-persistenced.service", running=True),), (), kernel(GOVERNOR)),
    ((SetUnit(name="tuned.service", enabled=False),), (), kernel(GOVERNOR)),
    ((RELOAD,), (), kernel(GOVERNOR)),
    (
        (RunCommand(words=("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/nodevet-x.conf")),),
        (kernel(GOVERNOR),),
        kernel(THP),
    ),
    ((RunCommand(words=("swapoff", "--all")),), (), kernel(GOVERNOR)),
    ((RunCommand(words=("modprobe", "nvidia_peermem")),), (module("nvidia_peermem"),), kernel(THP)),
    ((RunCommand(words=("modprobe", "ib_umad")),), (module("ib_umad"),), POWER),
]


@pytest.mark.parametrize(("actions", "named", "other"), CAN)
def test_e23_a_step_can_change_its_resources_and_those_connected_with_them(
    actions: tuple[Action, ...], named: tuple[Resource, ...], other: Resource
) -> None:
    assert may_change(actions, named, other)


@pytest.mark.parametrize(("actions", "named", "other"), CANNOT)
def test_e23_a_step_cannot_change_unrelated_resources(
    actions: tuple[Action, ...], named: tuple[Resource, ...], other: Resource
) -> None:
    assert not may_change(actions, named, other)
