"""The machine that answered is the one that was meant, or the run fails and says so."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nodevet.checking.identity import is_same_name, same_machine_reports
from nodevet.cli import nodevet as command_line
from nodevet.fleet import Options, Visit
from nodevet.model import Host, HostReport, Status
from nodevet.vet.formats import formats, jsonl

CHECK = '''"""A check."""
from nodevet.model import Check, CheckParams, ok

def judge(evidence, params):
    yield ok()

CHECK = Check(params=CheckParams, reads=(), judge=judge)
'''
MACHINE: dict[str, Any] = {"machine_id": "m", "boot_id": "b", "uptime_s": 9000.0}
Given = dict[str, dict[str, Any]]
Call = Callable[..., Result]


def document(gpus: Sequence[str] = (), **host: Any) -> bytes:
    """`gpus`: their UUIDs."""
    listed = [{"index": index, "uuid": uuid} for index, uuid in enumerate(gpus)]
    sections = {"host": {"status": "ok", "seconds": 0, "data": host}}
    if listed:
        sections["gpu"] = {"status": "ok", "seconds": 0, "data": {"gpus": listed}}
    return json.dumps({"schema": 1, "probe": "1", "sections": sections}).encode()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Given:
    """What answers under each name: the fields of the evidence's host section."""
    answers: Given = {}

    def tour(hosts: Sequence[Host], options: Options, until: float) -> Iterator[Visit]:
        for host in hosts:
            yield Visit(host.name, Status.VETTED, "", document(**answers[host.name]), 0.1)

    monkeypatch.setattr("nodevet.fleet.controller.dispatcher.dispatch", tour)
    return answers


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in a project whose only check is always ok."""
    for folder, name, text in (
        ("checks", "fine.py", CHECK),
        ("baselines", "site.yaml", "nodevet: 1\nexpect: {fine: {}}\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(command_line, [*arguments, "-b", "site"], catch_exceptions=False)

    return run


COMMANDS = (("check",), ("gate", "--wait", "0"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_d4_one_machine_under_two_names_fails_both_hosts(
    nodes: Given, call: Call, command: tuple[str, ...]
) -> None:
    nodes |= {
        "gpu001": MACHINE | {"hostname": "gpu001"},
        "gpu002": MACHINE | {"hostname": "gpu001"},
        "gpu003": {"machine_id": "m3", "boot_id": "b3", "hostname": "gpu003", "uptime_s": 9000.0},
    }
    files = [f"--format={name}:{name}" for name in formats() if name != "table"]
    done = call(*command, "gpu[001-003]", "--no-expect-hostname", *files, "--format=table")
    assert done.exit_code == 1, done.output
    assert "gpu001, gpu002 are one machine" in done.stdout
    assert "2 fail" in done.stdout
    for name in formats():
        if name in ("table", "prometheus"):
            continue
        assert "gpu001, gpu002 are one machine" in Path(name).read_text(), name
    metrics = Path("prometheus").read_text()
    for host, rank in (("gpu001", 4), ("gpu002", 4), ("gpu003", 0)):
        assert f'nodevet_host_verdict{{host="{host}"}} {rank}' in metrics
    run, notes = jsonl.parse(Path("jsonl").read_bytes())
    assert notes == ()
    assert run.hosts == json_hosts(Path("json"))
    assert run.exit_code == 1


def json_hosts(path: Path) -> tuple[HostReport, ...]:
    from nodevet.vet.formats import json as form

    return form.parse(path.read_bytes()).hosts


def test_d4_saved_evidence_of_one_machine_under_two_names_fails_both(
    nodes: Given, call: Call
) -> None:
    nodes |= {name: MACHINE | {"hostname": "gpu001"} for name in ("gpu001", "gpu002")}
    assert call("check", "gpu[001-002]", "--save", "kept").exit_code == 1
    again = call("check", "--evidence", "kept", "--all", "--format", "json")
    hosts = json.loads(again.stdout)["hosts"]
    told = [[finding["check"] for finding in host["findings"]] for host in hosts]
    assert told == [["host_identity", "fine"], ["host_identity", "hostname", "fine"]]
    assert again.exit_code == 1


GPU = "GPU-5e7a1c90-44b1-4d7e-9c11-2f6d03a8b7e4"
OTHER = "GPU-0b9d2f34-1c6e-4a58-8f07-7733a1ce52d9"


@pytest.mark.parametrize(
    "other",
    [
        {"machine_id": "m", "boot_id": "another"},  # a clone
        {"machine_id": "another", "boot_id": "b"},  # a container of the same kernel
        {"machine_id": "m", "gpus": [OTHER]},
        {"boot_id": "b", "gpus": [OTHER]},  # a container without a machine id
        {"machine_id": "another"},
        {},
    ],
)
def test_d4_hosts_with_differing_ids_do_not_count_as_one_machine(
    nodes: Given, call: Call, other: dict[str, Any]
) -> None:
    nodes |= {
        "gpu001": MACHINE | {"hostname": "gpu001", "gpus": [GPU]},
        "gpu002": other | {"hostname": "gpu002"},
    }
    assert call("check", "gpu[001-002]").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ({"boot_id": "b"}, {"boot_id": "b"}, "the same boot id"),
        ({"machine_id": "m", "boot_id": "b"}, {"boot_id": "b"}, "the same boot id"),
        (
            {"machine_id": "uninitialized", "boot_id": "b"},
            {"machine_id": "m", "boot_id": "b"},
            "the same boot id",
        ),
        ({"gpus": [GPU]}, {"gpus": [GPU]}, f"{GPU} in common"),
        (
            {"machine_id": "m", "gpus": [GPU]},
            {"machine_id": "m", "gpus": [OTHER, GPU]},
            f"the same machine id, {GPU} in common",
        ),
        (
            {"machine_id": "m", "boot_id": "b", "gpus": [GPU, OTHER]},
            {"machine_id": "m2", "boot_id": "b", "gpus": [GPU, OTHER]},
            "the same boot id, 2 GPUs in common",
        ),
    ],
)
def test_e07_one_machine_under_two_addresses_is_seen_by_any_id(
    nodes: Given,
    call: Call,
    one: dict[str, Any],
    other: dict[str, Any],
    shared: str,
    command: tuple[str, ...],
) -> None:
    names = {"uptime_s": 9000.0, "hostname": "gpu001"}
    nodes |= {"gpu001": one | names, "gpu002": other | names}
    done = call(*command, "gpu[001-002]", "--no-expect-hostname", "--format", "json")
    hosts = json.loads(done.stdout)["hosts"]
    told = [(each["check"], each["verdict"], each["why"]) for each in map(first, hosts)]
    assert told == [("host_identity", "fail", f"gpu001, gpu002 are one machine: {shared}")] * 2
    assert done.exit_code == 1


def first(host: dict[str, Any]) -> dict[str, Any]:
    return {"why": "", **host["findings"][0]}


@pytest.mark.parametrize("gpus", [{}, {"gpus": [GPU]}], ids=["no GPU read", "one has GPUs"])
def test_e07_a_machine_id_shared_with_a_host_without_a_boot_id_is_unknown(
    nodes: Given, call: Call, gpus: dict[str, Any]
) -> None:
    nodes |= {
        "gpu001": MACHINE | {"hostname": "gpu001"} | gpus,
        "gpu002": {"machine_id": "m", "hostname": "gpu002"},
        "gpu003": {"machine_id": "m", "boot_id": "b3", "hostname": "gpu003"},
    }
    done = call("check", "gpu[001-003]", "--all", "--format", "json")
    verdicts = [(first(each)["check"], first(each)["verdict"]) for each in hosts_of(done)]
    assert verdicts == [("fine", "ok"), ("host_identity", "unknown"), ("fine", "ok")]
    assert "machine id as gpu001, gpu003" in done.stdout
    assert done.exit_code == 3


def hosts_of(done: Result) -> list[dict[str, Any]]:
    hosts: list[dict[str, Any]] = json.loads(done.stdout)["hosts"]
    return hosts


@pytest.mark.parametrize("uuid", ["GPU-00000001-0000-0000-0000-000000000001", "N/A", ""])
def test_e07_a_uuid_that_is_a_placeholder_proves_nothing(
    nodes: Given, call: Call, uuid: str
) -> None:
    nodes |= {name: {"hostname": name, "gpus": [uuid]} for name in ("gpu001", "gpu002")}
    assert call("check", "gpu[001-002]").exit_code == 0


def test_e07_hosts_linked_by_a_chain_of_shared_ids_are_one_machine() -> None:
    reports = {
        "a": HostReport(host="a", status=Status.VETTED, machine_id="m", boot_id="b"),
        "b": HostReport(host="b", status=Status.VETTED, boot_id="b", gpu_uuids=(GPU,)),
        "c": HostReport(host="c", status=Status.VETTED, boot_id="b9", gpu_uuids=(OTHER, GPU)),
        "d": HostReport(host="d", status=Status.VETTED, machine_id="m", boot_id="b7"),
    }
    found = [*same_machine_reports(reports.values(), reports.get)]
    assert [report.host for report in found] == ["a", "b", "c"]
    (why,) = {report.findings[0].why for report in found}
    assert why == f"a, b, c are one machine: the same boot id, {GPU} in common"


def test_d4_a_machine_with_many_names_is_reported_with_a_few_of_them() -> None:
    reports = {
        name: HostReport(host=name, status=Status.VETTED, machine_id="m", boot_id="b")
        for name in (f"n{number}" for number in range(500))
    }
    final = [*same_machine_reports(reports.values(), reports.get)]
    assert [report.host for report in final] == [*reports]
    (why,) = {finding.why for report in final for finding in report.findings}
    assert why == (
        "n0, n1, n10, n100, n101, n102, n103, n104 and 492 more are one machine: "
        "the same machine id and boot id"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_d4_a_hostname_other_than_in_the_inventory_fails(
    nodes: Given, call: Call, command: tuple[str, ...]
) -> None:
    nodes["gpu002"] = MACHINE | {"hostname": "gpu001"}
    done = call(*command, "gpu002", "--advice", "--format=table", "--format=json:run")
    assert done.exit_code == 1
    assert "hostname  gpu001, expected gpu002" in done.stdout
    for word in ("DNS", "HostName", "expect_hostname: false", "--no-expect-hostname"):
        assert word in done.stdout
    assert call(*command, "gpu002", "--no-expect-hostname").exit_code == 0


@pytest.mark.parametrize(
    ("name", "hostname", "code"),
    [
        ("gpu001", "GPU001", 0),
        ("gpu001", "gpu001.example.com", 0),
        ("gpu001.mgmt.example.com", "gpu001", 0),
        ("gpu001.mgmt.example.com", "gpu001.example.com", 0),
        ("gpu001", "gpu0012", 1),
        ("gpu001", "gpu001-a", 1),
        ("gpu001", "ip-10-0-0-1", 1),
        ("10.0.0.1", "gpu001", 0),
        ("10.1", "gpu001", 0),
        ("fd00::7", "gpu001", 0),
        ("localhost", "gpu001", 0),
        ("gpu001", "localhost", 3),
        ("gpu001", "(none)", 3),
        ("gpu001", "", 3),
        ("gpu001", None, 3),
    ],
)
def test_d4_case_and_domain_of_a_hostname_may_differ_from_the_inventory(
    nodes: Given, call: Call, name: str, hostname: str | None, code: int
) -> None:
    nodes[name] = MACHINE | {"hostname": hostname}
    done = call("check", name)
    assert done.exit_code == code, done.output
    assert call("check", name, "--no-expect-hostname").exit_code == 0


def test_d4_this_machine_and_captures_may_have_any_hostname(nodes: Given, call: Call) -> None:
    Path("fleet.yaml").write_text(
        "nodevet: 1\nhosts:\n  capture1: {root: /captures/1}\n  '@local':\n"
    )
    nodes["capture1"] = {"hostname": "dgx-17"}
    from socket import gethostname

    nodes[gethostname()] = {"hostname": "another"}
    assert call("check", "-i", "fleet.yaml", "--save", "kept").exit_code == 0
    assert call("check", "--evidence", "kept").exit_code == 0


YAML = """\
nodevet: 1
defaults: {expect_hostname: false}
hosts:
  gpu001:
  gpu002: {expect_hostname: true}
  gpu003: {expect_hostname: ip-10-0-0-3}
  gpu004: {expect_hostname: ip-10-0-0-3.dc2}
groups:
  cloud: {hosts: gpu005, expect_hostname: true}
"""
PYINFRA = """\
all = (["gpu001",
    ("gpu002", {"nodevet_expect_hostname": True}),
    ("gpu003", {"nodevet_expect_hostname": "ip-10-0-0-3"}),
    ("gpu004", {"nodevet_expect_hostname": "ip-10-0-0-3.dc2"}),
], {"nodevet_expect_hostname": False})
"""
ANSIBLE = json.dumps(
    {
        "_meta": {
            "hostvars": {
                "gpu002": {"nodevet_expect_hostname": "True"},
                "gpu003": {"nodevet_expect_hostname": "ip-10-0-0-3"},
                "gpu004": {"nodevet_expect_hostname": "ip-10-0-0-3.dc2"},
            }
        },
        "all": {
            "hosts": ["gpu001", "gpu002", "gpu003", "gpu004"],
            "vars": {"nodevet_expect_hostname": "no"},
        },
    }
)


@pytest.mark.parametrize(
    ("file", "text"), [("x.yaml", YAML), ("x.py", PYINFRA), ("x.json", ANSIBLE)]
)
def test_d4_an_inventory_says_which_host_name_is_expected(
    nodes: Given, call: Call, file: str, text: str
) -> None:
    Path(file).write_text(text)
    for number in range(1, 6):
        nodes[f"gpu00{number}"] = {"hostname": "ip-10-0-0-3.dc1"}
    done = call("check", "-i", file, "--format", "json")
    wrong = {
        host["host"]
        for host in json.loads(done.stdout)["hosts"]
        if any(finding["verdict"] == "fail" for finding in host["findings"])
    }
    assert wrong - {"gpu005"} == {"gpu002", "gpu004"}
    assert ("gpu005" in wrong) is (file == "x.yaml")


@pytest.mark.parametrize("value", ["3", "[a]", "'a b'", "'-x'"])
def test_d4_an_invalid_host_name_is_reported_with_its_place(call: Call, value: str) -> None:
    from nodevet.inventory import InventoryError

    Path("fleet.yaml").write_text(f"nodevet: 1\nhosts:\n  gpu001: {{expect_hostname: {value}}}\n")
    with pytest.raises(InventoryError, match=r"fleet\.yaml:3:\d+: .*must be true, false or"):
        call("check", "-i", "fleet.yaml")


def test_d4_labels_are_compared_whole() -> None:
    assert not is_same_name("gpu1", "gpu10", exact=False)
    assert is_same_name("gpu1.a.", "GPU1.A", exact=True)


def test_d4_explain_says_that_another_machine_may_have_answered(nodes: Given, call: Call) -> None:
    nodes["gpu002"] = MACHINE | {"hostname": "gpu001\x1b[2K"}
    Path("baselines/other.yaml").write_text(
        "nodevet: 1\napplies: {hosts: gpu002}\nexpect: {fine: {}}\n"
    )
    done = call("explain", "fine", "--host", "gpu002", "-b", "other")
    assert "gpu002: its host name is gpu001\\x1b[2K, not gpu002" in done.stderr
