"""Hosts from a real Slurm: `-i @slurmpart:gpu`."""

import os
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm

from nodevet.inventory import InventoryError, read
from nodevet.inventory.sources import slurm as source

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def more() -> str:
    return (
        "NodeName=gpu[1-8] NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\n"
        "PartitionName=small Nodes=gpu[7-8] State=UP\n"
        "PartitionName=odd Nodes=gpu[1,3,5,7] State=UP\n"
    )


@pytest.fixture(autouse=True)
def conf(running: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    monkeypatch.setenv("SLURM_CONF", str(running.conf))
    monkeypatch.chdir(tmp_path)
    return running


def names(*inventories: str, limit: tuple[str, ...] = ()) -> str:
    return " ".join(host.name for host in read((), inventories=inventories, limit=limit))


@pytest.mark.other_slurm
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("@slurmpart:small", "gpu7 gpu8"),
        ("@slurmpart:small,@slurmpart:odd", "gpu7 gpu8 gpu1 gpu3 gpu5"),
        ("@slurmpart:odd&@slurmpart:small", "gpu7"),
        ("@slurmpart:odd!@slurmpart:small", "gpu1 gpu3 gpu5"),
        ("@slurmpart:odd^@slurmpart:small", "gpu1 gpu3 gpu5 gpu8"),
        ("@slurmpart:odd!@slurmstate:drained", "gpu3 gpu5 gpu7"),
    ],
)
def test_partitions_and_states_and_their_sets(conf: Slurm, words: str, told: str) -> None:
    conf.says("scontrol", "update", "NodeName=gpu1", "State=DRAIN", "Reason=x")
    assert names(words) == told


@pytest.mark.other_slurm
def test_the_nodes_of_a_running_job(conf: Slurm) -> None:
    conf.says("sbatch", "-w", conf.node, "-o", os.devnull, "--wrap", "sleep 300")
    wait_for(lambda: conf.jobs)
    (job,) = conf.jobs
    assert names(f"@slurmjob:{job}") == conf.node
    assert names(f"@slurmstate:mixed&@slurmjob:{job}") == conf.node
    conf.says("scancel", job)


def test_another_inventory_says_how_they_are_reached(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("nodevet: 1\nhosts:\n  gpu[1-8]: {user: ops}\n  login1:\n")
    group = "@slurmpart:small"
    hosts = read((), inventories=["fleet.yaml", group], limit=[group])
    assert [(host.name, host.user, host.groups) for host in hosts] == [
        ("gpu7", "ops", {"slurmpart:small"}),
        ("gpu8", "ops", {"slurmpart:small"}),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("@slurmpart:", "not a name for slurmpart"),
        ("@slurmpart:--help", "not a name for slurmpart"),
        ("@slurmpart:$(touch pwned)", "not a name for slurmpart"),
        ("@slurmstate:idle;id", "not a name for slurmstate"),
        ("@slurmjob:1x", "not a name for slurmjob"),
        ("@slurmuser:bob", "not @slurmpart:"),
        ("@slurmpart:small&gpu7", "not @slurmpart:"),
        ("@slurmpart:small&", "a host or group is missing here"),
    ],
)
def test_a_name_is_checked_before_any_program_is_run(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.programs, "output", lambda *_: pytest.fail("a program was run"))
    with pytest.raises(InventoryError, match=told):
        names(words)


@pytest.mark.other_slurm
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("@slurmpart:none", "no such partition"),
        ("@slurmjob:999999", "Invalid job id"),
        ("@slurmstate:bad", "@slurmstate:bad"),
        ("@slurmstate:reserved", "holds no hosts"),
    ],
)
def test_what_slurm_does_not_have_is_an_error(words: str, told: str) -> None:
    with pytest.raises(InventoryError, match=told):
        names(words)
