"""What playbook.yaml reads of a node, as a test of pytest-testinfra: a command for each source."""

from pathlib import Path
from typing import Any

COMMANDS = (
    "hostname; uname -a; cat /etc/os-release /proc/uptime /proc/cmdline /etc/machine-id",
    "nvidia-smi -q -x || true",
    "cd /sys/bus/pci/devices && grep -s '' */class */vendor */device */numa_node || true",
    "cd /sys/devices/system/cpu && grep -s '' online present smt/* cpufreq/policy*/* || true",
    "grep -s '' /sys/devices/system/node/node*/cpulist /proc/meminfo || true",
    "cat /proc/modules; ls -l /dev/nvidia* || true",
    "grep -sE 'Name|allowed' /proc/[0-9]*/status || true",
)


def test_node(host: Any) -> None:
    assert [host.run(command).rc for command in COMMANDS] == [0] * len(COMMANDS)
    assert Path(__file__).exists()
