"""A sweep whose hosts other processes judge, over SSH."""

import json
import threading
import time
from pathlib import Path

import pytest
from answering_fleet import HOSTS, AnsweringFleet, capped, waits_for
from in_this_process import nodevet

from nodevet.vet.use import vet

SOON = 60  # seconds until the last host answers even if nothing is reported before


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def site(fleet: AnsweringFleet, monkeypatch: pytest.MonkeyPatch) -> AnsweringFleet:
    monkeypatch.chdir(fleet.folder)
    monkeypatch.setenv("HOME", str(fleet.folder))
    monkeypatch.setattr(vet, "judges_worth", lambda hosts: 2)
    return fleet


def test_reports_do_not_wait_for_the_last_host(site: AnsweringFleet) -> None:
    late, file = waits_for(site, "gpu006", "go"), site.folder / "hosts.jsonl"
    early: list[str] = []

    def let_the_last_one_answer() -> None:
        end = time.monotonic() + SOON
        while len(lines(file)) < len(HOSTS) and time.monotonic() < end:  # a head, five hosts
            time.sleep(0.05)
        early.extend(lines(file))
        (site.folder / "go").touch()

    watching = threading.Thread(target=let_the_last_one_answer)
    watching.start()
    done = nodevet("check", "-i", late, "-b", "site.yaml", "--format", f"jsonl:{file}")
    watching.join()
    assert done.code == 0, done.err
    assert len(early) == len(HOSTS) and "gpu006" not in [
        json.loads(line).get("host") for line in early[1:]
    ]
    assert len(lines(file)) > len(HOSTS)


def test_a_second_night_knows_the_first(site: AnsweringFleet) -> None:
    site.night({"gpu002": capped})
    assert nodevet("sweep", "nightly").code == 1
    site.night({"gpu002": capped, "gpu004": capped})
    done = nodevet("sweep", "nightly")
    news = json.loads((site.folder / "last.json").read_bytes())["news"]
    new = {each["host"]: each.get("new", False) for each in news["standing"]}
    assert (done.code, new) == (1, {"gpu002": False, "gpu004": True}), done.err
