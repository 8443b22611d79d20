"""The nodes of a job, watched at the same time over SSH: real processes on booted nodes."""

import json

import pytest
from gpu_load import JSON, LOADS

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
templates:
  h100:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 2
    cores: 1
nodes:
  n[1-2]: {template: h100}
  n3: {template: h100, faults: [power-capped]}
"""
BASELINE = "nodevet: 1\nexpect: {power_limit: 700}\nfix: [power_limit]\n"
NODES = ("n1", "n2", "n3")
STATE = "/run/nodevet-sim/nvml.state"


def started(fleet: SimulatedFleet, node: str, name: str, *properties: str) -> None:
    """A load as a unit of a node."""
    files = "".join(
        f"cat >/run/load/{file.name} <<'END'\n{file.read_text()}END\n"
        for file in LOADS.glob("*.py")
    )
    words = " ".join(f"-p {each}" for each in properties)
    fleet.on(
        node,
        f"mkdir -p /run/load {STATE}.processes; {files}"
        f"systemctl --quiet stop load.service 2>/dev/null;"
        f"systemd-run --quiet --unit load --setenv NODEVET_SIM_STATE={STATE} {words}"
        f" python3 /run/load/load.py {name} &&"
        f" until ls {STATE}.processes | grep -qx '[0-9]*'; do sleep 0.1; done",
    )


def diagnosed(fleet: SimulatedFleet, *words: str) -> JSON:
    done = fleet.nodevet("diagnose", *words, *fleet.reach, "--format", "json", "--duration", "5s")
    assert done.returncode in (0, 1, 3), done
    found: JSON = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    return boot("dx", SCENARIO, BASELINE)


def test_the_straggler_of_a_job_is_named_with_what_it_alone_has(fleet: SimulatedFleet) -> None:
    for node in NODES:
        started(fleet, node, "steady")
    found = diagnosed(fleet)
    causes = {host["host"]: host["gpus"][0]["cause"] for host in found["hosts"]}
    assert causes == {"n1": "GPU-bound", "n2": "GPU-bound", "n3": "throttled"}
    assert found["apart_s"] < 1
    for host in found["hosts"]:  # the login is sshd's, and no part of the rest
        assert 0 < host["login_s"] < 1 and host["rest_s"] > 0.02, host
        whole = host["login_s"] + host["rest_s"] + host["looks_s"]
        assert host["overhead"] == pytest.approx(100 * whole / host["seconds"], abs=0.01)
    (straggler,) = found["stragglers"]
    assert (straggler["host"], straggler["gpu"]) == ("n3", 0)
    (suspect,) = straggler["suspects"]
    assert suspect.startswith("power_limit of GPU 0 is 490 W, expected 700 W"), suspect
    assert suspect.endswith("`nodevet plan --fix power_limit`")


def test_a_job_on_the_far_numa_node(fleet: SimulatedFleet) -> None:
    """GPU 0 hangs on the node of the CPUs 0 and 2, and any machine has CPU 1."""
    started(fleet, "n1", "computes_between", "CPUAffinity=1")
    (host,) = diagnosed(fleet, "--limit", "n1")["hosts"]
    gpu = host["gpus"][0]
    far = ("NUMA-remote", "CPUs taken by others")  # the latter if this machine is busy
    assert gpu["cause"] in far and gpu["confidence"] != "high", gpu["sentence"]
    assert "of the job's CPU time is far from the GPU" in " ".join([gpu["sentence"], *gpu["also"]])


@pytest.mark.parametrize(("load", "cpu"), [("computes_between", 0), ("paces", 1)])
def test_g1_near_or_with_a_few_ticks_it_is_not(fleet: SimulatedFleet, load: str, cpu: int) -> None:
    started(fleet, "n1", load, f"CPUAffinity={cpu}")
    (host,) = diagnosed(fleet, "--limit", "n1")["hosts"]
    assert host["gpus"][0]["cause"] != "NUMA-remote", host["gpus"][0]["sentence"]
