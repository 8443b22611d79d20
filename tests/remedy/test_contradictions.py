"""A plan file may come from anywhere: one that contradicts itself is refused before it is used."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevet import cli
from nodevet.checking.bmc_identity import MachineIds
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.model import Plan, PlanError, PlannedNode, Step
from nodevet.fix.plan import plan_file
from nodevet.fixing.model import Risk
from nodevet.resource import Resource, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

THP = Resource(kind="kernel", name="/sys/kernel/mm/transparent_hugepage/enabled")
ONE = Step(
    id="n1/pages/1",
    host="n1",
    fix="pages",
    subjects=("",),
    expected="never",
    actual="always",
    risk=Risk.LIVE,
    actions=(WriteKernel(path=THP.name, value="never"),),
    resources=(THP,),
    before=(State(resource=THP, exists=True, value="always"),),
    reason="always, expected never",
)
OWN_UUID = "4c4c4544-0051-3510-8052-b4c04f4e4d32"
NODE = PlannedNode(machine_id="m", boot_id="b", baseline="b")
GOOD = Plan(
    id="plan0001",
    author="ann",
    created="2026-11-20T22:00:00+00:00",
    expires="2999-11-21T22:00:00+00:00",
    baselines={"b": "1" * 64},
    nodes={"n1": NODE, "fe80::1%eth0": replace(NODE, boot_id="b2")},
    steps=(ONE,),
)


def refused(plan: Plan) -> str:
    with pytest.raises(PlanError) as told:
        plan_file.read(plan_file.write(plan))
    assert str(told.value).startswith("not a valid plan: ")
    return str(told.value)


def with_step(**changes: object) -> Plan:
    return replace(GOOD, steps=(replace(ONE, **changes),))


def test_a_plan_without_a_contradiction_is_read() -> None:
    assert plan_file.read(plan_file.write(GOOD)) == GOOD


def test_e27_a_plan_with_two_values_for_one_key_is_refused() -> None:
    text = plan_file.write(GOOD).replace(b'"risk": "live"', b'"risk": "reboot", "risk": "live"')
    with pytest.raises(PlanError, match="two values for the key 'risk'"):
        plan_file.read(text)


@pytest.mark.parametrize(
    "id",
    ["../../../../tmp/x", "..", "", "plan 001", "plan0001\n", "a" * 17, "plan/001", "ﬁvechar1"],
)
def test_d19_an_id_that_is_a_path_is_refused(id: str) -> None:
    assert "is not 8 to 16 letters and digits" in refused(replace(GOOD, id=id))


@pytest.mark.parametrize("host", ["..", ".", "../n1", "/etc", "a/b", "", "-oProxyCommand=x", "n\0"])
def test_d19_a_host_that_is_a_path_is_refused(host: str) -> None:
    step = replace(ONE, id=f"{host}/pages/1", host=host)
    assert "node " in refused(replace(GOOD, nodes={host: NODE}, steps=(step,)))


@pytest.mark.parametrize(
    "uuid",
    ["x", "none", "4c4c4544", " ", "4C4C4544-0051-3510-8052-B4C04F4E4D32", f"{OWN_UUID}\n"],
)
def test_an_invalid_system_uuid_is_refused(uuid: str) -> None:
    """A BMC is compared with it much later, when the node is off."""
    node = replace(NODE, ids=MachineIds(uuid=uuid))
    told = refused(replace(GOOD, nodes={**GOOD.nodes, "n1": node}))
    assert "n1" in told and "its system UUID " in told and "is not a UUID" in told


@pytest.mark.parametrize("uuid", [None, "", OWN_UUID])
def test_a_system_uuid_may_be_unknown(uuid: str | None) -> None:
    node = replace(NODE, ids=MachineIds(uuid=uuid))
    plan = replace(GOOD, nodes={**GOOD.nodes, "n1": node})
    assert plan_file.read(plan_file.write(plan)) == plan


@pytest.mark.parametrize("fix", ["../../evil", "..", "a/b", ""])
def test_d19_a_fix_that_is_a_path_is_refused(fix: str) -> None:
    assert "cannot be the name of a fix" in refused(with_step(id=f"n1/{fix}/1", fix=fix))


@pytest.mark.parametrize("host", ["..", ".", "../../x", "/etc/x", "a/../../b"])
def test_d19_evidence_of_any_host_name_stays_in_the_run_folder(tmp_path: Path, host: str) -> None:
    """Whatever the rest of nodevet let pass."""
    run = RunFolder(tmp_path / "runs" / "run")
    run.keep_evidence(host, "before", b"{}")
    written = [path.relative_to(run.path) for path in tmp_path.rglob("*.json")]
    assert [path.parts[0] for path in written] == ["evidence"] and len(written[0].parts) == 3


def test_d19_apply_approve_and_rollback_write_nothing_for_a_plan_with_a_path_as_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "a" / "b" / "project"
    project.mkdir(parents=True)
    (project / "allowed_signers").write_text("ann ssh-ed25519 AAAA\n")
    plan, run = project / "plan.json", project / "run"
    plan.write_bytes(plan_file.write(replace(GOOD, id="../../../../x")))
    run.mkdir()
    (run / "plan.json").write_bytes(plan.read_bytes())
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(project)
    for words in (
        ("apply", "plan.json"),
        ("approve", "plan.json", "--yes"),
        ("rollback", "run"),
        ("apply", "--resume", "run"),
    ):
        said = io.StringIO()
        monkeypatch.setattr("sys.argv", ["nodevet", *words])
        with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2 and "is not 8 to 16 letters and digits" in said.getvalue()
    assert sorted(tmp_path.rglob("*")) == before


def _bare(kind: str, name: str) -> Resource:
    return Resource(kind=kind, name=name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: with_step(id="n2/pages/1", host="n2"), "its host n2 is not among the nodes"),
        (lambda: replace(GOOD, steps=(ONE, ONE)), "2 steps have the id n1/pages/1"),
        (lambda: with_step(id="n2/pages/1"), "its id is not of n1 and pages"),
        (lambda: with_step(id="n1/pages/0"), "its id is not of n1 and pages"),
        (lambda: with_step(id="n1/pages/1/2"), "its id is not of n1 and pages"),
        (lambda: with_step(resources=(_bare("file", "/etc/x"),), before=()), "does not name"),
        (lambda: with_step(resources=(), before=()), "it names nothing"),
        (lambda: with_step(actions=()), "it does nothing"),
        (lambda: with_step(effective="later"), "effective later"),
        (lambda: with_step(options=("force",)), "force is not an option of a fix"),
        (lambda: with_step(subject_uuids=("GPU-1",)), "it names 0 GPUs and 1 UUIDs"),
        (
            lambda: with_step(
                before=(State(resource=_bare("file", "/etc/cron.d/evil"), exists=False),)
            ),
            "before names file /etc/cron.d/evil, which it does not change",
        ),
        (lambda: with_step(before=ONE.before * 2), f"{THP.label}, 2 times"),
        (
            lambda: replace(GOOD, steps=(ONE, replace(ONE, id="n1/pages/2"))),
            f"2 steps of n1 change {THP.label}",
        ),
        (lambda: replace(GOOD, baselines={}), "its baseline b is not among those"),
        (lambda: replace(GOOD, nodes={"n1": NODE, "n2": NODE}), "nodes n1, n2 are one machine"),
    ],
)
def test_r13_a_plan_that_contradicts_itself_is_refused(
    change: Callable[[], Plan], told: str
) -> None:
    assert told in refused(change()).replace('"', "")


@pytest.mark.parametrize(
    ("action", "resource", "told"),
    [
        (WriteFile(path="/etc/../root/x", content="x"), "file", "not a plain path from / on"),
        (WriteFile(path="etc/x", content="x"), "file", "not a plain path from / on"),
        (WriteKernel(path="/sys/../etc/shadow", value="x"), "kernel", "not a plain path from / on"),
        (WriteKernel(path="/etc/shadow", value="x"), "kernel", "is not below /sys/ or /proc/sys/"),
        (SetUnit(name="../x.service", running=True), "unit", "is not the name of a unit"),
    ],
)
def test_d19_a_step_without_a_plain_path_or_unit_name_is_refused(
    action: WriteFile | WriteKernel | SetUnit, resource: str, told: str
) -> None:
    name = action.name if isinstance(action, SetUnit) else action.path
    step = with_step(actions=(action,), resources=(_bare(resource, name),), before=())
    assert told in refused(step)
