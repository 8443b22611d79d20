"""A mistake on this machine says nothing of a host: it is reported, and it is not history."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from answering_fleet import HOSTS, AnsweringFleet

from nodevet.model import HostReport, Severity, Status
from nodevet.model.run import Run
from nodevet.store import open_store
from nodevet.vet.news import Before, news_of
from nodevet.vet.suspicion import suspicions

pytestmark = pytest.mark.timeout(300)
Inventory = dict[str, Any]


def wrong_key(told: Inventory, fleet: AnsweringFleet) -> None:
    from nodevet_sim.sshd import make_key

    told["key_file"] = str(make_key(fleet.folder / "other").path)


def no_such_key(told: Inventory, fleet: AnsweringFleet) -> None:
    told["key_file"] = str(fleet.folder / "no-such-key")


def no_such_name(told: Inventory, fleet: AnsweringFleet) -> None:
    told["address"] = "gpu001.invalid"


def unknown_host_key(told: Inventory, fleet: AnsweringFleet) -> None:
    empty = fleet.folder / "empty"
    empty.write_text("")
    told["known_hosts"] = str(empty)


MISTAKES = (wrong_key, no_such_key, no_such_name, unknown_host_key)


def mistaken(fleet: AnsweringFleet, *hosts: str, by: Callable[..., None]) -> str:
    told = json.loads((fleet.folder / "fleet.yaml").read_text())
    for host in hosts:
        by(told["hosts"][host], fleet)
    (fleet.folder / "mistaken.yaml").write_text(json.dumps(told))
    return "mistaken.yaml"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.__name__)
def test_e19_a_mistake_of_this_machine_is_reported_and_not_recorded(
    fleet: AnsweringFleet, mistake: Callable[..., None]
) -> None:
    fleet.run("sweep")
    inventory = mistaken(fleet, "gpu001", by=mistake)
    done = fleet.run("check", "-i", inventory, "-b", "site.yaml", "--format", "json")
    run = json.loads(done.stdout)
    status = {host["host"]: host["status"] for host in run["hosts"]}
    assert done.returncode == 3 and status["gpu001"] == "not_visited", done.stdout[-500:]
    assert not any(each.get("new") for each in run["news"].get("standing", ()))
    with open_store() as store:
        assert len(store.visits_of("gpu001")) == 1 and len(store.visits_of("gpu002")) == 2
        assert list(store.spans(host="gpu001")) == []
        assert store.runs(limit=1)[0].visited == len(HOSTS) - 1
    again = json.loads(
        fleet.run("check", "-i", "fleet.yaml", "-b", "site.yaml", "--format", "json").stdout
    )
    assert "ended" not in again["news"], "and it is not judged again, for it was never lost"


def test_e19_a_mistyped_host_is_not_recorded_as_a_host(fleet: AnsweringFleet) -> None:
    done = fleet.run("check", "gpu0001.invalid", "-b", "site.yaml", "--format", "json")
    assert done.returncode == 3, done.stderr
    assert "appeared" not in json.loads(done.stdout)["news"]
    with open_store() as store:
        assert store.hosts() == []
        (run,) = store.runs()
        assert (run.visited, run.state.value) == (0, "incomplete")


def test_e19_a_missing_proxycommand_program_leaves_hosts_not_visited(fleet: AnsweringFleet) -> None:
    (fleet.folder / "ssh_config").write_text("Host *\n  ProxyCommand no-such-ssh -W %h:%p\n")
    words = ("-i", "fleet.yaml", "-b", "site.yaml", "--ssh-config", "ssh_config")
    run = json.loads(fleet.run("check", *words, "--format", "json").stdout)
    assert {host["status"] for host in run["hosts"]} == {"not_visited"}
    assert "ProxyCommand: its program was not found" in run["hosts"][0]["why"]


def test_e19_a_wrong_ssh_key_is_neither_marked_suspicious_nor_notified(
    fleet: AnsweringFleet,
) -> None:
    told = fleet.folder / "told"
    fleet.settings(head='[notify]\nurls = ["json://127.0.0.1:9"]\n[budget]\nhosts = 2\n')
    fleet.run("sweep")
    inventory = mistaken(fleet, *HOSTS, by=no_such_key)
    words = ("-i", inventory, "--format", "prometheus")
    done = fleet.run("sweep", "--format", "prometheus:metrics.prom", "-i", inventory)
    assert done.returncode == 3 and "SUSPICIOUS" not in done.stdout, done.stdout + done.stderr
    metrics = (fleet.folder / "metrics.prom").read_text()
    assert 'nodevet_host_status{host="gpu001",status="not_visited"} 1.0' in metrics
    assert 'nodevet_run_new{severity="critical"} 0.0' in metrics
    assert "nodevet_check_flapping{" not in metrics and "not told" not in done.stderr
    assert not told.exists() and words


def test_e19_unvisited_hosts_do_not_make_a_run_suspicious() -> None:
    hosts = tuple(
        HostReport(host=f"n{n}", status=Status.NOT_VISITED if n else Status.VETTED)
        for n in range(9)
    )
    run = Run(id="r", nodevet="0", started="2026-11-20T02:00:00Z", seconds=1.0, hosts=hosts)
    before = Before(id="q", started="2026-11-19T02:00:00Z")
    news = news_of(run, [], before)
    assert suspicions(run, news, before, least=2) == () and news.standing == ()
    assert run.fail_on is Severity.WARNING and run.exit_code == 3
