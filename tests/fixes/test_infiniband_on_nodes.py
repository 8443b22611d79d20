"""A disabled InfiniBand port on a node: wrong, planned, enabled, rebooted, and disabled again.

ibportstate is a stand-in at the hardware's edge: it writes what the kernel would then show, until
the node reboots. A port that it enables polls, trains, and becomes active once a subnet manager
brings it up.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from simulated_fleet import Boot, Done, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    nics: 2
    nic_kind: infiniband
"""
BASELINE = "nodevet: 1\nexpect: {infiniband: {count: 2, rate_gbps: 400}}\nfix: [infiniband]\n"
CARE = ("--author", "ann", "--settle", "0.2", "--boot-settle", "3", "--drain-hook", "true")
PROGRAM = "/usr/sbin/ibportstate"
STAND_IN = f"""\
cat >{PROGRAM} <<'END'
#!/bin/sh
[ "$1 $3 $5 $6 $7" = "-C -P -D 0 $4" ] || exit 255
cd "/sys/class/infiniband/$2/ports/$4" || exit 255
now="/run/ports/$2"
put() {{
    [ -e "$now/$1" ] || {{ mkdir -p "$now"; touch "$now/$1"; mount --bind "$now/$1" "$1"; }}
    echo "$2" >"$now/$1"
}}
train() {{ sleep 0.3; put phys_state '5: LinkUp'; put state '2: INIT'; }}
manage() {{ sleep 0.3; put state '4: ACTIVE'; }}
echo "$*" >>/run/calls
case $8 in
enable)
    [ -e /run/lies ] && exit 0
    while [ -e /run/hangs ]; do touch /run/asked; sleep 0.1; done
    put state '1: DOWN'; put phys_state '2: Polling'
    [ -e /run/no-partner ] && exit 0
    (train; [ -e /run/no-manager ] || manage) >/dev/null 2>&1 & ;;
disable) echo 'Disable may be irreversible'; put state '1: DOWN'; put phys_state '3: Disabled' ;;
*) exit 255 ;;
esac
END
chmod 755 {PROGRAM}
"""
PORTS = "cd /sys/class/infiniband; tail -n +1 */ports/1/*state */ports/1/lid; rm -f /run/calls"
DISABLE = f"{PROGRAM} -C mlx5_0 -P 1 -D 0 1 disable"
ENABLE = "-C mlx5_0 -P 1 -D 0 1 enable"


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("ports", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1}\n")
    fleet.run_on("n1", STAND_IN)
    return fleet


@contextmanager
def fast(fleet: SimulatedFleet) -> Iterator[None]:
    """Each `sleep` of the node is over at once, so that nodevet's wait for a port ends."""
    fleet.run_on("n1", "ln -s /bin/true /usr/local/bin/sleep")
    try:
        yield
    finally:
        fleet.run_on("n1", "rm /usr/local/bin/sleep")


def look(fleet: SimulatedFleet) -> tuple[str, str]:
    return fleet.run_on("n1", PORTS), fleet.sim("diff", "n1", codes=(0, 1))


def verdicts(fleet: SimulatedFleet) -> dict[str, str]:
    findings = fleet.vetted(*fleet.reach)["n1"]["findings"]
    return {each["subject"]["id"]: each["verdict"] for each in findings if "subject" in each}


def planned_by(fleet: SimulatedFleet, name: str) -> tuple[Path, Done]:
    """A plan that may be applied, and how it was shown."""
    plan = fleet.project / f"{name}.json"
    planned = fleet.run_in_project("plan", *fleet.reach, *CARE, "-o", plan)
    assert planned.returncode == 1, planned
    approved = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert approved.returncode == 0, approved
    return plan, planned


def apply(fleet: SimulatedFleet, name: str, between: str = "true") -> tuple[Done, dict[str, Any]]:
    """Plan, approve, apply; `between`: a command of root on the node before the last."""
    (plan, planned), run = planned_by(fleet, name), fleet.project / name
    fleet.run_on("n1", between)
    fleet.run_in_project("apply", plan, *fleet.reach, "--run", run)
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    return planned, host


def outcomes(host: dict[str, Any]) -> list[str]:
    return [step["outcome"] for step in host["steps"]]


def test_a_disabled_port_is_enabled_and_a_rollback_disables_it(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", DISABLE)
    before = look(fleet)
    assert verdicts(fleet) == {"mlx5_0:1": "fail", "mlx5_1:1": "ok"}
    planned, host = apply(fleet, "life")
    assert "disabled → enabled  n1 port mlx5_0:1" in planned.stdout, planned
    assert outcomes(host) == ["changed"], host
    assert fleet.run_on("n1", "cat /run/calls") == f"{ENABLE}\n"
    assert verdicts(fleet) == {"mlx5_0:1": "ok", "mlx5_1:1": "ok"}
    again = fleet.run_in_project("plan", *fleet.reach)
    assert again.returncode == 0, again
    fleet.sim("reboot", "n1")
    assert verdicts(fleet)["mlx5_0:1"] == "ok"
    undone = fleet.run_in_project("rollback", fleet.project / "life")
    assert undone.returncode == 0, undone
    assert look(fleet) == before
    fleet.sim("reboot", "n1")
    assert verdicts(fleet)["mlx5_0:1"] == "ok"


def test_an_ibportstate_that_exits_0_without_effect_is_a_failure(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", f"{DISABLE}; touch /run/lies")
    before = look(fleet)
    with fast(fleet):
        _, host = apply(fleet, "lied")
    fleet.run_on("n1", "rm /run/lies")
    assert outcomes(host) == ["failed_and_rolled_back"], host
    assert "it is 1: DOWN (3: Disabled)" in json.dumps(host)
    assert fleet.run_on("n1", "cat /run/calls") == f"{ENABLE}\n", "it is disabled still"
    assert look(fleet) == before


def test_a_port_that_no_subnet_manager_brings_up_is_disabled_again(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", f"{DISABLE}; touch /run/no-manager")
    before = look(fleet)
    with fast(fleet):
        _, host = apply(fleet, "alone")
    fleet.run_on("n1", "rm /run/no-manager")
    assert outcomes(host) == ["failed_and_rolled_back"], host
    assert "it is 2: INIT (5: LinkUp)" in json.dumps(host)
    assert look(fleet) == before


def test_a_run_killed_while_it_enables_the_port_can_be_resumed(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", f"{DISABLE}; touch /run/hangs")
    before = look(fleet)
    plan, run = planned_by(fleet, "killed")[0], fleet.project / "killed"
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    fleet.kill_when(lambda: fleet.file("n1", "/run/asked") is not None, *words, alone=True)
    fleet.run_on("n1", "rm /run/hangs /run/asked")
    done = fleet.run_in_project("apply", "--resume", run, "-b", "base")
    assert done.returncode == 0, done
    assert verdicts(fleet)["mlx5_0:1"] == "ok"
    undone = fleet.run_in_project("rollback", run)
    assert undone.returncode == 0, undone
    assert look(fleet) == before


def test_a_port_that_someone_enabled_since_is_not_touched(fleet: SimulatedFleet) -> None:
    fleet.run_on("n1", DISABLE)
    look(fleet)
    _, host = apply(fleet, "stale", f"touch /run/no-partner; {PROGRAM} {ENABLE}")
    assert (host["outcome"], host["refusal"]) == ("refused", "stale"), host
    assert fleet.run_on("n1", "cat /run/calls; rm /run/no-partner") == f"{ENABLE}\n", (
        "the other's call"
    )


def test_a_disabled_port_is_planned_and_a_polling_one_is_not(fleet: SimulatedFleet) -> None:
    poll = f"touch /run/no-partner; {PROGRAM} {ENABLE.replace('mlx5_0', 'mlx5_1')}"
    fleet.run_on("n1", f"{DISABLE}; {poll}; rm /run/no-partner")
    done = fleet.run_in_project("plan", *fleet.reach)
    assert "disabled → enabled  n1 port mlx5_0:1" in done.stdout, done
    assert "mlx5_1:1: it is enabled, and no link partner answers" in done.stdout, done
    fleet.run_on("n1", f"mv {PROGRAM} {PROGRAM}.off")
    lacking = fleet.run_in_project("plan", *fleet.reach)
    fleet.run_on("n1", f"mv {PROGRAM}.off {PROGRAM}")
    assert lacking.returncode == 3, lacking
    assert "install infiniband-diags" in lacking.stdout, lacking


def test_a_script_that_disables_the_port_is_reported_as_another_manager(
    fleet: SimulatedFleet,
) -> None:
    fleet.run_on("n1", f"{DISABLE}; printf '#!/bin/sh\\n{DISABLE}\\n' >/etc/rc.local")
    fleet.run_on("n1", "chmod 755 /etc/rc.local")
    done = fleet.run_in_project("plan", *fleet.reach)
    fleet.run_on("n1", "rm /etc/rc.local")
    assert "also managed by /etc/rc.local:2" in done.stdout, done
    assert "set infiniband" not in done.stdout, done
