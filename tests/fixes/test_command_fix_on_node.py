"""A site's command and its inverse on a simulated node: planned, approved, applied, rolled back."""

import json
from collections.abc import Iterator

import pytest
from nodevet_on_node import write

from simulated_fleet import Boot, Done, SimulatedFleet

pytestmark = pytest.mark.timeout(600)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1}
"""
BASELINE = """\
nodevet: 1
title: a widget
allow_commands: true
expect:
  command:
    widget: {run: [widgetctl, get], text: fast}
fix: [command]
"""
FIX = """\
nodevet: 1
title: Set the widget.
risk: live
commands:
  widget:
    read: [widgetctl, get]
    run: [widgetctl, set, fast]
    undo: [widgetctl, set, "{before}"]
"""
WIDGET = """\
#!/bin/sh
case $1 in
get) cat /etc/widget ;;
set) [ -e /run/lies ] || echo "$2" >/etc/widget ;;
esac
"""


@pytest.fixture(scope="module")
def booted(boot: Boot) -> SimulatedFleet:
    fleet = boot("widget", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "fixes").mkdir()
    (fleet.project / "fixes" / "command.yaml").write_text(FIX)
    fleet.run_on("n1", write("/usr/local/bin/widgetctl", WIDGET, "755"))
    return fleet


@pytest.fixture
def fleet(booted: SimulatedFleet) -> Iterator[SimulatedFleet]:
    booted.run_on("n1", "rm -f /run/lies; echo medium >/etc/widget; chmod 644 /etc/widget")
    yield booted
    for file in booted.project.glob("plan.json*"):
        file.unlink()


def plan(fleet: SimulatedFleet) -> Done:
    done = fleet.run_in_project(
        "plan", *fleet.reach, "--author", "ann", "--settle", "0.2", "-o", "plan.json"
    )
    if (fleet.project / "plan.json").exists():
        approved = fleet.run_in_project(
            "approve", "plan.json", "--key", fleet.project / "bob", "--yes"
        )
        assert approved.returncode == 0, approved
    return done


def apply(fleet: SimulatedFleet, run: str) -> tuple[Done, dict[str, str]]:
    done = fleet.run_in_project("apply", "plan.json", *fleet.reach, "--run", run)
    result = json.loads((fleet.project / run / "result.json").read_text())
    (step,) = result["hosts"][0]["steps"]
    return done, step


def widget(fleet: SimulatedFleet) -> str:
    return fleet.run_on("n1", "cat /etc/widget").strip()


def test_a_command_fix_is_applied_and_rolled_back(fleet: SimulatedFleet) -> None:
    done = plan(fleet)
    assert done.returncode == 1 and "n1 command widget" in done.stdout, done
    full = fleet.run_in_project("plan", *fleet.reach, "--format", "diff").stdout
    shown = ("get  # reads it, before and after\n", "set fast\n# undone by: widgetctl set medium\n")
    assert "".join(f"$ widgetctl {line}" for line in shown) in full, full
    done, step = apply(fleet, "good")
    assert (done.returncode, step["outcome"], widget(fleet)) == (0, "changed", "fast"), done
    again = fleet.run_in_project("plan", *fleet.reach)
    assert again.returncode == 0, again
    back = fleet.run_in_project("rollback", "good")
    assert (back.returncode, widget(fleet)) == (0, "medium"), back


def test_a_command_that_lies_is_rolled_back(fleet: SimulatedFleet) -> None:
    plan(fleet)
    fleet.run_on("n1", "touch /run/lies")
    done, step = apply(fleet, "lie")
    assert (done.returncode, step["outcome"]) == (1, "failed_and_rolled_back"), done
    assert widget(fleet) == "medium", done


def test_a_setting_that_someone_changed_meanwhile_is_not_touched(fleet: SimulatedFleet) -> None:
    plan(fleet)
    fleet.run_on("n1", "echo slow >/etc/widget")
    done, step = apply(fleet, "stale")
    assert done.returncode == 1 and widget(fleet) == "slow", done
    assert "medium" in done.stdout and step["outcome"] == "not_attempted", done


def test_irreversible_actions_are_not_planned(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", "echo --force >/etc/widget")
    done = plan(fleet)
    assert not (fleet.project / "plan.json").exists(), done
    assert "cannot be rolled back: output widgetctl get: it printed '--force'" in " ".join(
        done.stdout.split()
    ), done


def test_a_widget_that_cannot_be_read_is_not_planned(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", "rm /etc/widget")
    done = plan(fleet)
    assert not (fleet.project / "plan.json").exists(), done
    assert "its earlier state is unknown: it ends with 1" in " ".join(done.stdout.split()), done
