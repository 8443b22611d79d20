"""One store in which every name of the site has a mark: with `--redact` no command tells one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyarrow import parquet
from recorded import document, ended, report, run, unreachable

from nodevet.model import Finding, Subject, Verdict
from nodevet.store import Store, open_store
from nodevet.store.records.model import (
    FixHost,
    FixProof,
    RecordedAction,
    RecordedFixRun,
    RecordedPlan,
)

Say = Callable[..., str]
MARK = "zq"
CHECK, FIELD, GPU = "persistence_mode", "gpu.gpus[].pcie_replay_counter", "GPU-5f1c"
HOSTS = ("zqone.zqsite.example", "zqtwo", "zqthree")
FORMS = ("table", "json", "markdown", "html")


def node(night: int, gpu: str) -> bytes:
    gpus = [
        {"index": 0, "uuid": gpu, "bus_id": "0000:19:00.0", "pcie_replay_counter": night},
    ]
    for each in gpus:
        each["persistence_mode"] = night == 0
    return document(
        host={"hostname": HOSTS[0], "machine_id": "zqmachine", "cmdline": f"root=/zqroot{night}"},
        gpu={"gpus": gpus},
        processes={"processes": [{"pid": 1, "cmdline": f"/home/zquser/zqjob{night}"}]},
    )


def found(said: str, host: str) -> tuple[Finding, ...]:
    about = Finding(
        verdict=Verdict(said),
        check=CHECK,
        subject=Subject(kind="gpu", id="0", uuid=GPU),
        expected="on",
        actual="off",
        why=f"see {host}, and {HOSTS[1]}",
        origin="/home/zquser/zqsite.yaml:3",
        waiver="zqowner: broken until 2027-01-01",
        details={"path": "/home/zquser/zqdetail"},
    )
    waived = replace(about, verdict=Verdict.WAIVED, check="pages")
    return (about, waived)


def of_the_site(host: str, night: int, said: str) -> Any:
    return report(
        host,
        night=night,
        findings={},
        baseline="zqbaseline",
        groups=("zqgroup",),
        machine_id=f"zqmachine{host}",
        boot_id=f"zqboot{night}",
    ), found(said, host)


def recorded_night(store: Store, night: int) -> None:
    begun = run(night, 3, series="zqseries", baselines={"zqbaseline": "0" * 64})
    recorder = store.begin(begun)
    for number, host in enumerate(HOSTS[:2]):
        made, said = of_the_site(host, night, "ok" if night == 0 else "fail")
        recorder.take(replace(made, findings=said), node(night, GPU if not number else "GPU-77aa"))
    if night == 1:
        why = f"zquser@{HOSTS[2]} (10.9.8.7, key /home/zquser/.ssh/zqkey): refused"
        recorder.take(unreachable(HOSTS[2], why=why, night=night, groups=("zqgroup",)), None)
    else:
        made, said = of_the_site(HOSTS[2], night, "ok")
        recorder.take(replace(made, findings=said), node(night, "GPU-88bb"))
    recorder.finish(ended(begun, hosts=3))
    assert recorder.broken is None


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('zqfolder')}/zqhistory.sqlite"
    with open_store(url) as store:
        for night in range(2):
            recorded_night(store, night)
        plan = RecordedPlan(
            digest="ab" * 32,
            id="zqplan",
            author="zqauthor",
            created="2026-11-02T13:00:00+00:00",
            hosts={HOSTS[0]: (CHECK,)},
        )
        store.record_plan(plan, b"{}")
        fixed = RecordedFixRun(
            id="20261102T141000.000Z-zqplan-1",
            kind="apply",
            plan=plan.id,
            digest=plan.digest,
            author=plan.author,
            approvals=("zqboss",),
            by="zquser@zqctl",
            folder="/home/zquser/runs/1",
            started="2026-11-02T14:10:00+00:00",
            seconds=5.0,
            exit_code=0,
            outcomes={"changed": 1},
            hosts=(FixHost(host=HOSTS[0], outcome="failed", why="/home/zquser: zqwhy"),),
        )
        action = RecordedAction(
            run=fixed.id,
            kind=fixed.kind,
            plan=fixed.plan,
            host=HOSTS[0],
            step=f"{HOSTS[0]}/{CHECK}/1",
            fix=CHECK,
            subjects=("GPU 0",),
            resource="file /etc/zqfile",
            before="zqbefore",
            after="zqafter",
            outcome="changed",
            at="2026-11-02T14:10:03+00:00",
        )
        store.record_fix_run(fixed, (action,), (proof_of(fixed, "2026-11-02T14:10:04+00:00"),))
        recorded_night(store, 2)
        again = replace(fixed, id="20261103T141000.000Z-zqplan-2")
        store.record_fix_run(again, (), (proof_of(again, "2026-11-03T14:10:04+00:00"),))
    return url


def proof_of(fixed: RecordedFixRun, at: str) -> FixProof:
    return FixProof(
        run=fixed.id,
        plan=fixed.plan,
        host=HOSTS[0],
        check=CHECK,
        baseline="zqbaseline",
        machine_id=f"zqmachine{HOSTS[0]}",
        asked=at,
        at=at,
        keys=(f"{CHECK}/gpu/{GPU}",),
        subjects=(f"see {HOSTS[0]}",),
    )


def test_e19_a_verified_fix_is_reported_without_names(say: Say, marked: str) -> None:
    told = " ".join(say("history", HOSTS[0], "--redact", "--store", marked).split())
    assert "by a plan, which verified it" in told and "Fixed by a plan at" in told
    plain = " ".join(say("history", HOSTS[0], "--store", marked).split())
    assert "came back after the fix by plan zqplan" in plain


def test_a_redacted_diff_reports_a_changed_kernel_command_line(say: Say, marked: str) -> None:
    told = " ".join(say("diff", "--redact", "--store", marked).split())
    assert 'kernel command line left out → left out "host 2", "host 3"' in told


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("runs", "last"),
        ("runs", "last~1"),
        ("runs", "--fixes"),
        ("runs", "--series", "zqseries"),
        ("diff",),
        ("diff", "last~1", "last"),
        ("diff", "last~2", "last"),
        *(("history", host) for host in HOSTS),
        ("history", GPU),
        ("part", GPU),
        ("blame", CHECK),
        ("trend", CHECK),
        ("trend", CHECK, "--host", HOSTS[0]),
        ("trend", FIELD, "--host", HOSTS[0]),
    ],
    ids=" ".join,
)
def test_no_redacted_command_names_the_site(say: Say, marked: str, words: tuple[str, ...]) -> None:
    for form in FORMS:
        told = say(*words, "--redact", "--format", form, "--store", marked)
        for secret in (MARK, "10.9.8.7", "/home"):
            where = told.lower().find(secret)
            assert where < 0, (form, told[max(0, where - 80) : where + 80])


def test_no_redacted_table_names_the_site(say: Say, marked: str, tmp_path: Path) -> None:
    say("export", "--parquet", str(tmp_path / "out"), "--redact", "--store", marked)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 10
    for file in files:
        rows = str(parquet.read_table(file).to_pylist()).lower()
        for secret in (MARK, "10.9.8.7", "/home"):
            where = rows.find(secret)
            assert where < 0, (file.name, rows[max(0, where - 80) : where + 80])
