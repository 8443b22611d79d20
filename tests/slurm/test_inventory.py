"""Hosts from a real Slurm: `-i @slurmpart:gpu`."""

import os
import re
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm

from nodevet.base.errors import UserError
from nodevet.diagnose.jobs import asked_again, find_job, hosts_of
from nodevet.inventory import InventoryError, read
from nodevet.inventory.sources import slurm as source
from nodevet.vet.use.targets import Targets

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
def test_partitions_states_and_set_expressions_select_nodes(
    conf: Slurm, words: str, told: str
) -> None:
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


@pytest.mark.other_slurm
def test_a_job_its_steps_and_the_tasks_of_an_array(conf: Slurm) -> None:
    """For `nodevet diagnose --job`: ids as they are on the nodes, which an array does not show."""
    script = ("-o", os.devnull, "--wrap", "srun --overlap --mpi=none sleep 300")
    words = ("sbatch", "--parsable", "-w", conf.node, "--chdir=/")
    number = conf.says(*words, "--array=3-4", *script)
    wait_for(lambda: len(conf.jobs) == 2)
    wait_for(lambda: conf.says("squeue", "-h", "-s", "-o", "%i").count(".0") == 2)
    raw = {conf.says("squeue", "-h", "-j", f"{number}_{task}", "-o", "%A") for task in (3, 4)}
    found = [find_job(f"{number}_{task}") for task in (3, 4)]
    assert {job for each in found for job in each.ids} == {f"Slurm {one}" for one in raw}
    assert len(raw) == 2 and all(each.runs and each.hosts == (conf.node,) for each in found)
    assert found[0].uid == os.getuid()
    step = find_job(f"{number}_3.0")
    assert step.step == "0" and step.hosts == (conf.node,)
    with pytest.raises(UserError, match=f"job {number} is an array: name one task, such as --job"):
        find_job(number)
    assert [host.name for host in hosts_of(step, Targets())] == [conf.node]
    with pytest.raises(UserError, match="neither -i nor the targets name any"):
        hosts_of(step, Targets(names=("other1",)))
    assert asked_again(step).changed == ""
    conf.says("scancel", number)
    wait_for(lambda: not conf.jobs)
    assert re.search("ended during the watch: C(OMPLETING|ANCEL)", asked_again(found[0]).changed)
    with pytest.raises(UserError, match=r"does not run: C(OMPLETING|ANCELLED)"):
        hosts_of(find_job(f"{number}_3"), Targets())


@pytest.mark.parametrize("name", ["12x", "-1", "12;id", "$(id)", "", "12.x", "A/b", "a/b/c"])
def test_a_jobs_name_is_checked_before_any_program_is_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.programs, "output", lambda *_: pytest.fail("a program was run"))
    with pytest.raises(UserError, match="name a job of Slurm"):
        find_job(name)


def test_another_inventory_sets_how_slurm_nodes_are_reached(tmp_path: Path) -> None:
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
