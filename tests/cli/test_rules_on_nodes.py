"""A site's own rules, from its baseline to simulated nodes and back: no Python of its own."""

import json

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
BASELINE = r"""nodevet: 1
allow_commands: true
allow_file_text: true
expect:
  rule:
    node:
      severity: info
      services: {running: [systemd-journald.service]}
      sysctl: {kernel.ostype: Linux}
    other: {description: no job needs it, services: {stopped: [systemd-journald.service]}}
  file:
    banner: {path: /etc/motd, contains: Authorised, mode: "0644", owner: root}
    secret: {path: /root/secret, pattern: "^token=[a-z]+$", mode: "0600"}
    gone: {path: /etc/cron.d/old, exists: false}
  command:
    me: {run: [id, -un], text: nobody}
    root: {run: [id, -un], text: root, user: root}
    denied: {run: [cat, /root/secret], exit: 1}
    level: {run: [cat, /etc/level.json], json: {path: "gpus[0].level", minimum: 3}}
    missing: {run: [no-such-tool]}
"""
GOOD = """
echo 'Authorised use only' >/etc/motd && chmod 644 /etc/motd
rm -f /etc/cron.d/old
umask 077; echo token=abc >/root/secret
umask 022; echo '{"gpus": [{"level": 4}]}' >/etc/level.json
"""


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("rules", SCENARIO, BASELINE)
    fleet.run_on("n1", GOOD)
    return fleet


def verdicts(fleet: SimulatedFleet, *words: str) -> dict[str, str]:
    done = fleet.run_in_project("check", *(words or fleet.reach), "--all", "--format", "json")
    (host,) = json.loads(done.stdout)["hosts"]
    return {each["subject"]["id"]: each["verdict"] for each in host["findings"]}


def test_rules_pass_on_a_node_in_the_expected_state(fleet: SimulatedFleet) -> None:
    found = verdicts(fleet)
    assert found.pop("missing") == "unknown"
    assert found.pop("other") == "fail"
    assert set(found.values()) == {"ok"} and len(found) == 8


def test_a_difference_fails_and_the_text_stays_on_the_node(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", "chmod 666 /etc/motd; echo token=WRONG >/root/secret; touch /etc/cron.d/old")
    fleet.run_on("n1", 'echo \'{"gpus": [{"level": 2}]}\' >/etc/level.json')
    wrong = {"other", "banner", "secret", "gone", "level"}
    try:
        found = verdicts(fleet, *map(str, fleet.reach), "--save", "kept")
        assert {name for name, verdict in found.items() if verdict == "fail"} == wrong
        (saved,) = (fleet.project / "kept").iterdir()
        assert "WRONG" not in saved.read_text()
        assert verdicts(fleet, "--evidence", "kept", "-b", "base") == found
    finally:
        fleet.run_on("n1", GOOD)


def test_e02_root_reads_no_private_file_without_permission(fleet: SimulatedFleet) -> None:
    told = BASELINE.replace("allow_file_text: true\n", "")
    (fleet.project / "guess.yaml").write_text(told)
    there = ("-i", str(fleet.place.inventory), "--deadline", "150", "--accept-new")
    found = verdicts(fleet, *there, "-b", "guess.yaml")
    assert (found["secret"], found["banner"]) == ("unknown", "ok")
    (fleet.project / "guess.yaml").unlink()


def test_saved_evidence_without_the_answer_is_unknown(fleet: SimulatedFleet) -> None:
    fleet.run_in_project("check", *fleet.reach, "--save", "before")
    later = BASELINE.replace("contains: Authorised", "contains: Welcome")
    (fleet.project / "later.yaml").write_text(
        later.replace("[id, -un], text: root", "[id], exit: 0")
    )
    found = verdicts(fleet, "--evidence", "before", "-b", "later.yaml")
    assert {name for name, verdict in found.items() if verdict == "unknown"} == {
        "banner",
        "root",
        "missing",
    }
