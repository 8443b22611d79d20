"""What use cases tell while they go on, and what they refuse before they begin."""

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.author.explain_sheet import explained
from nodevet.author.use.explain import resolve
from nodevet.base.errors import UserError
from nodevet.base.outputs import FileError, try_out
from nodevet.fix.events import FixListener
from nodevet.fix.use.plan import PlanRequest, author, rules_of
from nodevet.fix.use.rollback import chosen_hosts
from nodevet.fixing.model import Risk
from nodevet.fleet import Visit
from nodevet.inventory import InventoryError
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.model.run import Run
from nodevet.vet.use import earlier, saved
from nodevet.vet.use.context import VetContext, open_context, open_project
from nodevet.vet.use.judge_visit import NOT_REACHED
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import collect, reports, vet_saved

Vetted = Callable[..., Visit]


class Heard(VetListener):
    def __init__(self) -> None:
        self.told: list[str] = []

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        assert not run.hosts
        self.told.append(f"began {','.join(hosts)}")

    def took(self, host: HostReport) -> None:
        self.told.append(f"took {host.host} {host.status.value}")

    def advanced(self, host: str) -> None:
        self.told.append(f"advanced {host}")

    def ended(self, run: Run) -> None:
        self.told.append(f"ended {len(run.hosts)}")


def test_a_run_is_reported_from_its_beginning_to_its_end(
    context: VetContext, vetted: Vetted
) -> None:
    hosts = (Host(name="b"), Host(name="a"))
    heard = Heard()
    visits = [vetted("a", machine_id="1"), vetted("b", machine_id="2")]
    run = vet_saved(hosts, visits, context, fail_on=Severity.WARNING, listener=heard)
    assert heard.told == [
        "began b,a", "took a vetted", "advanced a", "took b vetted", "advanced b", "ended 2",
    ]  # fmt: skip
    assert [host.host for host in run.hosts] == ["b", "a"] and run.replayed


def test_an_interrupted_run_keeps_the_visits_it_has(context: VetContext, vetted: Vetted) -> None:
    hosts = {name: Host(name=name) for name in ("a", "b")}

    def visits() -> Iterator[Visit]:
        yield vetted("a")
        raise KeyboardInterrupt

    heard = Heard()
    found = reports(visits(), hosts, context)
    run = collect(tuple(hosts.values()), found, context, fail_on=Severity.WARNING, listener=heard)
    assert run.interrupted and heard.told[-2:] == ["took b interrupted", "ended 2"]
    assert (run.hosts[1].status, run.hosts[1].why) == (Status.INTERRUPTED, NOT_REACHED)


def test_hosts_must_be_named() -> None:
    assert not Targets()
    with pytest.raises(UserError, match="no hosts: name them"):
        Targets().hosts()
    (host,) = Targets(names=("gpu1",), expect_hostname=False).hosts()
    assert host.expect_hostname is False


def test_evidence_of_hosts_that_are_not_asked_for_is_omitted(
    tmp_path: Path, vetted: Vetted
) -> None:
    for name in ("a", "b"):
        saved.keep(vetted(name), Host(name=name), tmp_path)
    every = saved.read_saved([tmp_path], Targets())
    assert ([host.name for host in every.hosts], every.left_out) == (["a", "b"], ())
    some = saved.read_saved([tmp_path], Targets(names=("a", "c")))
    assert [visit.status for visit in some.visits] == [Status.VETTED, Status.PROBE_FAILED]
    assert some.left_out == ("b",)
    assert saved.strangers(tmp_path, some.hosts, Targets(names=("a", "c"))) == ["b"]
    assert saved.read_saved([tmp_path, tmp_path / "a.json"], Targets()) == every
    saved.keep(vetted("b"), Host(name="b"), tmp_path / "more")
    twice = saved.read_saved([tmp_path, tmp_path / "more"], Targets())
    statuses = {visit.host: (visit.status, visit.why) for visit in twice.visits}
    assert statuses["a"] == (Status.VETTED, "")
    why = f"two files are of this host: {tmp_path}/b.json, {tmp_path}/more/b.json"
    assert statuses["b"] == (Status.UNREADABLE, why)


def test_saved_evidence_is_read_only_when_it_is_judged(tmp_path: Path, vetted: Vetted) -> None:
    for name in ("a", "b", "c", "d"):
        saved.keep(vetted(name), Host(name=name), tmp_path)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write((tmp_path / "d.json").read_bytes())
    files = [tmp_path / f"{name}.json" for name in ("a", "b", "c")]
    found = saved.read_saved([*files, Path(f"/dev/fd/{reader}")], Targets())
    os.close(reader)
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_bytes((tmp_path / "d.json").read_bytes())
    gone, other, there, piped = found.visits
    assert (gone.status, gone.host) == (Status.UNREADABLE, "a")
    assert "a.json: cannot be read: No such file" in gone.why
    assert (other.host, other.evidence) == ("b", None)
    assert other.why.endswith("it now belongs to d")
    assert (there.status, piped.status) == (Status.VETTED, Status.VETTED)


def test_limit_selects_saved_hosts_without_an_inventory(tmp_path: Path, vetted: Vetted) -> None:
    for name, group in (("a1", "rack1"), ("a2", "rack1"), ("b1", "rack2")):
        saved.keep(vetted(name), Host(name=name, groups=frozenset({group})), tmp_path)
    for limit, names in (("a1", ["a1"]), ("@rack1,!a2", ["a1"]), ("!@rack1", ["b1"])):
        found = saved.read_saved([tmp_path], Targets(limit=(limit,)))
        assert [host.name for host in found.hosts] == names
        assert [visit.host for visit in found.visits] == names
        assert found.left_out == ()
    with pytest.raises(InventoryError, match="c9 is not among the saved hosts; there are a"):
        saved.read_saved([tmp_path], Targets(limit=("c9",)))


def test_a_run_that_may_leave_out_hosts_says_so() -> None:
    assert Targets(limit=("a",)).narrowed and Targets(names=("a",)).narrowed
    assert not Targets(inventories=("x",)).narrowed


def test_values_that_the_probe_was_not_asked_for_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("nodevet: 1\nexpect: {sysctl: {vm.swappiness: 10}}\n")
    judged = open_context(tmp_path, [str(tmp_path / "b.yaml")])
    sections = {"sysctl": {"status": "ok", "data": {"parameters": []}}}
    document = json.dumps({"schema": 1, "probe": "", "sections": sections}).encode()
    visits = [Visit(name, Status.VETTED, evidence=document) for name in ("a", "b")]
    visits.append(Visit("c", Status.UNREACHABLE, "no route"))
    run = vet_saved([Host(name=name) for name in "abc"], visits, judged, fail_on=Severity.INFO)
    assert saved.not_asked(run) == ({"a", "b"}, {"sysctl vm.swappiness"})
    told = [one.advice for one in run.hosts[0].findings if one.check == "sysctl"]
    assert "visit the host again" in told[0]


def test_evidence_may_be_a_week_old_by_default() -> None:
    week, hour = saved.limit_of(None), saved.limit_of(3600)
    assert week and hour and (week.most, hour.most) == (7 * 86400, 3600)
    assert saved.limit_of(math.inf) is None


def test_a_saved_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("{}")
    with pytest.raises(earlier.SavedRunError, match="run: "):
        earlier.read_run(tmp_path / "run", most=1)


def test_an_unwritable_output_file_is_reported_in_advance(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        try_out(tmp_path / "none" / "file")
    with pytest.raises(FileError, match="it is a folder"):
        try_out(tmp_path)
    try_out(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def project(tmp_path: Path) -> VetContext:
    """A baseline that expects a power limit, and allows its fix."""
    text = "nodevet: 1\nexpect: {power_limit: 700}\nfix: [power_limit]\n"
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines/b.yaml").write_text(text)
    return open_context(tmp_path, ["b"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"now": True, "restart": True}, "--now and --restart"),
        ({"now": True}, "--now: no fix that may be planned has this option"),
        ({"fixes": ("gpu_clocks",)}, "no baseline of this run asks for gpu_clocks"),
        ({"author": "a b"}, "only letters, digits"),
        ({"rollout": {"reboot": True}}, "a reboot needs --drain-hook"),
        ({"rollout": {"batch": "0"}}, "batch"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_before_any_host(
    project: VetContext, tmp_path: Path, given: dict[str, Any], why: str
) -> None:
    request = replace(PlanRequest(author="ann"), **given)
    with pytest.raises(UserError, match=why):
        rules_of(request, project, tmp_path / "runs", FixListener())


def test_the_rules_of_a_plan_are_those_that_were_asked_for(
    project: VetContext, tmp_path: Path
) -> None:
    request = PlanRequest(author="ann", fixes=("power_limit",), max_risk=Risk.IDLE)
    rules = rules_of(request, project, tmp_path / "runs", FixListener())
    assert (rules.author, rules.fixes, rules.max_risk) == ("ann", {"power_limit"}, Risk.IDLE)
    assert rules.rollout(20).canary == 1


def test_the_sudo_user_is_the_author(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "bob")
    assert (author(None), author("ann")) == ("bob", "ann")


def test_a_rollback_accepts_only_hosts_of_its_run() -> None:
    everything = ("gpu1", "gpu2", "gpu[3]")
    assert chosen_hosts((), everything) == everything
    assert chosen_hosts(("gpu[1-2]",), everything) == ("gpu1", "gpu2")
    assert chosen_hosts(("gpu[3]",), everything) == ("gpu[3]",)
    with pytest.raises(UserError, match="gpu9: not in the plan, which is for gpu"):
        chosen_hosts(("gpu[1,9]",), everything)
    with pytest.raises(UserError, match="--host"):
        chosen_hosts(("gpu[1-",), everything)


def test_what_a_baseline_expects_is_reported_without_a_warning(tmp_path: Path) -> None:
    """A warning is an error here."""
    catalog, folders = open_project(tmp_path)
    for one in resolve(("nvidia-h100-sxm", "generic", "nvidia-t4"), folders, catalog):
        for check in catalog.ids:
            assert explained(check, catalog, [one]).expected[0].baseline == one.baseline.name
