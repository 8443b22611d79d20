"""`nodevet check` and `nodevet bmc show`: this machine and a lost host, with real BMC software."""

import json
import os
import subprocess
import sys
import time

import pytest
from bmcs import PASSWORD, SYSTEM, entry, link, log, settings_of
from free_ports import free_port

from nodevet.base.bounds import DOCUMENT
from nodevet.bmc.beside import joined
from nodevet.bmc.use import PARALLEL, Readings
from nodevet.evidence.document import EvidenceError, open_evidence
from nodevet.fleet import Visit
from nodevet.model import Host, Status

pytestmark = pytest.mark.timeout(600)
BASELINE = "nodevet: 1\nexpect: {bmc_sensors: {}, bmc_events: {}}\n"
OTHER = "nodevet: 1\nexpect: {uptime: {minimum_s: 1}}\n"


@pytest.fixture
def nodevet(tmp_path):
    """Runs nodevet with these hosts; returns its exit code and output, which holds no password."""

    def run(*words, hosts, baseline=BASELINE):
        (tmp_path / "fleet.yaml").write_text(json.dumps({"nodevet": 1, "hosts": hosts}))
        (tmp_path / "site.yaml").write_text(baseline)
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *words, "-i", "fleet.yaml"],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert PASSWORD not in done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def check(nodevet):
    """The hosts of a run by name, as its JSON has them."""

    def run(hosts, baseline=BASELINE):
        words = ("check", "-b", "site.yaml", "--format", "json", "--all", "--store", "none")
        done = nodevet(*words, "--parallel", "4", hosts=hosts, baseline=baseline)
        return {host["host"]: host for host in json.loads(done.stdout)["hosts"]}

    return run


def findings(host, check_id):
    return [
        (found["verdict"], found.get("actual") or found.get("why"))
        for found in host["findings"]
        if found["check"] == check_id
    ]


def lost(tmp_path, bmc):
    (tmp_path / "known_hosts").touch()
    port = free_port()
    known_hosts = str(tmp_path / "known_hosts")
    return {
        "address": "127.0.0.1",
        "port": port,
        "known_hosts": known_hosts,
        "bmc": settings_of(bmc),
    }


def test_a_check_judges_what_the_bmc_says(check, redfish):
    redfish.say(log(entry(1, "Critical", "PSU 1 lost AC")))
    (host,) = check({"@local": {"bmc": settings_of(redfish.bmc)}}).values()
    assert findings(host, "bmc_sensors") == [("ok", None)]
    assert findings(host, "bmc_events") == [("fail", "PSU 1 lost AC")]


def test_a_bmc_that_refuses_the_password_is_unknown(check, redfish):
    wrong = settings_of(redfish.bmc, user="nobody")
    (host,) = check({"@local": {"bmc": wrong}}).values()
    why = "BMC 127.0.0.1: it refuses the user or the password (HTTP 401)"
    assert findings(host, "bmc_sensors") == [("unknown", why)]
    assert findings(host, "bmc_events") == [("unknown", why)]


def test_a_host_without_a_bmc(check):
    (host,) = check({"@local": {}}).values()
    why = "the inventory names no BMC for it"
    assert findings(host, "bmc_sensors") == [("not_applicable", why)]


@pytest.mark.parametrize("baseline", [BASELINE, OTHER])
def test_the_row_of_a_lost_host_says_whether_it_has_power(check, ipmi, tmp_path, baseline):
    """Whether or not the baseline asks for the BMC."""
    hosts = {"gpu1": lost(tmp_path, ipmi.bmc)}
    host = check(hosts, baseline)["gpu1"]
    assert (host["status"], host["why"].split("; ")[-1]) == (
        "unreachable",
        "its BMC says that the power is on",
    )


def test_a_baseline_without_bmc_checks_reads_no_bmc(check, redfish):
    log = redfish.folder / "emulator.log"
    before = log.read_text().count("GET ")
    (host,) = check({"@local": {"bmc": settings_of(redfish.bmc)}}, OTHER).values()
    assert host["status"] == "vetted"
    assert log.read_text().count("GET ") == before


def bios(**attributes):
    path = f"{SYSTEM}/Bios"
    return {SYSTEM: {"Bios": link(path)}, path: {"Attributes": attributes}}


def test_a_check_judges_the_bios_attributes_that_its_baseline_names(check, redfish):
    redfish.say(bios(SriovGlobalEnable="Enabled", NumaNodesPerSocket="1"))
    names = "{SriovGlobalEnable: Enabled, NumaNodesPerSocket: 4, Nope: 1}"
    baseline = f"nodevet: 1\nexpect: {{bios: {{attributes: {names}}}}}\n"
    (host,) = check({"@local": {"bmc": settings_of(redfish.bmc)}}, baseline).values()
    assert findings(host, "bios") == [
        ("ok", "Enabled"),
        ("fail", "1"),
        ("unknown", "value: the BMC has no attribute of this name"),
    ]


VERSIONS = "nodevet: 1\nexpect: {bios: {minimum_date: 1990-01-01}, power_limit: 700}\n"


def test_checks_whose_params_do_not_need_the_bmc_read_none(check, redfish):
    """Also if a check could: `bios` without attributes, or `power_limit`, which only names it."""
    served = redfish.folder / "emulator.log"
    before = served.read_text().count("GET ")
    (host,) = check({"@local": {"bmc": settings_of(redfish.bmc)}}, VERSIONS).values()
    assert host["status"] == "vetted" and served.read_text().count("GET ") == before


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        ({"LastState": "OSBootStarted"}, "on, and that the boot progress is OSBootStarted"),
        ({"LastState": "None"}, "on"),
        ({"LastState": None}, "on"),
        ([], "on"),
        ({"LastState": "x\x1b[2J\n" * 99}, None),
    ],
)
def test_the_row_of_an_unreachable_host_shows_its_boot_progress(
    check, redfish, tmp_path, progress, told
):
    redfish.say({SYSTEM: {"BootProgress": progress}})
    why = check({"gpu1": lost(tmp_path, redfish.bmc)}, OTHER)["gpu1"]["why"].split("; ")[-1]
    if told is None:
        assert why.isprintable() and len(why) < 200 and "the boot progress is x" in why
    else:
        assert why == f"its BMC says that the power is {told}"


def test_a_bmc_is_not_read_longer_than_the_run_may_take(redfish):
    redfish.breaks("slow 30")
    hosts = [Host(name=f"gpu{number}", bmc=redfish.bmc) for number in range(PARALLEL + 1)]
    readings = Readings(hosts, time.monotonic() + 1)
    while len(readings.done) < len(hosts):
        readings.take(wait=True)
    assert {section["status"] for section in readings.done.values()} == {"timeout"}


def test_show(nodevet, redfish, ipmi):
    redfish.say(log(entry(1, "Critical", "PSU \x1b[31m 1 lost AC", 90), entry(2, "OK", "On")))
    hosts = {"gpu1": {"bmc": settings_of(redfish.bmc)}, "gpu2": {"bmc": settings_of(ipmi.bmc)}}
    done = nodevet("bmc", "show", hosts=hosts)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 BMCs\n")
    assert r"PSU \x1b[31m 1 lost AC" in done.stdout and "90 min ago" in done.stdout
    document = json.loads(nodevet("bmc", "show", "--format", "json", hosts=hosts).stdout)
    assert document["kind"] == "bmc"
    assert {name: host["data"]["power"] for name, host in document["hosts"].items()} == {
        "gpu1": "on",
        "gpu2": "on",
    }


def test_show_what_was_not_read(nodevet, redfish):
    hosts = {
        "gpu1": {"bmc": settings_of(redfish.bmc, port=free_port())},
        "gpu2": {},
    }
    done = nodevet("bmc", "show", hosts=hosts)
    assert done.returncode == 3
    assert "2 BMCs · 2 not read" in done.stdout
    assert "BMC 127.0.0.1: Connection refused" in done.stdout
    assert "the inventory names no BMC for it" in done.stdout


def test_a_gate_tries_a_refused_password_once(nodevet, redfish):
    served = redfish.folder / "emulator.log"
    before = served.read_text().count(" 401 ")
    words = ("gate", "-b", "site.yaml", "--format", "json", "--wait", "4s", "--settle", "0s")
    hosts = {"@local": {"bmc": settings_of(redfish.bmc, user="nobody")}}
    done = nodevet(*words, "--interval", "0.5s", "--all", "--store", "none", hosts=hosts)
    (host,) = json.loads(done.stdout)["hosts"]
    why = "BMC 127.0.0.1: it refuses the user or the password (HTTP 401)"
    assert done.returncode == 1 and findings(host, "bmc_sensors") == [("unknown", why)]
    assert served.read_text().count(" 401 ") == before + 1


def test_evidence_that_leaves_no_room_for_the_section_is_refused():
    """Not judged without it, as if the inventory named no BMC."""
    words = {"schema": 1, "probe": "0", "sections": {"host": {"status": "error", "why": ""}}}
    spare = DOCUMENT - len(json.dumps(words)) - 2
    words["sections"]["host"]["why"] = "x" * spare
    visit = Visit(host="a", status=Status.VETTED, evidence=json.dumps(words).encode())
    open_evidence(visit.evidence)
    section = {"status": "error", "why": "BMC a: no answer in time"}
    with pytest.raises(EvidenceError, match="more than 16 MiB"):
        open_evidence(joined(visit, section).evidence)
