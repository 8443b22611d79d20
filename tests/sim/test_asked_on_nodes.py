"""What only a site's own baseline asks for, by name: each fault is found by its check on a node
that is booted, and nothing else there."""

from typing import Any

import pytest

from nodevet_sim.faults import asked
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
HEAD = """\
sim: 1
title: A node for each of these faults, and one that is healthy
templates:
  h100: {gpus: h100-sxm, cores: 1}
nodes:
  healthy: {template: h100}
"""
BASELINE = """\
nodevet: 1
title: what a site asks for
allow_commands: true
expect:
  command:
    bios: {run: [cat, /sys/class/dmi/id/bios_version], text: "2.2.7"}
    cable: {run: [mlxlink, -d, mlx5_3, -c, --json], json: {path: status.code, value: 0}}
    mode: {run: [nvidia-smi, "--query-gpu=compute_mode", "--format=csv"], contains: Default}
    no_scheduler: {run: [test, "!", -e, /usr/sbin/scontrol]}
    ports: {run: [cat, /sys/class/infiniband/mlx5_3/ports/1/state], pattern: "^4: ACTIVE$"}
  container_runtime: {engines: [docker], default_runtime: [docker], cdi: true}
  cuda_libraries: {}
  dcgm: {health: false, diag: /var/log/dcgm-diag.json, maximum_age_days: 30}
  dkms: {}
  file:
    limits: {path: /etc/security/limits.d/90-rdma.conf, mode: "0644", owner: root, group: root}
    nameserver: {path: /etc/resolv.conf, contains: nameserver 127.0.0.1}
    no_limits_of_the_site: {path: /etc/security/limits.d/95-site.conf, exists: false}
    search: {path: /etc/resolv.conf, pattern: "^search cluster.example$"}
  framework_cuda: {python: /opt/pytorch/bin/python, version: "2.4", cuda: "12.4"}
  packages: {installed: {bash: any}, absent: [snapd], held: [HELD]}
  routes: {default_ipv4: eth0, default_ipv6: eth0}
  rule:
    memory_stays: {sysctl: {kernel.numa_balancing: 0}}
    no_snap: {packages: {absent: [snapd]}}
    persistence: {services: {running: [nvidia-persistenced.service]}}
  services:
    running: [nvidia-persistenced.service]
    enabled: [nvidia-persistenced.service]
    stopped: [site-agent.service]
    disabled: [site-agent.service]
  time_sync: {maximum_error_ms: 100}
""".replace("HELD", "nvidia-driver-580")
TORCH = ("framework_cuda", "/opt/pytorch/bin/python")
DOCKER, MODULE = ("container_runtime", "docker"), ("dkms", "nvidia")
FOUND: dict[str, set[tuple[str, str]]] = {  # fault -> the checks and subjects that fail
    "diag-old": set(),  # unknown: see UNKNOWN
    "dkms-files-gone": {MODULE},
    "dkms-next-not-built": {MODULE},
    "docker-default-other": {DOCKER},
    "docker-runtime-gone": {DOCKER},
    "docker-without-gpus": {DOCKER},
    "file-mode-other": {("file", "limits")},
    "file-owner-other": {("file", "limits")},
    "package-not-held": {("packages", "nvidia-driver-580")},
    "stubs-in-loader-path": {("cuda_libraries", "libcuda.so.1")},
    "torch-broken": {TORCH},
    "torch-cuda-other": {TORCH},
    "torch-gpus-hidden": {TORCH},
    "torch-old": {TORCH},
    "unit-not-enabled": {("services", "nvidia-persistenced.service")},
    "unit-unwanted": {("services", "site-agent.service")},
    # of other modules, which no other test asks these checks about
    "bios-old": {("command", "bios")},
    "clock-error-large": {("time_sync", "")},
    "compute-exclusive": {("command", "mode")},
    "default-route-ipv6-missing": {("routes", "default IPv6")},
    "ib-port-down": {("command", "ports")},
    "memlock-small": {("file", "no_limits_of_the_site")},
    "nameserver-other": {("file", "nameserver")},
    "numa-balancing-on": {("rule", "memory_stays")},
    "package-unwanted": {("packages", "snapd"), ("rule", "no_snap")},
    "persistence-off": {
        ("rule", "persistence"),
        ("services", "nvidia-persistenced.service"),
    },
    "search-domain-missing": {("file", "search")},
    "slurm-drained": {("command", "no_scheduler")},
}
UNKNOWN = {"diag-old": {("dcgm", "diag")}}
TOLD = {  # fault -> what the finding says of it
    "dkms-files-gone": "1 of its files are gone",
    "dkms-next-not-built": "not built",
    "docker-default-other": "not the default",
    "docker-runtime-gone": "not there",
    "docker-without-gpus": "not configured",
    "file-mode-other": "0666",
    "file-owner-other": "nobody",
    "package-not-held": "not held",
    "stubs-in-loader-path": "a stub: /usr/local/cuda/lib64/stubs/libcuda.so.1",
    "torch-broken": "libcudnn.so.9",
    "torch-cuda-other": "11.8",
    "torch-gpus-hidden": "devices",
    "torch-old": "1.13.1",
    "unit-not-enabled": "disabled",
    "unit-unwanted": "enabled",
}


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    """The findings of each node."""
    nodes = "".join(f"  {name}: {{template: h100, faults: {name}}}\n" for name in FOUND)
    fleet = boot("asked", HEAD + nodes)
    fleet.baseline("base", BASELINE)
    return fleet.vetted(*fleet.reach)


def found(host: dict[str, Any], verdict: str) -> set[tuple[str, str]]:
    return {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in host["findings"]
        if each["verdict"] == verdict
    }


def test_every_fault_is_tried() -> None:
    assert asked.FAULTS.keys() <= FOUND.keys()
    assert asked.FAULTS.keys() == TOLD.keys() | UNKNOWN.keys()


def test_a_healthy_node_is_ok(hosts: dict[str, Any]) -> None:
    assert found(hosts["healthy"], "fail") == set()
    assert found(hosts["healthy"], "unknown") == set()
    assert found(hosts["healthy"], "not_applicable") == {("dkms", "")}  # it has no such modules


@pytest.mark.parametrize("name", FOUND)
def test_each_fault_is_found_and_nothing_else(hosts: dict[str, Any], name: str) -> None:
    assert hosts[name]["status"] == "vetted"
    assert found(hosts[name], "fail") == FOUND[name]
    assert found(hosts[name], "unknown") == UNKNOWN.get(name, set())


@pytest.mark.parametrize("name", TOLD)
def test_each_finding_says_what_is_wrong(hosts: dict[str, Any], name: str) -> None:
    failed = [each for each in hosts[name]["findings"] if each["verdict"] == "fail"]
    assert TOLD[name] in str([each["actual"] for each in failed])


def test_results_of_a_diagnostic_are_too_old(hosts: dict[str, Any]) -> None:
    (old,) = (each for each in hosts["diag-old"]["findings"] if each["verdict"] == "unknown")
    assert "days old, expected at most 30" in old["why"]
