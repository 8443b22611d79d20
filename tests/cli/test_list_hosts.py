"""`nodevet list hosts`: hosts by their words and by their verdicts, for other programs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
import recorded
from click.testing import CliRunner
from msgspec import json as msgspec_json

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.cli import nodevet
from nodevet.model.run import Run
from nodevet.store import open_store

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"
Listed = Callable[..., str]
FLEET = """\
nodevet: 1
hosts:
  gpu[001-005]: {user: ops}
groups:
  rack1: {hosts: "gpu[001-003]"}
"""
REPORTS = (
    recorded.report("gpu001"),
    recorded.report("gpu002", {"governor": "fail", "swap": "fail", "smt": "unknown"}),
    recorded.report("gpu003", {"governor": "waived"}),
    recorded.unreachable("gpu004"),
)
STARTED = datetime.now(timezone.utc) - timedelta(hours=1)


def saved(folder: Path, **rest: object) -> str:
    fields = {"id": "20261128T000000.000Z-0000000a", "nodevet": "1", "seconds": 1.0}
    run = Run(**{**fields, "started": STARTED.isoformat(), "hosts": REPORTS, **rest})
    (folder / "last.json").write_bytes(msgspec_json.encode(run))
    return str(folder / "last.json")


def kept(folder: Path) -> str:
    url = f"sqlite:///{folder}/store.sqlite"
    begun = recorded.run(0, hosts=len(REPORTS), started=STARTED.isoformat())
    with open_store(url) as store:
        recorder = store.begin(begun)
        for report in REPORTS:
            recorder.take(report, None)
        recorder.finish(recorded.ended(begun, hosts=len(REPORTS)))
    return url


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listed:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)

    def run(*words: str) -> str:
        done = CliRunner().invoke(nodevet, ["list", "hosts", *words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.mark.parametrize("place", ["file", "store"])
@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["--ok"], "gpu[001,003]\n"),
        (["--failing"], "gpu002\n"),
        (["--unknown"], "gpu004\n"),
        (["--failing", "--unknown"], "gpu[002,004]\n"),
        ([], "gpu[001-004]\n"),
        (["-i", "fleet.yaml", "--unknown"], "gpu[004-005]\n"),
        (["-i", "fleet.yaml", "@rack1", "--failing"], "gpu002\n"),
        (["--limit", "@rack1!gpu001", "--ok"], "gpu003\n"),
        (["-i", "fleet.yaml", "gpu005", "--ok"], ""),
    ],
)
def test_hosts_by_their_verdicts(
    listed: Listed, tmp_path: Path, place: str, words: list[str], hosts: str
) -> None:
    source = [saved(tmp_path)] if place == "file" else ["last", "--store", kept(tmp_path)]
    assert listed("--format", "nodeset", *words, "--from", *source) == hosts


def test_a_table_shows_what_fails(listed: Listed, tmp_path: Path) -> None:
    shown = [line.split() for line in listed("--from", saved(tmp_path)).splitlines()]
    assert shown[:2] == [
        ["gpu001", "rack1", "ok"],
        ["gpu002", "rack1", "failing", "governor,", "swap"],
    ]


def test_list_hosts_json_matches_its_schema(listed: Listed, tmp_path: Path) -> None:
    schema = kinds()["hosts"].schema(Project())
    words = ["-i", "fleet.yaml", "--format", "json"]
    plain, judged = listed(*words), listed(*words, "--from", saved(tmp_path))
    for text in (plain, judged):
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert "verdict" not in plain
    hosts = {host["name"]: host for host in json.loads(judged)["hosts"]}
    assert hosts["gpu002"]["failing"] == ["governor", "swap"]
    assert (hosts["gpu005"]["verdict"], hosts["gpu005"]["outcome"]) == ("unknown", None)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": 1, "hosts": [{"name": 1}]}, schema)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "old.json"], "--from old.json: the run is 2 d old; vet the hosts again"),
        (["--from", "some.json", "--ok"], "the run did not judge all checks (--only or --skip)"),
        (["--from", "replayed.json", "--ok"], "the run judged saved evidence"),
        (
            ["--from", "future.json"],
            "--from future.json: the run is of the future: a clock is wrong",
        ),
        (["--from", "named.json"], "--from named.json: {{x}}: not a host name"),
        (["--from", "none.json"], "no run has been recorded"),
    ],
)
def test_old_partial_replayed_and_future_runs_are_refused(
    listed: Listed, tmp_path: Path, words: list[str], message: str
) -> None:
    made = {
        "old": {"started": (STARTED - timedelta(days=2)).isoformat()},
        "some": {"only": ("swap",)},
        "replayed": {"replayed": True},
        "future": {"started": (STARTED + timedelta(days=2)).isoformat()},
        "named": {"hosts": (recorded.report("{{x}}"),)},
    }
    for name, fields in made.items():
        Path(saved(tmp_path, **fields)).rename(tmp_path / f"{name}.json")
    with pytest.raises(UserError, match=re.escape(message)):
        listed(*words)


@pytest.mark.parametrize("rest", [{"only": ("swap",)}, {"skip": ("smt",)}, {"replayed": True}])
def test_no_host_of_a_partial_run_is_ok(
    listed: Listed, tmp_path: Path, rest: dict[str, object]
) -> None:
    source = ["--from", saved(tmp_path, **rest)]
    document = json.loads(listed(*source, "--format", "ansible"))
    assert document["nodevet_ok"] == {"hosts": []}
    assert document["nodevet_failing"] == {"hosts": ["gpu002"]}
    hosts = json.loads(listed(*source, "--format", "json"))["hosts"]
    assert [host["verdict"] for host in hosts] == ["unknown", "failing", "unknown", "unknown"]
    assert listed(*source, "--unknown", "--format", "nodeset") == "gpu[001,003-004]\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hosts", "--ok"], "--ok, --failing and --unknown need --from RUN"),
        (["checks", "--format", "ansible"], "are for `nodevet list hosts` only"),
        (["checks", "--from", "last"], "are for `nodevet list hosts` only"),
    ],
)
def test_options_that_need_hosts_or_a_run(words: list[str], message: str) -> None:
    done = CliRunner().invoke(nodevet, ["list", *words])
    assert done.exit_code == 2 and message in done.output


def test_verdict_groups_of_an_earlier_list_do_not_count(listed: Listed, tmp_path: Path) -> None:
    (tmp_path / "stale.yaml").write_text(
        "nodevet: 1\nhosts: gpu002\ngroups: {nodevet_ok: {hosts: gpu002}}\n"
    )
    text = listed("-i", "stale.yaml", "--from", saved(tmp_path), "--format", "ansible")
    document = json.loads(text)
    assert document["nodevet_ok"] == {"hosts": []}
    assert document["nodevet_failing"] == {"hosts": ["gpu002"]}


MESSAGE = "{{ inventory_hostname }} {{ ansible_user }} {{ nodevet_failing | join(' ') }}"
PLAYBOOK = f"""\
- hosts: nodevet_failing:&nodevet_fails_swap
  gather_facts: false
  connection: local
  tasks:
    - debug:
        msg: "{MESSAGE} {{{{ groups.nodevet_ok | length }}}}"
"""


@pytest.mark.timeout(300)
def test_ansible_runs_a_script_that_lists_hosts(listed: Listed, tmp_path: Path) -> None:
    script = tmp_path / "wrong-hosts"
    words = f"list hosts -i fleet.yaml --from {saved(tmp_path)} --format ansible"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m nodevet {words}\n")
    script.chmod(0o755)
    (tmp_path / "playbook.yaml").write_text(PLAYBOOK)
    done = subprocess.run(
        [ANSIBLE, "-i", script, "playbook.yaml"],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")},
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"msg": "gpu002 ops governor swap 2"' in done.stdout
    assert done.stdout.count('"msg"') == 1
