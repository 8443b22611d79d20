"""Who owns a job: by the node's own records, and hostile names are only text."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import GpuDiagnosis, JobOwner
from nodevet.diagnose.owners import owner_text
from nodevet.diagnose.phrases import next_text, owner_texts
from nodevet.diagnose.sheet import diagnosis_sheet
from nodevet.sheet import render
from tests.diagnosis.samples import JSON, evidence, gpu, process, sections
from tests.report import diagnoses

ID = "1a2b3c4d5e6f" + 52 * "0"
POD = "pod 6f1d2c3b-0000-1111-2222-333344445555"
SLURM = {"job_id": "Slurm 12", "step": "0", "partition": "gpu", "login": "alice"}


def told(listed: JSON | None = None, **watched: Any) -> GpuDiagnosis:
    found = sections([gpu(20)], [process(uid=1000, **watched)])
    if listed is not None:
        found["processes"] = {"processes": [{"pid": 10, **listed}]}
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str)
    return answer[0]


OWNERS = {
    "a job of Slurm": (
        ({"unit": "slurmstepd.scope", "cgroup": "/system.slice/slurmstepd.scope/job_12"}, SLURM),
        "alice (uid 1000), Slurm job 12, step 0, partition gpu",
    ),
    "a pod": (
        (
            {"cgroup": f"/kubepods.slice/x.slice/cri-containerd-{ID}.scope", "unit": "x.scope"},
            {"job_id": POD, "pod": "ml/train-0", "login": "alice"},
        ),
        "user 1000, pod ml/train-0, container 1a2b3c4d5e6f",
    ),
    "a pod without a folder of logs": (
        (None, {"job_id": POD, "login": "alice"}),
        f"user 1000, {POD}",
    ),
    "a container": (
        ({"cgroup": f"/docker/{ID}"}, {"login": "alice"}),
        "user 1000, container 1a2b3c4d5e6f",
    ),
    "a unit": (
        ({"cgroup": "/system.slice/triton.service", "unit": "triton.service"}, {"login": "svc"}),
        "svc (uid 1000), unit triton.service",
    ),
    "nothing but the user": ((None, {}), "user 1000"),
}


@pytest.mark.parametrize("who", OWNERS)
def test_the_owner_of_a_job(who: str) -> None:
    """In a container, the node's name of a uid may be another person's."""
    (listed, watched), text = OWNERS[who]
    assert owner_texts([told(listed, **watched)]) == [text]


def test_the_process_list_gives_the_owner_of_a_process_that_was_not_watched() -> None:
    found = sections([gpu(20)], [])
    unit = {"cgroup": "/system.slice/x.service", "unit": "x.service"}
    found["processes"] = {"processes": [{"pid": 10, "uid": 7, **unit}]}
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str)
    assert owner_texts(answer) == ["user 7, unit x.service"]


def test_an_unknown_owner_is_not_printed() -> None:
    assert owner_text(JobOwner()) == ""
    bare = told(**SLURM)
    assert owner_texts([replace(bare, jobs=(replace(bare.jobs[0], owner=JobOwner()),))]) == []


def test_gpus_of_one_owner_have_one_row_and_several_owners_their_processes() -> None:
    one = told(**SLURM)
    (job,) = one.jobs
    assert len(owner_texts([one, one, one])) == 1
    other = replace(job, pid=11, owner=JobOwner(uid=1001))
    assert owner_texts([replace(one, jobs=(job, other))]) == [
        "alice (uid 1000), Slurm job 12, step 0, partition gpu: python 10",
        "user 1001: python 11",
    ]
    many = [replace(job, pid=n, owner=JobOwner(uid=n)) for n in range(9)]
    assert owner_texts([replace(one, jobs=tuple(many))])[-1] == "and 5 more owners"


def test_the_next_step_names_the_job_of_slurm() -> None:
    step = "nodevet diagnose -i INVENTORY --job JOB"
    slurm = replace(told(**SLURM), next_step=step)
    assert next_text([slurm]) == "nodevet diagnose -i INVENTORY --job 12"
    for other in ({"job_id": POD}, {"job_id": "Slurm 12; rm -rf /"}, {}):
        assert next_text([replace(told(**other), next_step=step)]) == step


def test_hostile_owner_names_are_escaped() -> None:
    nasty = "\x1b[2J</td><script>"
    fields = dict.fromkeys(("login", "partition", "pod", "step"), nasty)
    host = diagnoses.host("gpu7", ("storage-bound",))
    hostile = replace(host, gpus=(replace(host.gpus[0], jobs=told(**fields).jobs),))
    found = diagnoses.diagnosis(hostile)
    for form in ("table", "markdown", "html"):
        text = render(form, found, lambda: diagnosis_sheet(found), width=None)
        assert "\x1b" not in text and (form != "html" or "<script" not in text)
