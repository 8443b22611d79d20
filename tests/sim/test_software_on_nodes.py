"""The software around the driver, judged on booted nodes: one that is healthy, and one on which
everything is wrong."""

import json
from typing import Any

import pytest

from nodevet_sim.faults.software import FAULTS
from simulated_fleet import Boot

ELSEWHERE = {
    "cdi-other-gpus", "dcgm-count", "dcgm-warning", "imex-peer-missing", "slurm-gpus-other",
}  # fmt: skip
"""Their tests are in test_software_faults.py."""
TOGETHER = sorted(FAULTS.keys() - ELSEWHERE)

pytestmark = pytest.mark.timeout(600)
BASELINE = """\
nodevet: 1
title: these nodes
allow_commands: true
expect:
  container_runtime: {cdi: true}
  cuda_libraries: {}
  dcgm: {health: false, diag: /var/log/dcgm-diag.json}
  dkms: {}
  environment: {units: [ssh.service]}
  framework_cuda: {python: /opt/pytorch/bin/python, version: "2.4", cuda: "12.4"}
  imex: {nodes: 18}
  ofed: inbox
  packages: {installed: {bash: any}, absent: [snapd]}
  secure_boot: false
"""
SLURM = "  slurm_node: {gpus: false}\n"  # a healthy node has no Slurm
SCENARIO = f"""\
sim: 1
title: one of which nothing is wrong, and one of which everything is
nodes:
  good: {{gpus: h100-sxm, cores: 1, nvlink_domain: 18}}
  bad: {{gpus: h100-sxm, cores: 1, nvlink_domain: 18, faults: [{", ".join(TOGETHER)}]}}
"""
FOUND = {
    ("container_runtime", "/etc/cdi/nvidia.yaml"),
    ("container_runtime", "nvidia-container-toolkit"),
    ("cuda_libraries", "libcuda.so.1"),
    ("cuda_libraries", "libnvidia-ptxjitcompiler.so.1"),
    ("dcgm", "diag memory GPU 3"),
    ("dkms", "nvidia"),
    ("environment", "CUDA_VISIBLE_DEVICES"),
    ("framework_cuda", "/opt/pytorch/bin/python"),
    ("environment", "LD_LIBRARY_PATH"),
    ("environment", "LD_PRELOAD"),
    ("environment", "NCCL_P2P_DISABLE"),
    ("imex", "channels"),
    ("imex", "nodes"),
    ("imex", "nvidia-imex.service"),
    ("ofed", "mlx5_core"),
    ("packages", "bash"),
    ("packages", "snapd"),
    ("secure_boot", ""),
    ("slurm_node", "state"),
}


@pytest.fixture(scope="module")
def hosts(boot: Boot) -> dict[str, Any]:
    """The findings of each node."""
    fleet = boot("software", SCENARIO)
    (fleet.project / "baselines").mkdir()
    found = {}
    for name, more in (("good", ""), ("bad", SLURM)):
        file = fleet.project / "baselines" / f"{name}.yaml"
        file.write_text(BASELINE + more, encoding="utf-8")
        words = ("-i", fleet.place.inventory, "-b", name, "--all", "--format", "json", name)
        done = fleet.run_in_project("check", *words)
        assert done.returncode in (0, 1), done.stderr
        (found[name],) = json.loads(done.stdout)["hosts"]
    return found


def test_a_healthy_node_is_ok(hosts: dict[str, Any]) -> None:
    odd = [each for each in hosts["good"]["findings"] if each["verdict"] != "ok"]
    assert {(each["check"], each["verdict"]) for each in odd} == {
        ("dkms", "not_applicable"),
    }


def test_every_fault_is_found(hosts: dict[str, Any]) -> None:
    findings = hosts["bad"]["findings"]
    failed = {
        (each["check"], each.get("subject", {}).get("id", ""))
        for each in findings
        if each["verdict"] == "fail"
    }
    assert failed == FOUND
    doubted = [each for each in findings if each["verdict"] == "unknown"]
    # without a build, where its signature would be is not known either
    assert {(each["check"], each.get("subject", {}).get("id", "")) for each in doubted} <= {
        ("dkms", "nvidia")
    }
    assert len(FOUND) == len(TOGETHER)
