"""The Ansible collection: its verdicts are those of nodevet, and its modules run in real playbooks.

`make collection-lint` runs ansible-lint and the sanity tests of ansible-test, which take minutes.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from nodevet import __version__
from nodevet.model import CountedFindings, Finding, HostReport, Severity, Status, Verdict
from nodevet.model.run import RUN_SCHEMA, exit_code

REPO = Path(__file__).parents[2]
COLLECTION = REPO / "integrations" / "ansible_collections" / "nodevet" / "nodevet"
ANSIBLE = Path(sys.executable).parent


def shared() -> Any:
    """What the modules share, which needs no Ansible."""
    spec = importlib.util.spec_from_file_location(
        "collection_run", COLLECTION / "plugins" / "module_utils" / "run.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN = shared()
SEVERITIES = st.sampled_from([each for each in Severity if each is not Severity.SHADOW])
FINDINGS = st.builds(
    Finding,
    verdict=st.sampled_from(Verdict),
    check=st.sampled_from(["xid", "swap"]),
    severity=SEVERITIES,
)
COUNTED = st.builds(
    CountedFindings,
    check=st.just("smt"),
    verdict=st.sampled_from([Verdict.OK, Verdict.NOT_APPLICABLE]),
    severity=st.sampled_from(Severity),
    count=st.just(3),
)
REPORTS = st.builds(
    HostReport,
    host=st.just("gpu1"),
    status=st.sampled_from([Status.VETTED, Status.VETTED, Status.VETTED, Status.TIMEOUT]),
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
    counted=st.lists(COUNTED, max_size=2).map(tuple),
)
CODES = {0: "ok", 1: "failing", 3: "unknown"}


@given(REPORTS, SEVERITIES)
def test_the_ansible_verdict_of_a_host_matches_the_exit_code(
    report: HostReport, fail_on: Severity
) -> None:
    if report.status is not Status.VETTED:
        report = HostReport(host="gpu1", status=report.status)
    expected = CODES[exit_code([report], fail_on)]
    assert RUN.host_result(to_builtins(report), fail_on.value)["verdict"] == expected


def document(**rest: Any) -> dict[str, Any]:
    report = HostReport(
        host="gpu1", status=Status.VETTED, findings=(Finding(verdict=Verdict.OK, check="swap"),)
    )
    return {"schema": RUN_SCHEMA, "id": "1", "hosts": [to_builtins(report)], **rest}


def test_no_run_is_ok_unless_nodevet_says_so() -> None:
    assert RUN.result_of(document(), "warning", 0)["verdict"] == "ok"
    assert RUN.result_of(document(), "warning", 3)["verdict"] == "unknown"
    assert RUN.result_of(document(), "never", 3)["verdict"] == "unknown"
    assert RUN.result_of(document(hosts=[]), "warning", 0)["verdict"] == "unknown"
    with pytest.raises(ValueError, match="schema 4, not 3"):
        RUN.result_of(document(schema=4), "warning", 0)


def test_hosts_are_never_options() -> None:
    params = {name: spec.get("default") for name, spec in RUN.ARGUMENTS.items()}
    params |= {"hosts": ["--version"], "inventory": ["a.ini", "b.yml"], "wait": "5m"}
    assert RUN.command_line(params, "gate", ("wait",)) == [
        *("nodevet", "gate", "--format", "json", "--fail-on", "warning", "--inventory", "a.ini"),
        *("--inventory", "b.yml", "--wait", "5m", "--", "--version"),
    ]


def test_the_collection_has_the_version_of_nodevet() -> None:
    galaxy = yaml.safe_load((COLLECTION / "galaxy.yml").read_text())
    assert galaxy["version"] == __version__
    added = [
        re.search(r"^version_added: (.*)$", path.read_text(), re.M)
        for path in (COLLECTION / "plugins" / "modules").glob("*.py")
    ]
    assert len(added) == 2 and all(added)


PLAYBOOK: list[Mapping[str, Any]] = [
    {"ansible.builtin.import_playbook": "nodevet.nodevet.vet"},
    {
        "hosts": "nodevet_ok",
        "gather_facts": False,
        "module_defaults": {"group/nodevet.nodevet.nodevet": {"hosts": "@local", "store": "none"}},
        "tasks": [
            {
                "nodevet.nodevet.check": {"baseline": "bad.yaml"},
                "register": "bad",
                "ignore_errors": True,
            },
            {
                "nodevet.nodevet.gate": {"baseline": "bad.yaml", "wait": "0s", "fail_on": "never"},
                "register": "gated",
            },
            {"nodevet.nodevet.check": {"hosts": []}, "register": "no_one", "ignore_errors": True},
            {
                "ansible.builtin.copy": {
                    "dest": "results.json",
                    "content": "{{ [vet_result, bad, gated, nodevet, no_one] | to_json }}",
                },
                "check_mode": False,
            },
        ],
    },
]


@pytest.mark.timeout(300)
def test_a_playbook_vets_this_machine_in_check_mode(tmp_path: Path) -> None:
    for name, value in (("good", "Linux"), ("bad", "{{ lookup('pipe', 'touch evaluated') }}")):
        expect = {"sysctl": {"kernel.ostype": value}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"nodevet": 1, "expect": expect}))
    (tmp_path / "play.yaml").write_text(yaml.safe_dump(PLAYBOOK))
    (tmp_path / "hosts.yml").write_text("gpu: {hosts: {here: {ansible_connection: local}}}\n")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPO / "integrations"),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "PATH": f"{ANSIBLE}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ANSIBLE / "ansible-playbook", "--check", "-i", "hosts.yml", "play.yaml",
         "-e", f"ansible_python_interpreter={sys.executable} baseline={tmp_path}/good.yaml"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    good, bad, gated, fact, no_one = json.loads((tmp_path / "results.json").read_text())
    assert (good["verdict"], good["changed"], good["exit_code"]) == ("ok", False, 0)
    assert (bad["verdict"], bad["failed"], bad["failing"]) == ("failing", True, ["sysctl"])
    assert good["hosts"]["here"]["verdict"] == "ok"
    assert fact["verdict"] == "failing" and fact["run"] == gated["run"]
    ((_, host),) = bad["hosts"].items()
    assert host["findings"][0]["actual"] == "Linux"
    assert (gated["verdict"], gated["failed"], gated["exit_code"]) == ("failing", False, 1)
    assert no_one["failed"] and "hosts" in no_one["msg"]
    assert not (tmp_path / "evaluated").exists()
