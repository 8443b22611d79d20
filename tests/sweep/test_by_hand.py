"""A gate that records, and a check by hand that judges what came since the last recorded visit."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from answering_fleet import BASELINE, HOSTS, AnsweringFleet, capped, left_in_the_middle

pytestmark = pytest.mark.timeout(300)
STORE = ("--store", "sqlite:///h.sqlite")
SITE = ("-i", "fleet.yaml", "-b", "site.yaml")
QUICK = ("--wait", "1s", "--interval", "0.5s")


def faulty(count: int) -> Any:
    def change(sections: dict[str, Any]) -> None:
        uptime = sections["host"]["data"]["uptime_s"]
        event = {"kind": "oom", "detail": "python", "count": count, "last_s": 5.0}
        if count > 1:
            event["last_s"] = uptime - 60.0
        sections["kernel_log"]["data"].update(
            complete=True, since_s=0.0, covered_s=uptime, events=[event]
        )

    return change


def young(sections: dict[str, Any]) -> None:
    sections["host"]["data"]["uptime_s"] = 60.0


def visits(fleet: AnsweringFleet) -> list[tuple[str, str]]:
    with sqlite3.connect(fleet.folder / "h.sqlite") as store:
        asked = "select run.series || host.name, outcome from visit join host on host.id = host"
        return store.execute(f"{asked} join run on run.id = run order by visit.id").fetchall()


def test_a_gate_is_the_first_entry_of_a_nodes_history(fleet: AnsweringFleet) -> None:
    fleet.night({"gpu002": capped})
    assert fleet.run("gate", "gpu001", *SITE, *QUICK).returncode == 0
    assert not (Path(fleet.state) / "nodevet").exists()
    done = fleet.run("gate", "gpu[001-002]", *SITE, *QUICK, *STORE, "--verdict", "v.json")
    assert done.returncode == 1
    assert sorted(visits(fleet)) == [("gpu001", "ok"), ("gpu002", "fail")]  # once, for all attempts
    assert "gpu002 GPU 0-7" in done.stdout
    fleet.night()
    passed = fleet.run("gate", "gpu002", *SITE, *QUICK, *STORE, "--verdict", "v.json")
    assert (passed.returncode, "fixed: 8" in passed.stdout) == (0, True)
    assert json.loads((fleet.folder / "v.json").read_text())["verdict"] == "pass"
    shown = fleet.run("history", "gpu002", *STORE)
    assert "power_limit" in shown.stdout
    fleet.night({"gpu003": young})
    unsettled = fleet.run("gate", "gpu003", *SITE, *QUICK, *STORE, "--settle", "7d")
    assert unsettled.returncode == 1
    assert visits(fleet)[-1] == ("gpu003", "timeout")
    (fleet.folder / "kept").write_text("")
    lost = fleet.run("gate", "gpu001", *SITE, *QUICK, "--store", "sqlite:///kept/h.sqlite")
    assert lost.returncode == 2
    assert "not recorded" in lost.stderr


def test_a_check_with_since_store_judges_only_log_lines_since_the_last_visit(
    fleet: AnsweringFleet,
) -> None:
    (fleet.folder / "site.yaml").write_text(BASELINE + "  kernel_faults: {}\n")
    check = ("check", *SITE, "--limit", "gpu001", *STORE)
    fleet.night({"gpu001": faulty(1)})
    first = fleet.run(*check, "--since", "store")
    assert first.returncode == 1
    assert "--since ignored: no earlier evidence (1 host, gpu001)" in first.stderr
    fleet.night({"gpu001": faulty(1)})
    assert fleet.run(*check).returncode == 1
    fleet.night({"gpu001": faulty(1)})
    again = fleet.run(*check, "--since", "store")
    assert (again.returncode, again.stderr) == (0, "")
    fleet.night({"gpu001": faulty(2)})
    assert fleet.run(*check, "--since", "store").returncode == 1
    assert "needs a store" in fleet.run("check", *SITE, "--store=none", "--since=store").stderr
    alone = fleet.run(*check, "--since", "store", "--since", "evidence")
    assert "name it alone" in alone.stderr
    judged = fleet.run(*check, "--from-run", "last", "--since", "store")
    assert "works only with visits" in judged.stderr


def test_a_resumed_sweep_judges_log_lines_since_the_previous_sweep(fleet: AnsweringFleet) -> None:
    (fleet.folder / "site.yaml").write_text(BASELINE + "  kernel_faults: {}\n")
    nights = {host: faulty(1) for host in HOSTS}
    fleet.night(nights)
    assert fleet.run("sweep").returncode == 1
    fleet.night(nights)
    assert fleet.run("sweep").returncode == 0
    fleet.night({**nights, "gpu002": faulty(2)})
    assert fleet.run("sweep").returncode == 1
    left_in_the_middle(fleet, without=3)
    done = fleet.run("check", *SITE, "--resume", "last", "--since", "store", "--format", "json")
    assert done.stderr == ""
    failing = {host["host"] for host in json.loads(done.stdout)["hosts"] if "fail" in str(host)}
    assert failing == {"gpu002"}
