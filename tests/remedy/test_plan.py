"""From findings to a plan: what enters, in which order, and why the rest does not."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from shown_plan import shown_plan

from nodevet.checking.catalog import Catalog, CatalogError
from nodevet.checking.judge import judge
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.candidates import Draft, Rules, VettedNode, draft
from nodevet.fix.plan.planner import FixStates, Proposal, make
from nodevet.fix.plan.render import View
from nodevet.fix.use.plan import warning
from nodevet.fixing.model import FixError, PlannedChange, Risk
from nodevet.fleet.protocol.answers import RunningAgent
from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict, fail, ok, unknown
from nodevet.model.baseline import Baseline, Expectation
from nodevet.resource import Action, Resource, RunCommand, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

UUID = "GPU-4bb2613f-bf5e-c8f5-a839-45d90576654d"
NOW = datetime(2026, 11, 20, 22, 0, tzinfo=timezone.utc)
ORDER = (
    *("dkms", "kernel_modules", "gpudirect", "leftover_processes", "gpu_lost", "gpu_repair"),
    *(
        "mounts",
        "pci_links",
        "pcie_link",
        "retired_pages",
        "row_remapping",
        "services",
        "fabric",
        "dcgm",
    ),
    *("imex", "infiniband", "limits", "network_link", "persistence_mode", "irq_affinity"),
    *("mig_mode", "container_runtime", "ecc_mode", "acs", "compute_mode", "pcie_settings"),
    *("power_limit", "gpu_clocks", "cpu_governor", "cpu_frequency", "cpu_idle_states"),
    *("time_sync", "transparent_hugepage", "sysctl", "swap", "hugepages", "memory_fragmentation"),
    *("numa_binding", "iommu", "kernel_cmdline", "smt", "driver_version"),
)
"""In which a node takes the shipped fixes."""

RULES = Rules(id="0a1b2c3d", author="alice", now=NOW)
CHECK = '''"""A check."""
from nodevet.model import Check, CheckParams
CHECK = Check(params=CheckParams, reads=("host.kernel",), judge=lambda e, w: iter(()))
'''
FIX = '''"""Puts {name} right."""
from nodevet.fixing.model import Fix, Risk
def plan(evidence, findings, params):
    yield from params(evidence, findings)
FIX = Fix(plan=plan, risk=Risk.{risk})
'''
Planner = Callable[[Evidence, Sequence[Finding]], Sequence[PlannedChange]]


class Shop:
    """A project with checks and fixes of its own, whose wants say what the fix plans."""

    def __init__(self, folder: Path) -> None:
        self.checks, self.fixes = folder / "checks", folder / "fixes"
        self.checks.mkdir()
        self.fixes.mkdir()

    def add(self, *names: str, risk: Risk = Risk.REBOOT, fix: bool = True) -> None:
        for name in names:
            (self.checks / f"{name}.py").write_text(CHECK)
            if fix:
                (self.fixes / f"{name}.py").write_text(FIX.format(name=name, risk=risk.name))

    @property
    def catalog(self) -> Catalog:
        return Catalog([self.checks], [self.fixes])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def evidence(host: str = "n1") -> Evidence:
    data = {"machine_id": f"m-{host}", "boot_id": f"b-{host}"}
    section = {"status": "ok", "seconds": 0, "data": data}
    return decode(json.dumps({"schema": 1, "probe": "1", "sections": {"host": section}}))


def kernel(path: str, value: str = "new", **rest: Any) -> PlannedChange:
    """A change of one kernel file."""
    given: dict[str, Any] = {
        "expected": value,
        "actual": "old",
        "actions": (WriteKernel(path=path, value=value),),
        "resources": (Resource(kind="kernel", name=path),),
        "risk": Risk.LIVE,
    }
    return PlannedChange(**given | rest)


def wish(
    check: str, *changes: PlannedChange, fix: bool = True, planner: Planner | None = None
) -> Any:
    return Expectation(
        check=check,
        params=planner or (lambda evidence, findings: changes),
        severity=Severity.CRITICAL,
        origin=f"site.yaml:{len(check)}",
        fix=fix,
    )


def finding(check: str, subject: Subject | None = None, **rest: Any) -> Finding:
    given = {"expected": "new", "actual": "old", "check": check, "origin": "site.yaml:4"}
    return fail(subject or Subject(), **given | rest)


def gpu(index: int) -> Subject:
    return Subject(kind="gpu", id=str(index), uuid=f"GPU-{index}")


def node(
    host: str, wishes: Sequence[Expectation], findings: Sequence[Finding], **rest: Any
) -> VettedNode:
    given: dict[str, Any] = {
        "host": host,
        "status": Status.VETTED,
        "baseline": "site",
        "findings": tuple(findings),
        "machine_id": f"m-{host}",
        "boot_id": f"b-{host}",
        "groups": ("rack1",),
    }
    baseline = Baseline(name="site", path="site.yaml", sha256="5ha", expectations=tuple(wishes))
    return VettedNode(report=HostReport(**given | rest), evidence=evidence(host), baseline=baseline)


def simple(host: str, *checks: str, fix: bool = True) -> VettedNode:
    """A node on which each of these checks is wrong and changes a file of its own."""
    wishes = [wish(check, kernel(f"/sys/{check}"), fix=fix) for check in checks]
    return node(host, wishes, [finding(check) for check in checks])


def looked(drafted: Draft, owners: Any = None) -> dict[str, FixStates]:
    """Every touch as it was: a kernel file says `old`, anything else is not there."""
    return {
        host: FixStates(
            seen=tuple(
                State(resource=resource, exists=resource.kind == "kernel", value="old")
                for resource in resources
            ),
            owners=(owners or {}).get(host, {}),
        )
        for host, resources in drafted.resources.items()
    }


def plan(shop: Shop, *nodes: VettedNode, rules: Rules = RULES, owners: Any = None) -> Proposal:
    drafted = draft(nodes, shop.catalog, rules)
    return make(drafted, rules, looked(drafted, owners))


def test_a_failure_with_an_allowed_fix_becomes_a_step(shop: Shop) -> None:
    shop.add("a")
    change = kernel("/sys/a", subjects=("GPU 0", "GPU 1"), unit="W", note="mind", gpus=("GPU-0",))
    findings = [finding("a", gpu(0), unit="W"), finding("a", gpu(1), unit="W")]
    proposal = plan(shop, node("n1", [wish("a", change)], findings))
    (step,) = proposal.plan.steps
    assert (step.id, step.host, step.fix) == ("n1/a/1", "n1", "a")
    assert step.reason == "GPU 0-1: old W, expected new W (site.yaml:4)"
    for field in ("expected", "actual", "unit", "subjects", "actions", "resources", "gpus", "note"):
        assert getattr(step, field) == getattr(change, field)
    assert [seen.value for seen in step.before] == ["old"]
    assert proposal.exit_code == 1
    made = proposal.plan
    assert (made.id, made.author, made.baselines) == ("0a1b2c3d", "alice", {"site": "5ha"})
    assert (made.created, made.expires) == (
        "2026-11-20T22:00:00+00:00",
        "2026-11-21T22:00:00+00:00",
    )
    assert made.nodes["n1"].machine_id == "m-n1" and made.nodes["n1"].boot_id == "b-n1"
    assert made.nodes["n1"].groups == ("rack1",)
    assert plan_file.read(plan_file.write(made)) == made


def test_a_plan_without_failures_has_no_steps_and_exits_0(shop: Shop) -> None:
    shop.add("a")
    proposal = plan(shop, node("n1", [wish("a", kernel("/sys/a"))], [ok(check="a")]))
    assert proposal.plan.steps == () and proposal.plan.nodes == {} and proposal.exit_code == 0


def test_only_failed_findings_are_planned(shop: Shop) -> None:
    shop.add("a", "b")
    findings = [
        Finding(verdict=verdict, check=check)
        for check in ("a", "b")
        for verdict in Verdict
        if verdict is not Verdict.FAIL
    ]
    wishes = [wish("a", kernel("/sys/a")), wish("b", kernel("/sys/b"))]
    proposal = plan(shop, node("n1", wishes, findings))
    assert not proposal.plan.steps and not proposal.plan.conflicts
    assert proposal.unknown == 2 and proposal.exit_code == 3


def test_only_fixes_that_the_baseline_allows_are_planned(shop: Shop) -> None:
    shop.add("a", "b")
    proposal = plan(shop, simple("n1", "a"), simple("n2", "b", fix=False))
    assert [step.id for step in proposal.plan.steps] == ["n1/a/1"]
    assert [(each.host, each.fix, each.findings) for each in proposal.withheld] == [("n2", "b", 1)]
    assert list(proposal.plan.nodes) == ["n1"]


def test_only_the_named_fixes_are_planned(shop: Shop) -> None:
    shop.add("a", "b")
    rules = Rules(id="x", author="a", now=NOW, fixes=frozenset({"b"}))
    proposal = plan(shop, simple("n1", "a", "b"), simple("n2", "b", fix=False), rules=rules)
    assert [step.id for step in proposal.plan.steps] == ["n1/b/1", "n2/b/1"]
    assert [each.fix for each in proposal.withheld] == ["a"]


def test_fixes_above_the_maximum_risk_are_withheld(shop: Shop) -> None:
    shop.add("a", "b")
    wishes = [wish("a", kernel("/sys/a", risk=Risk.DRAIN)), wish("b", kernel("/sys/b"))]
    rules = Rules(id="x", author="a", now=NOW, max_risk=Risk.IDLE)
    proposal = plan(shop, node("n1", wishes, [finding("a"), finding("b")]), rules=rules)
    assert [step.fix for step in proposal.plan.steps] == ["b"]
    assert [(each.fix, each.risk) for each in proposal.withheld] == [("a", Risk.DRAIN)]


def test_a_finding_without_a_fix_keeps_its_advice(shop: Shop) -> None:
    shop.add("a", fix=False)
    proposal = plan(shop, node("n1", [wish("a")], [finding("a", advice="another slot")]))
    assert [each.finding.advice for each in proposal.left] == ["another slot"]
    assert proposal.exit_code == 0


def test_a_subject_that_the_fix_omits_is_listed_as_unfixed(shop: Shop) -> None:
    shop.add("a")
    changes = kernel("/sys/a", subjects=("GPU 1",))
    findings = [finding("a", gpu(0), why="held"), finding("a", gpu(1))]
    proposal = plan(shop, node("n1", [wish("a", changes)], findings))
    reasons = [step.reason for step in proposal.plan.steps]
    assert reasons == ["GPU 1: old, expected new (site.yaml:4)"]
    assert [each.finding.why for each in proposal.left] == ["held"]


def test_steps_are_sorted_by_host_and_then_in_the_order_of_fixes(shop: Shop) -> None:
    names = ["zz_mine", "aa_mine"]
    shop.add(*names)
    checks = [*names, *reversed(ORDER)]
    catalog = shop.catalog

    class Fixes:
        """The catalog, with a fix for every name."""

        def fix(self, check: str) -> Any:
            return catalog.fix("zz_mine")

        order = catalog.order

    nodes = [simple("n2", *checks), simple("n1", *checks)]
    drafted = draft(nodes, Fixes(), RULES)  # type: ignore[arg-type]
    steps = make(drafted, RULES, looked(drafted)).plan.steps
    each = [*ORDER[:-1], "aa_mine", "zz_mine", ORDER[-1]]
    assert [step.id for step in steps] == [
        f"{host}/{fix}/1" for host in ("n2", "n1") for fix in each
    ]


def test_steps_of_one_fix_are_numbered(shop: Shop) -> None:
    shop.add("a")
    changes = [kernel(f"/sys/{n}", subjects=(f"GPU {n}",)) for n in range(2)]
    findings = [finding("a", gpu(n)) for n in range(2)]
    proposal = plan(shop, node("n1", [wish("a", *changes)], findings))
    assert [(step.id, step.subjects) for step in proposal.plan.steps] == [
        ("n1/a/1", ("GPU 0",)),
        ("n1/a/2", ("GPU 1",)),
    ]


def why(proposal: Proposal) -> list[str]:
    assert not proposal.plan.steps
    return [f"{each.host} {each.fix}: {each.why}" for each in proposal.plan.conflicts]


def test_another_manager_of_a_resource_is_a_conflict(shop: Shop) -> None:
    shop.add("a", "b")
    owners = {
        "n1": {"kernel /sys/a": ("unit tuned.service", "/etc/cron.d/x:3"), "kernel /x": ("y",)}
    }
    proposal = plan(shop, simple("n1", "a", "b"), owners=owners)
    assert [step.fix for step in proposal.plan.steps] == ["b"]
    (conflict,) = proposal.plan.conflicts
    assert conflict.why == (
        "conflict: kernel /sys/a is also managed by unit tuned.service, /etc/cron.d/x:3"
    )
    assert conflict.advice == "disable it there, or drop a from the baseline's `fix`"


def test_a_conflict_names_every_other_manager_once(shop: Shop) -> None:
    shop.add("a")
    resources = tuple(Resource(kind="kernel", name=f"/sys/{n}") for n in range(3))
    actions = tuple(WriteKernel(path=each.name, value="1") for each in resources)
    change = kernel("/sys/0", resources=resources, actions=actions)
    owners = {"n1": {resources[1].label: ("tuned", "cron"), resources[2].label: ("tuned",)}}
    proposal = plan(shop, node("n1", [wish("a", change)], [finding("a")]), owners=owners)
    assert why(proposal) == [
        "n1 a: conflict: kernel /sys/1 (and 1 more) is also managed by tuned, cron"
    ]


def test_a_host_whose_state_was_not_read_is_a_conflict(shop: Shop) -> None:
    shop.add("a")
    drafted = draft([simple("n1", "a"), simple("n2", "a")], shop.catalog, RULES)
    proposal = make(drafted, RULES, {"n2": FixStates(why="connection lost")})
    assert why(proposal) == [
        "n1 a: its state and its managers are unknown: its state was not read",
        "n2 a: its state and its managers are unknown: connection lost",
    ]
    assert proposal.exit_code == 3


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ((), "its state was not read, so it cannot be rolled back"),
        (
            (State(resource=Resource(kind="kernel", name="/sys/a"), exists=False),),
            "cannot be rolled back: kernel /sys/a: there is no such file",
        ),
        (
            (State(resource=Resource(kind="kernel", name="/sys/a"), exists=True, why="EIO"),),
            "its earlier state is unknown: EIO",
        ),
    ],
)
def test_a_change_that_cannot_be_rolled_back_is_not_planned(
    shop: Shop, seen: tuple[State, ...], words: str
) -> None:
    shop.add("a")
    drafted = draft([simple("n1", "a")], shop.catalog, RULES)
    (said,) = why(make(drafted, RULES, {"n1": FixStates(seen=seen)}))
    assert words in said


def test_two_fixes_that_set_one_resource_differently_are_both_conflicts(shop: Shop) -> None:
    shop.add("a", "b", "c")
    wishes = [wish(check, kernel("/sys/same", value=check)) for check in ("a", "b")]
    wishes.append(wish("c", kernel("/sys/c")))
    bad = node("n1", wishes, [finding(check) for check in ("a", "b", "c")])
    proposal = plan(shop, bad, simple("n2", "a"))
    assert [step.id for step in proposal.plan.steps] == ["n1/c/1", "n2/a/1"]
    assert {each.fix for each in proposal.plan.conflicts} == {"a", "b"}
    for each in proposal.plan.conflicts:
        assert each.host == "n1" and "kernel /sys/same is also changed by" in each.why
        assert each.advice == "one after another: --fix a then --fix b"


def test_one_of_two_fixes_that_do_the_same_is_planned(shop: Shop) -> None:
    shop.add("a", "b")
    wishes = [wish(check, kernel("/sys/same")) for check in ("a", "b")]
    proposal = plan(shop, node("n1", wishes, [finding("a"), finding("b")]))
    assert [step.id for step in proposal.plan.steps] == ["n1/b/1"]
    assert [each.why for each in proposal.plan.conflicts] == ["b does it too"]


@pytest.mark.parametrize(
    ("smaller", "planned"),
    [
        (SetUnit(name="d.service", enabled=True, running=True), ["b"]),
        (SetUnit(name="d.service", running=True), ["b"]),
        (SetUnit(name="d.service", enabled=False), []),
        (SetUnit(name="d.service", enabled=True, restart=True), []),
    ],
)
def test_a_change_that_a_larger_change_includes_is_not_planned(
    shop: Shop, smaller: SetUnit, planned: list[str]
) -> None:
    shop.add("a", "b")
    unit, rule = Resource(kind="unit", name="d.service"), Resource(kind="file", name="/etc/x")
    parts: dict[str, Any] = {"expected": 1, "actual": 0, "risk": Risk.LIVE}
    small = PlannedChange(**parts, actions=(smaller,), resources=(unit,))
    large = PlannedChange(
        **parts,
        actions=(
            WriteFile(path="/etc/x", content="x"),
            SetUnit(name="d.service", enabled=True, running=True),
        ),
        resources=(rule, unit),
    )
    wishes = (wish("a", small), wish("b", large))
    both = node("n1", wishes, [finding("a"), finding("b")])
    proposal = plan(shop, both)
    assert [step.fix for step in proposal.plan.steps] == planned
    if planned:
        assert [each.why for each in proposal.plan.conflicts] == ["b does it too"]


@pytest.mark.parametrize("pending", [True, False, None])
def test_a_setting_that_waits_for_a_reboot_is_not_planned_again(
    shop: Shop, pending: bool | None
) -> None:
    shop.add("ecc")
    resource = Resource(kind="gpu", name=f"{UUID}:ecc_pending")
    change = kernel("", resources=(resource,), effective="reboot", risk=Risk.REBOOT)
    change = msgspec.structs.replace(
        change, actions=(RunCommand(words=("nvidia-smi", "-i", UUID, "-e", "1")),)
    )
    drafted = draft([node("n1", [wish("ecc", change)], [finding("ecc")])], shop.catalog, RULES)
    seen = State(
        resource=resource, exists=True, value=pending, why="" if pending is not None else "hung"
    )
    made = make(drafted, RULES, {"n1": FixStates(seen=(seen,))})
    if pending is False:
        assert len(made.plan.steps) == 1
    else:
        (said,) = why(made)
        set_ = "it is set, and effective after a reboot" in said
        assert set_ is (pending is True), said


def test_a_change_that_another_manager_blocks_conflicts_with_no_other_change(shop: Shop) -> None:
    shop.add("a", "b")
    both = (Resource(kind="kernel", name="/sys/a"), Resource(kind="kernel", name="/sys/b"))
    wishes = [wish("a", kernel("/sys/a")), wish("b", kernel("/sys/b", resources=both))]
    owners = {"n1": {"kernel /sys/b": ("tuned",)}}
    proposal = plan(shop, node("n1", wishes, [finding("a"), finding("b")]), owners=owners)
    assert [step.fix for step in proposal.plan.steps] == ["a"]


def test_one_machine_under_two_names_is_not_planned(shop: Shop) -> None:
    shop.add("a")
    one, two = simple("n1", "a"), node("n2", [], [], boot_id="b-n1")
    assert why(plan(shop, one, two)) == ["n1 a: n1, n2 are one machine: the same boot id"]


def test_d4_a_node_of_another_host_name_is_not_planned(shop: Shop) -> None:
    shop.add("a")
    slip = fail(check="hostname", expected="n1", actual="n7", advice="check DNS")
    other = node("n1", [wish("a", kernel("/sys/a"))], [slip, finding("a")])
    (conflict,) = plan(shop, other).plan.conflicts
    assert conflict.why == "its host name is n7, not n1"
    assert conflict.advice == "check DNS"


@pytest.mark.parametrize("field", ["machine_id", "boot_id"])
def test_a_node_that_cannot_be_identified_is_not_planned(shop: Shop, field: str) -> None:
    shop.add("a")
    nameless = node("n1", [wish("a", kernel("/sys/a"))], [finding("a")], **{field: None})
    (said,) = why(plan(shop, nameless))
    assert f"cannot identify the node: {field}" in said


def test_hosts_that_were_not_vetted_are_listed(shop: Shop) -> None:
    shop.add("a")
    gone = VettedNode(report=HostReport(host="n9", status=Status.UNREACHABLE, why="refused"))
    proposal = plan(shop, simple("n1", "a"), gone)
    assert [each.host for each in proposal.unvetted] == ["n9"]
    assert proposal.exit_code == 1
    alone = plan(shop, gone)
    assert alone.exit_code == 3 and alone.plan.nodes == {}


def test_a_host_without_a_baseline_could_not_be_judged(shop: Shop) -> None:
    lost = VettedNode(
        report=HostReport(
            host="n1", status=Status.VETTED, findings=(unknown(why="none fits", check="baseline"),)
        )
    )
    assert plan(shop, lost).exit_code == 3
    empty = VettedNode(report=HostReport(host="n1", status=Status.VETTED))
    assert plan(shop, empty).exit_code == 3


def raising(error: BaseException) -> Planner:
    def planner(evidence: Evidence, findings: Sequence[Finding]) -> Sequence[PlannedChange]:
        raise error

    return planner


def test_a_fix_that_cannot_plan_a_change_reports_why(shop: Shop) -> None:
    shop.add("a", "b")
    wishes = [wish("a", planner=raising(FixError("GPU 0 is lost"))), wish("b", kernel("/sys/b"))]
    findings = [finding("a", advice="reseat it"), finding("b")]
    proposal = plan(shop, node("n1", wishes, findings))
    assert [step.fix for step in proposal.plan.steps] == ["b"]
    (conflict,) = proposal.plan.conflicts
    assert (conflict.why, conflict.advice) == ("GPU 0 is lost", "reseat it")


def test_an_exception_in_a_fix_does_not_affect_other_hosts(shop: Shop) -> None:
    shop.add("a")
    bad = node("n1", [wish("a", planner=raising(KeyError("x")))], [finding("a")])
    proposal = plan(shop, bad, simple("n2", "a"))
    assert [step.host for step in proposal.plan.steps] == ["n2"]
    assert proposal.plan.conflicts[0].why == "the fix itself failed: KeyError: 'x'"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("text", "it plans str, which is not a PlannedChange"),
        (kernel("/sys/a", actions=("rm",)), "`$.actions[0]`"),
        (kernel("/sys/a", actions=(WriteFile(path="/etc/x", content=5),)), "actions[0].content`"),
        (kernel("/sys/a", subjects="GPU 0"), "`$.subjects`"),
        (kernel("/sys/a", note=5), "`$.note`"),
        (kernel("/sys/a", expected=object()), "type object is unsupported"),
        (kernel("../a"), '"kernel ../a", which is not a plain path'),
    ],
)
def test_a_change_that_no_plan_can_hold_does_not_affect_other_hosts(
    shop: Shop, change: Any, words: str
) -> None:
    shop.add("a")
    proposal = plan(shop, node("n1", [wish("a", change)], [finding("a")]), simple("n2", "a"))
    assert [step.host for step in proposal.plan.steps] == ["n2"]
    assert words in proposal.plan.conflicts[0].why


FILE = WriteFile(path="/etc/x", content="x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"risk": Risk.DRAIN}, "the fix says risk idle and asks for drain"),
        ({"actions": ()}, "the fix would do nothing"),
        ({"effective": "soon"}, "effective 'soon'"),
        ({"resources": ()}, "so it cannot be rolled back"),
        ({"actions": (FILE,)}, "would change file /etc/x and does not name it"),
        ({"actions": (SetUnit(name="x.service"),)}, "would change unit x.service"),
        (
            {"actions": (RunCommand(words=("true",)),), "resources": ()},
            "names nothing that it changes",
        ),
        ({"subjects": ("GPU 7",)}, "changes something that no finding names: GPU 7"),
    ],
)
def test_a_change_that_contradicts_itself_or_its_fix_is_not_planned(
    shop: Shop, change: dict[str, Any], words: str
) -> None:
    shop.add("a", risk=Risk.IDLE)
    (said,) = why(plan(shop, node("n1", [wish("a", kernel("/sys/a", **change))], [finding("a")])))
    assert words in said


def test_an_action_on_a_file_that_is_not_text_is_not_planned(shop: Shop) -> None:
    shop.add("a")
    resource = Resource(kind="file", name="/etc/x")
    actions: tuple[Action, ...] = (FILE,)
    change = kernel("", actions=actions, resources=(resource,))
    drafted = draft([node("n1", [wish("a", change)], [finding("a")])], shop.catalog, RULES)
    value = {"content": "//4=", "mode": 0o644, "owner": 0, "group": 0}
    seen = (State(resource=resource, exists=True, value=value),)
    (said,) = why(make(drafted, RULES, {"n1": FixStates(seen=seen)}))
    assert "its content is not UTF-8 text" in said


def test_the_error_of_a_broken_fix_names_its_file(shop: Shop) -> None:
    shop.add("a")
    (shop.fixes / "a.py").write_text("FIX = 1")
    with pytest.raises(CatalogError, match=r"fixes/a\.py: defines no FIX"):
        draft([simple("n1", "a")], shop.catalog, RULES)


def test_a_time_without_zone_is_refused(shop: Shop) -> None:
    shop.add("a")
    naive = Rules(id="x", author="a", now=datetime(2026, 1, 1), valid=timedelta(hours=1))
    with pytest.raises(ValueError, match="time zone"):
        plan(shop, simple("n1", "a"), rules=naive)


def test_every_shipped_fix_has_a_shipped_check_and_a_place_in_the_order() -> None:
    catalog = Catalog()
    assert set(catalog.fixes) <= set(catalog.ids)
    assert catalog.order(catalog.fixes) == ORDER
    for fix in catalog.fixes:
        assert catalog.fix(fix) is not None
        assert catalog.fix_title(fix).endswith(".")


JOB = {
    "pid": 100,
    "command": "python3",
    "cpus_allowed": "0-127",
    "mems_allowed": "0",
    "unit": "train.service",
    "cgroup": "/system.slice/train.service",
}
SERVING: dict[str, Any] = {
    "host": {"machine_id": "m", "boot_id": "b"},
    "gpu": {
        "gpus": [{"index": 0, "uuid": UUID, "bus_id": "0000:09:00.0", "processes": [{"pid": 100}]}]
    },
    "pci": {"functions": [{"address": "0000:09:00.0", "numa_node": 0}]},
    "numa": {
        "online": "0-1",
        "nodes": [
            {"id": 0, "cpulist": "0-31,64-95", "memory_total_kb": 1 << 28},
            {"id": 1, "cpulist": "32-63,96-127", "memory_total_kb": 1 << 28},
        ],
    },
    "processes": {"processes": [JOB], "complete": True},
    "memory": {
        "swap_total_kb": 1000,
        "swap_free_kb": 1000,
        "available_kb": 1 << 20,
        "swaps": [
            {"name": "/swapfile", "kind": "file", "size_kb": 1000, "used_kb": 0, "priority": -2}
        ],
        "fstab": [],
        "swap_units": [],
    },
}


@pytest.mark.parametrize("options", [(), ("restart",)])
@pytest.mark.parametrize("serves", [True, False])
def test_r15_a_fix_that_needs_idle_gpus_is_not_planned_beside_a_service_that_must_run(
    options: tuple[str, ...], serves: bool
) -> None:
    """swap with numa_binding: with the service running the one is refused, without it the other."""
    sections = {**SERVING}
    if not serves:  # somebody else's process: nothing that the plan is about
        away = {**JOB, "pid": 9, "unit": "x.scope", "cgroup": "/x.scope"}
        sections["processes"] = {"processes": [{**JOB}, away], "complete": True}
    whole = {name: {"status": "ok", "data": part} for name, part in sections.items()}
    found = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole}))
    catalog = Catalog()
    names = ("swap", "numa_binding") if serves else ("swap",)
    wants = {"swap": {"maximum_kb": "none"}, "numa_binding": {"bound": True, "memory": False}}
    baseline = Baseline(
        name="site",
        path="site.yaml",
        sha256="5ha",
        expectations=tuple(
            Expectation(
                check=name,
                params=params_of(catalog.check(name).params, wants[name]),
                severity=Severity.CRITICAL,
                origin="site.yaml:1",
                fix=True,
            )
            for name in names
        ),
    )
    report = HostReport(
        host="n1",
        status=Status.VETTED,
        baseline="site",
        machine_id="m",
        boot_id="b",
        findings=judge(found, baseline, catalog, host="n1", today=NOW.date()),
    )
    rules = msgspec.structs.replace(RULES, options=frozenset(options))
    drafted = draft([VettedNode(report=report, evidence=found, baseline=baseline)], catalog, rules)
    values = {
        "file": {"exists": False},
        "unit": {"exists": True, "value": {"enabled": "enabled", "active": "active"}},
        "swap": {"exists": True, "value": {"active": True, "priority": -2}},
    }
    seen = tuple(State(resource=each, **values[each.kind]) for each in drafted.resources["n1"])
    proposal = make(drafted, rules, {"n1": FixStates(seen=seen)})
    planned = [step.fix for step in proposal.plan.steps]
    if not serves:
        assert planned == ["swap"], proposal
        return
    assert planned == ["numa_binding"], proposal
    (conflict,) = proposal.plan.conflicts
    assert (
        conflict.fix == "swap" and "its risk is idle, and GPU 0 in use by python3" in conflict.why
    )
    assert "which numa_binding is about: one plan cannot have both" in conflict.why
    assert conflict.advice == "apply this plan, stop train.service, then plan --fix swap"


def test_e22_each_step_names_the_agents_that_run_on_its_host(shop: Shop) -> None:
    shop.add("a", "b")
    drafted = draft([simple("n1", "a", "b"), simple("n2", "a")], shop.catalog, RULES)
    seen = looked(drafted)
    told = "puppet runs every 30 min: it may set this again"
    seen["n1"] = msgspec.structs.replace(seen["n1"], agents=(told,))
    made = make(drafted, RULES, seen)
    assert [told in step.note for step in made.plan.steps] == [True, True, False]
    for view in View:
        assert told in shown_plan(made.plan, view)


@pytest.mark.parametrize(
    ("every_s", "words"),
    [(1800, "puppet runs every 30 min: it may set this again"),
     (None, "puppet runs on this host: it may set this again")],
)  # fmt: skip
def test_e22_the_warning_about_an_agent_includes_its_interval_if_known(
    every_s: int | None, words: str
) -> None:
    assert warning(RunningAgent(name="puppet", every_s=every_s)) == words
