"""The nodes of a job, watched at the same time over SSH: real processes on booted nodes."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from gpu_load import JSON, LOADS
from slow_machine import slowness
from slurm_on_node import Cluster, slurm_of_nodes

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
  n4:
    template: h100
    gpus: {profile: h100-sxm, count: 2}
    faults: [{gpu-lost: {gpu: 1}}, {xid-79: {gpu: 1}}]
"""
BASELINE = "nodevet: 1\nexpect: {power_limit: 700}\nfix: [power_limit]\n"
NODES = ("n1", "n2", "n3")  # of the job; n4 has a lost GPU
STATE = "/run/nodevet-sim/nvml.state"


def carried() -> str:
    """A script that writes the loads onto a node."""
    files = "".join(
        f"cat >/run/load/{file.name} <<'END'\n{file.read_text()}END\n"
        for file in LOADS.glob("*.py")
    )
    return f"mkdir -p /run/load {STATE}.processes; {files}"


def started(fleet: SimulatedFleet, node: str, name: str, *properties: str) -> None:
    """A load as a unit of a node."""
    words = " ".join(f"-p {each}" for each in properties)
    fleet.run_on(
        node,
        f"{carried()} systemctl --quiet stop load.service 2>/dev/null;"
        f"systemd-run --quiet --unit load --setenv NODEVET_SIM_STATE={STATE} {words}"
        f" python3 /run/load/load.py {name} &&"
        f" until ls {STATE}.processes | grep -qx '[0-9]*'; do sleep 0.1; done",
    )


def diagnosed(fleet: SimulatedFleet, *words: str, env: Mapping[str, str] | None = None) -> JSON:
    options = ("--format", "json", "--duration", "5s")
    done = fleet.nodevet("diagnose", *words, *fleet.reach, *options, env=env)
    assert done.returncode in (0, 1, 3), done
    found: JSON = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    return boot("dx", SCENARIO, BASELINE)


def test_the_straggler_of_a_job_is_named_with_the_setting_that_only_it_has(
    fleet: SimulatedFleet,
) -> None:
    for node in NODES:
        started(fleet, node, "steady")
    found = diagnosed(fleet, "--limit", ",".join(NODES))
    causes = {host["host"]: host["gpus"][0]["cause"] for host in found["hosts"]}
    assert causes == {"n1": "GPU-bound", "n2": "GPU-bound", "n3": "throttled"}
    assert found["apart_s"] < slowness()
    for host in found["hosts"]:  # the login is sshd's, and no part of the rest
        assert 0 < host["login_s"] < slowness() and host["rest_s"] > 0.02, host
        whole = host["login_s"] + host["rest_s"] + host["looks_s"]
        assert host["overhead"] == pytest.approx(100 * whole / host["seconds"], abs=0.01)
    (straggler,) = found["stragglers"]
    assert (straggler["host"], straggler["gpu"]) == ("n3", 0)
    (suspect,) = straggler["suspects"]
    assert suspect.startswith("power_limit of GPU 0 is 490 W, expected 700 W"), suspect
    assert suspect.endswith("`nodevet plan --fix power_limit`")


def test_a_lost_gpu_and_one_that_nvml_does_not_list_come_first(fleet: SimulatedFleet) -> None:
    """Both are named by their slot, and since when by the kernel log; neither ends well."""
    words = ("diagnose", "n4", *fleet.reach, "--duration", "2s")
    done = fleet.nodevet(*words)
    text = done.stdout
    assert done.returncode == 1 and text.startswith("1 of 2 GPUs: lost\n"), done
    assert text.index("GPU 1: lost (confidence high)") < text.index("GPU 0: idle")
    address = text.partition("it is the GPU at ")[2].partition("\n")[0]
    fell = "Xid 79 GPU_HAS_FALLEN_OFF_THE_BUS ×1, first at 2"
    assert fell in text and address.endswith(":00.0"), text

    fleet.run_on("n4", f"sed -i 's/^count = 2$/count = 1/' {STATE} && grep -qx 'count = 1' {STATE}")
    done = fleet.nodevet(*words)
    text = done.stdout
    head = "1 of 2 GPUs is missing on n4 · The other GPU is idle\n\nMissing GPUs\n"
    assert done.returncode == 1 and text.startswith(f"{head}  n4: GPU at {address}"), done
    assert "it no longer answers on the PCI bus" in text and fell in text


def test_a_job_on_the_far_numa_node(fleet: SimulatedFleet) -> None:
    """GPU 0 hangs on the node of the CPUs 0 and 2, and any machine has CPU 1."""
    started(fleet, "n1", "computes_between", "CPUAffinity=1")
    (host,) = diagnosed(fleet, "--limit", "n1")["hosts"]
    gpu = host["gpus"][0]
    far = ("NUMA-remote", "CPUs taken by others")  # the latter if this machine is busy
    assert gpu["cause"] in far and gpu["confidence"] != "high", gpu["sentence"]
    assert "of the job's CPU time is far from the GPU" in " ".join([gpu["sentence"], *gpu["also"]])


@pytest.mark.parametrize(("load", "cpu"), [("computes_between", 0), ("paces", 1)])
def test_g1_a_job_on_near_cpus_or_with_a_few_far_ticks_is_not_numa_remote(
    fleet: SimulatedFleet, load: str, cpu: int
) -> None:
    started(fleet, "n1", load, f"CPUAffinity={cpu}")
    (host,) = diagnosed(fleet, "--limit", "n1")["hosts"]
    assert host["gpus"][0]["cause"] != "NUMA-remote", host["gpus"][0]["sentence"]


def test_the_rank_of_a_slurm_job_that_the_others_wait_for(
    fleet: SimulatedFleet, tmp_path: Path
) -> None:
    with slurm_of_nodes(fleet, NODES, tmp_path) as slurm:
        for node in NODES:
            fleet.run_on(node, f"systemctl --quiet stop load.service 2>/dev/null; {carried()}")
        words = ("srun", "-N3", "-n3", "--mpi=none", "--chdir=/", "-J", "steps")
        load = ("python3", "/run/load/load.py", "steady")
        job = subprocess.Popen([*words, *load], env={**slurm.env, "NODEVET_SIM_STATE": STATE})
        try:
            look_at_job(fleet, slurm)
        finally:
            slurm.says("scancel", "--name", "steps")
            job.wait(120)


def look_at_job(fleet: SimulatedFleet, slurm: Cluster) -> None:
    """Its ranks 0, 1 and 2 are on n1, n2 and n3; the GPU of n3 is throttled."""
    for node in NODES:
        fleet.run_on(node, f"until ls {STATE}.processes | grep -qx '[0-9]*'; do sleep 0.1; done")
    number = slurm.says("squeue", "-h", "-n", "steps", "-o", "%i")
    conf = {"SLURM_CONF": str(slurm.conf)}
    job = diagnosed(fleet, "--job", number, env=conf)["job"]
    ranks = [(rank["number"], rank["host"]) for rank in job["ranks"]]
    assert ranks == [(0, "n1"), (1, "n2"), (2, "n3")] and job["size"] == 3
    assert job["late"] == [2] and "rank 2 on n3 is slower" in job["sentence"], job

    fleet.run_on("n1", "pkill -STOP -f load.py")
    found = diagnosed(fleet, "--job", f"{number}.0", "--limit", "n1,n3", env=conf)
    job = found["job"]
    assert job["ranks"][0]["state"] == "stopped" and 0 in job["late"], job
    assert [rank["host"] for rank in job["ranks"] if rank["state"] == "not seen"] == ["n2"]
    assert job["confidence"] == "low" and "n2 was not seen" in " ".join(job["doubts"])
    fleet.run_on("n1", "pkill -CONT -f load.py")

    listed = fleet.project / "ranks.txt"
    listed.write_text("n1:gpu0 0\nn2 1  # everything there\n")
    job = diagnosed(fleet, "--ranks", str(listed))["job"]
    assert [rank["number"] for rank in job["ranks"]] == [0, 1] and job["late"] == [], job

    slurm.says("scancel", number)
    slurm.wait("squeue", "-h", "-j", number, "-t", "RUNNING,COMPLETING", "-o", "%T", until="")
    done = fleet.nodevet("diagnose", "--job", number, *fleet.reach, env=conf)
    assert done.returncode == 2 and "does not run: CANCELLED" in done.stderr, done
