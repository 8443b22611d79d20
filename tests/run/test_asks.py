"""What baselines name reaches the probe, and what it was not asked for is never ok."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.fleet import Options
from nodevet.fleet.controller.shards import orders
from nodevet.fleet.protocol import framing
from nodevet.fleet.worker.batch import probe_request
from nodevet.model import Host
from nodevet.remote.probe.sections import declaration, names
from nodevet.remote.probe.settle import NEEDED
from nodevet.vet.use.asks import ALWAYS, TO_CHANGE, AskError, asks, asks_each
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.reach import (
    fixed_alone,
    fleet_options,
    judged_alone,
    planned_alone,
    reverted_alone,
)

Write = Callable[..., VetContext]

BASELINE = """\
nodevet: 1
expect:
  sysctl: {kernel.ostype: Linux, kernel.osrelease: "0"}
  services: {running: [nvidia-persistenced.service]}
"""
OWN = """\
from nodevet.model import Check, CheckParams, unknown

def judge(evidence, params):
    yield unknown(why="never asked")

CHECK = Check(params=CheckParams, reads=(), judge=judge, asks=lambda params: ANSWER)
"""


@pytest.fixture
def context(tmp_path: Path) -> Write:
    """The context of a project with these baselines and, of `own`, what its check asks for."""

    def write(*expectations: dict[str, Any], own: str = "{}") -> VetContext:
        for folder in ("baselines", "checks"):
            (tmp_path / folder).mkdir()
        (tmp_path / "checks/own.py").write_text(OWN.replace("ANSWER", own))
        for number, expect in enumerate(expectations):
            text = json.dumps({"nodevet": 1, "expect": expect})
            (tmp_path / f"baselines/b{number}.yaml").write_text(text)
        return open_context(tmp_path, [])

    return write


@pytest.mark.parametrize("section", ["commands", "framework", "loader"])
def test_a_check_that_runs_commands_needs_a_baseline_that_allows_them(
    context: Write, section: str
) -> None:
    with pytest.raises(AskError, match="runs commands, which this baseline does not allow"):
        asks(context({"own": {}}, own=f"{{{section!r}: ({{'name': 'x'}},)}}"))


def test_the_probe_request_merges_what_every_baseline_asks_for(context: Write) -> None:
    found = asks(
        context(
            {"sysctl": {"vm.swappiness": 1}, "swap": "none"},
            {"sysctl": {"kernel.numa_balancing": 0, "vm.swappiness": {"maximum": 9}}},
            {"services": {"running": ["b.service"], "disabled": ["a.timer"]}},
            {"own": {}},
            own='{"sysctl": ("kernel.ostype",)}',
        )
    )
    assert found == {
        "services": ("a.timer", "b.service"),
        "sysctl": ("kernel.numa_balancing", "kernel.ostype", "vm.swappiness"),
    }


def test_a_check_does_not_ask_for_what_only_a_plan_reads(context: Write) -> None:
    driver = context({"driver_version": "570.86.15"})
    assert asks(driver) == {}
    assert asks(driver, fixes=True) == {"packages": ("570.86.15",)}


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("1 / 0", "own.py: asks failed: ZeroDivisionError"),
        ("params", "own.py: asks failed: ValidationError"),
        ('{"sysctl": "vm.swappiness"}', "own.py: asks failed: ValidationError"),
        ('{"sysctl": ("",)}', "own.py: asks failed: ValidationError"),
        ('{"sysctl": ["a." + str(n) for n in range(501)]}', "name 501 kernel parameters"),
    ],
)
def test_invalid_requests_of_a_check_are_refused(context: Write, own: str, words: str) -> None:
    with pytest.raises(AskError, match=words):
        asks(context({"own": {}}, own=own))


def test_an_order_keeps_its_probe_request_when_sent_to_a_worker() -> None:
    told = {"sysctl": ("vm.swappiness",), "services": ("a.service",)}
    (order,) = orders([Host(name="gpu1")], Options(asks=told), 1)
    (again,) = framing.read_order(framing.read_frame(framing.write_order(order))).asks
    assert {section: tuple(names) for section, names in again.items()} == told


def test_the_probe_request_lists_the_sections_to_read(tmp_path: Path) -> None:
    options = judged_alone(Options(), open_context(tmp_path, ["generic"]))
    (order,) = orders([Host(name="gpu1")], options, 1)
    order = framing.read_order(framing.read_frame(framing.write_order(order)))
    told = json.loads(probe_request(order, order.targets[0], "n"))["sections"]
    assert tuple(told) == options.sections
    assert "kernel_log" in told and "network" not in told


@pytest.fixture
def several(tmp_path: Path) -> VetContext:
    """Baselines for a host, for a group, for a GPU, and for none in particular."""
    (tmp_path / "baselines").mkdir()
    for name, applies in (
        ("host", {"hosts": "gpu1"}),
        ("group", {"groups": ["rack1"]}),
        ("gpu", {"gpu": {"device": "10de:2330"}}),
        ("both", {"hosts": "gpu[2-3]", "groups": ["rack2"]}),
        ("other", None),
    ):
        expect = {
            "command": {name: {"run": ["true", name]}},
            "file": {name: {"path": f"/{name}", "exists": True}},
        }
        text = {"nodevet": 1, "allow_commands": True, "expect": expect}
        text |= {"applies": applies} if applies else {}
        (tmp_path / f"baselines/{name}.yaml").write_text(json.dumps(text))
    return open_context(tmp_path, [])


HOSTS = {
    "gpu1": ({"rack1"}, {"gpu", "group", "host", "other"}),
    "gpu2": ({"rack1", "rack2"}, {"both", "gpu", "group", "other"}),
    "gpu3": (set(), {"gpu", "other"}),
    "gpu4": ({"rack2"}, {"gpu", "other"}),
}


def named(asked: Any) -> tuple[set[str], set[str]]:
    commands = {each["run"][1] for each in asked.get("commands", ())}
    return commands, {each["path"].strip("/") for each in asked.get("files", ())}


def test_a_host_is_asked_only_what_its_possible_baselines_need(
    several: VetContext,
) -> None:
    hosts = [Host(name=name, groups=frozenset(groups)) for name, (groups, _) in HOSTS.items()]
    reached = {"parallel": 1, "connect_timeout": 1, "deadline": 60, "ssh_config": None}
    reached |= {"known_hosts": None, "accept_new": False, "sudo": False}
    options = fleet_options(**reached, context=several, choosing=True)
    for order in orders(hosts, options, 2):
        again = framing.read_order(framing.read_frame(framing.write_order(order)))
        for target in again.targets:
            wanted = HOSTS[target.name][1]
            sent = json.loads(probe_request(again, target, "0" * 16).decode())
            assert named(sent["asks"]) == (wanted, wanted), target.name
    every = {"both", "gpu", "group", "host", "other"}
    assert named(fleet_options(**reached, context=several).asks_for(hosts[0])) == (every, every)


def test_one_baseline_for_all_hosts_asks_for_all_its_sections(several: VetContext) -> None:
    one = open_context(Path(several.baselines[0].path).parents[1], ["host"])
    assert named(asks_each(one)(Host(name="gpu9"))) == ({"host"}, {"host"})


def test_hosts_with_the_same_probe_request_share_one_object(several: VetContext) -> None:
    asked = asks_each(several)
    assert asked(Host(name="a")) is asked(Host(name="b"))
    hosts = [Host(name=f"h{number}") for number in range(300)]
    for order in orders(hosts, Options(asks_each=asked), 3):
        assert len(order.asks) == 1 and {target.asks for target in order.targets} == {0}


def test_an_invalid_request_is_reported_before_any_host_is_visited(context: Write) -> None:
    with pytest.raises(AskError):
        asks_each(context({"own": {}}, own="1 / 0"))


def nodevet(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "nodevet", *arguments, "--all", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    (host,) = json.loads(done.stdout)["hosts"]
    return [
        (found["subject"]["id"], found["verdict"], found.get("why", ""))
        for found in host["findings"]
    ]


def test_saved_evidence_gives_the_findings_of_the_live_run(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(BASELINE)
    (tmp_path / "more.yaml").write_text(BASELINE.replace("kernel.osrelease", "kernel.version"))
    live = nodevet(tmp_path, "check", "@local", "-b", "node.yaml", "--save", "kept")
    assert live[:2] == [("kernel.ostype", "ok", ""), ("kernel.osrelease", "fail", "")]
    assert (
        live[2][:2] == ("nvidia-persistenced.service", "unknown")
        or Path("/run/systemd/system").is_dir()
    )
    assert nodevet(tmp_path, "check", "--evidence", "kept", "-b", "node.yaml") == live
    later = nodevet(tmp_path, "check", "--evidence", "kept", "-b", "more.yaml")
    assert later[:2] == [
        ("kernel.ostype", "ok", ""),
        ("kernel.version", "unknown", "the probe was not asked for it"),
    ]


def test_the_probe_of_this_machine_reads_only_what_the_chosen_baseline_judges(
    tmp_path: Path,
) -> None:
    def read(*names: str) -> set[str]:
        return set(judged_alone(Options(), open_context(tmp_path, names)).sections)

    assert read("generic") >= {"host", "gpu", "pci", "memory", "modules", "kernel_log"}
    assert not read("generic") & {"network", "processes", "slurm", "numa"}
    assert read() == read("generic", "nvidia-h100-sxm") == set()  # the evidence chooses one


def test_a_user_defined_check_may_read_every_section(context: Write, tmp_path: Path) -> None:
    context({"own": {}})
    assert judged_alone(Options(), open_context(tmp_path, ["b0"])).sections == ()


def test_a_run_of_fixes_reads_what_its_checks_and_fixes_need(tmp_path: Path) -> None:
    expect = {"power_limit": 700, "persistence_mode": True, "clocksource": {"one_of": ["tsc"]}}
    for folder in ("baselines", "fixes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "baselines/b.yaml").write_text(json.dumps({"nodevet": 1, "expect": expect}))
    context = open_context(tmp_path, ["b"])

    def read(options: Options) -> set[str]:
        return set(options.sections)

    assert read(planned_alone(Options(), context)) == TO_CHANGE | {"services", "kernel", "bmc"}
    assert read(fixed_alone(Options(), context, {"persistence_mode"})) == TO_CHANGE | {"services"}
    assert read(fixed_alone(Options(), context, {"power_limit"})) == TO_CHANGE | {"bmc"}
    assert read(reverted_alone(Options())) == TO_CHANGE
    assert read(planned_alone(Options(), open_context(tmp_path, []))) == set()  # any may be chosen

    (tmp_path / "fixes/clocksource.py").write_text("")  # what it reads is not known
    context = open_context(tmp_path, ["b"])
    assert read(planned_alone(Options(), context)) == set()
    assert read(fixed_alone(Options(), context, {"clocksource"})) == set()
    assert read(fixed_alone(Options(), context, {"power_limit"})) == TO_CHANGE | {"bmc"}


def test_every_check_also_reads_the_sections_that_its_own_sections_need() -> None:
    needs = {name: set(declaration(name, "AFTER", ())) for name in names()}
    catalog = Catalog()
    for check in catalog.ids:
        read = ALWAYS | catalog.check(check).sections
        assert all(needs[section] <= read for section in read), check
    assert any(needs.values())
    assert set(NEEDED) <= ALWAYS  # whether a node has finished booting
