"""Runs that switch simulated nodes off and on by real BMC software."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from bmcs import PASSWORD
from two_bmcs import two_bmcs

from nodevet_sim.nspawn.control import ask
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
nodes:
  gpu[1-2]: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1, governor: powersave}
"""
BASELINE = "nodevet: 1\nexpect: {cpu_governor: performance}\nfix: [cpu_governor]\n"
CAREFUL = ("--drain-hook", "./hook", "--settle", "0s", "--boot-settle", "5s", "--max-fail", "1")
STUCK = """systemd-run --quiet --unit=stuck -p TimeoutStopSec=infinity -p KillMode=none \
-p ExecStop='/bin/sleep infinity' sleep infinity"""


@pytest.fixture(scope="module")
def fleet(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFleet]:
    fleet = boot("power", SCENARIO, BASELINE)
    with two_bmcs(fleet, tmp_path_factory.mktemp):
        yield fleet


@pytest.fixture
def slow(fleet: SimulatedFleet) -> SimulatedFleet:
    """The fleet with the governor of its description, which is wrong."""
    for node in ("gpu1", "gpu2"):
        fleet.run_on(node, "rm -f /etc/tmpfiles.d/*governor* /etc/systemd/system/*/*governor*")
        fleet.run_on(
            node, "echo powersave | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
        )
    (fleet.project / "hooked").write_text("")
    return fleet


def reach(fleet: SimulatedFleet, host: str) -> tuple[object, ...]:
    return (*fleet.reach, "-i", "bmcs.yaml", "--limit", host)


def approved(fleet: SimulatedFleet, host: str, *words: object) -> None:
    """A plan of a host, approved by bob."""
    (fleet.project / "plan.json").unlink(missing_ok=True)
    plan = ("plan", *reach(fleet, host), "--author", "ann", *CAREFUL, *words, "-o", "plan.json")
    done = fleet.run_in_project(*plan)
    assert done.returncode == 1, done
    done = fleet.run_in_project("approve", "plan.json", "--key", fleet.project / "bob", "--yes")
    assert done.returncode == 0, done


def boots(fleet: SimulatedFleet) -> dict[str, tuple[str, int]]:
    nodes = ask(fleet.place, {"do": "list"})["nodes"]
    return {node["name"]: (node["state"], node["boots"]) for node in nodes}


def apply_words(fleet: SimulatedFleet) -> tuple[object, ...]:
    return ("apply", "plan.json", *fleet.reach, "-i", "bmcs.yaml", "--run", "run")


def fresh(fleet: SimulatedFleet) -> None:
    subprocess.run(["rm", "-rf", str(fleet.project / "run")], check=True)


def result(fleet: SimulatedFleet) -> dict[str, dict[str, str]]:
    document = json.loads((fleet.project / "run" / "result.json").read_bytes())
    return {host["host"]: host for host in document["hosts"]}


def asked(fleet: SimulatedFleet, host: str) -> list[str]:
    """What the journal says that a host and its BMC were asked for."""
    return [each["asked"] for each in requests(fleet) if each["host"] == host]


def requests(fleet: SimulatedFleet) -> list[dict[str, str]]:
    lines = (fleet.project / "run" / "journal.jsonl").read_text().splitlines()
    return [each for line in lines if (each := json.loads(line)).get("asked")]


def test_two_nodes_are_power_cycled_one_at_a_time(slow: SimulatedFleet) -> None:
    fresh(slow)
    before = boots(slow)
    approved(slow, "gpu[1-2]", "--power-cycle", "--canary", "0")
    done = slow.run_in_project(*apply_words(slow))
    assert done.returncode == 0, done
    hosts = result(slow)
    assert {host["outcome"] for host in hosts.values()} == {"verified_after_reboot"}, hosts
    assert boots(slow) == {name: ("running", count + 1) for name, (_, count) in before.items()}
    assert asked(slow, "gpu1") == asked(slow, "gpu2") == ["soft off", "on"]
    story = [each["host"] for each in requests(slow)]
    assert story in (["gpu1"] * 2 + ["gpu2"] * 2, ["gpu2"] * 2 + ["gpu1"] * 2)
    told = "".join(path.read_text() for path in (slow.project / "run").rglob("*.*json*"))
    assert PASSWORD not in told + done.stdout + done.stderr
    assert (slow.project / "hooked").read_text().count("undrain") == 2


def test_the_bmc_of_another_node_is_never_asked_to_switch_power(slow: SimulatedFleet) -> None:
    """Both nodes run: a wrong address in the inventory would switch the other one off."""
    fresh(slow)
    before = boots(slow)
    approved(slow, "gpu[1-2]", "--power-cycle", "--canary", "0")
    own = json.loads((slow.project / "bmcs.yaml").read_bytes())
    hosts = own["hosts"]
    swapped = {"nodevet": 1, "hosts": {"gpu1": hosts["gpu2"], "gpu2": hosts["gpu1"]}}
    (slow.project / "swapped.yaml").write_text(json.dumps(swapped))
    words = ("--author", "ann", *CAREFUL, "--power-cycle", "-o", "other.json")
    done = slow.run_in_project("plan", *slow.reach, "-i", "swapped.yaml", *words)
    assert done.returncode == 2 and not (slow.project / "other.json").exists(), done
    assert "gpu1: BMC 127.0.0.1: it is the BMC of another machine: its system UUID" in done.stderr
    assert "gpu2: BMC 127.0.0.1: nothing proves that it belongs to the node: " in done.stderr

    shown = slow.run_in_project(
        "approve", "plan.json", "--key", slow.project / "bob", "--yes"
    ).stdout
    assert "gpu[1-2]: the same system UUID" in shown, shown
    done = slow.run_in_project(
        "apply", "plan.json", *slow.reach, "-i", "swapped.yaml", "--run", "run"
    )
    assert done.returncode == 1, done
    assert {host["refusal"] for host in result(slow).values()} == {"precondition"}
    assert requests(slow) == [] and boots(slow) == before


def test_two_controllers_switch_a_node_once(slow: SimulatedFleet) -> None:
    """The second one begins while the first one has asked the BMC to shut the node down."""
    fresh(slow)
    subprocess.run(["rm", "-rf", str(slow.project / "second")], check=True)
    _, count = boots(slow)["gpu1"]
    approved(slow, "gpu1", "--power-cycle")
    words = [sys.executable, "-m", "nodevet", *map(str, apply_words(slow))]
    env = {**os.environ, "HOME": str(slow.project), "NODEVET_STORE": "none"}
    with subprocess.Popen(words, cwd=slow.project, env=env) as first:
        while not (slow.project / "run/journal.jsonl").exists() or not asked(slow, "gpu1"):
            assert first.poll() is None
            time.sleep(0.1)
        done = slow.run_in_project(*apply_words(slow)[:-1], "second")
    assert first.returncode == 0 and done.returncode == 1, done
    assert result(slow)["gpu1"]["outcome"] == "verified_after_reboot"
    assert '"asked"' not in (slow.project / "second/journal.jsonl").read_text().replace(
        '"asked":""', ""
    )
    assert boots(slow)["gpu1"] == ("running", count + 1)


def test_a_host_without_a_bmc_is_refused_before_anything_is_done(slow: SimulatedFleet) -> None:
    fresh(slow)
    words = ("--author", "ann", *CAREFUL, "--power-cycle", "-o", "plan.json")
    done = slow.run_in_project("plan", *slow.reach, "--limit", "gpu1", *words)
    assert done.returncode == 2, done
    assert "gpu1: --power-cycle needs the BMC of each host" in done.stderr
    approved(slow, "gpu1", "--power-cycle")
    done = slow.run_in_project("apply", "plan.json", *slow.reach, "--run", "run")
    assert done.returncode == 2, done
    assert "gpu1: --power-cycle needs the BMC of each host" in done.stderr
    assert not (slow.project / "run").exists()
    assert (slow.project / "hooked").read_text() == ""


def test_a_node_that_hangs_in_its_reboot_is_power_cycled_by_the_resume_offered(
    slow: SimulatedFleet,
) -> None:
    """The report offers the power cycle and does not take it; resuming the run with it does."""
    fresh(slow)
    approved(slow, "gpu2", "--reboot", "--reboot-timeout", "40s", "--power-off-timeout", "3s")
    slow.run_on("gpu2", STUCK)
    _, count = boots(slow)["gpu2"]
    done = slow.run_in_project(*apply_words(slow))
    assert done.returncode == 3, done
    why = result(slow)["gpu2"]["why"]
    assert "the reboot was requested: " in why
    assert why.endswith("; its BMC says that the power is on; stays drained")
    offer = "nodevet apply --resume run -b base --power-cycle --override"
    assert offer in " ".join(done.stdout.split()), done.stdout
    assert boots(slow)["gpu2"] == ("running", count)

    done = slow.run_in_project("apply", "--resume", "run", "--power-cycle", "-b", "base")
    assert done.returncode == 2 and "--power-cycle is on, off was approved" in done.stderr, done
    done = slow.run_in_project(*offer.split()[1:])
    assert done.returncode == 0, done
    assert "not as approved: --power-cycle is on, off was approved" in done.stderr
    assert result(slow)["gpu2"]["outcome"] == "verified_after_reboot"
    first, *_, last = asked(slow, "gpu2")
    assert (first, last) == ("reboot", "on")
    assert boots(slow)["gpu2"] == ("running", count + 1)


def test_a_killed_controller_leaves_a_node_off_and_a_resume_switches_it_on(
    slow: SimulatedFleet,
) -> None:
    fresh(slow)
    approved(slow, "gpu1", "--power-cycle")
    slow.kill_when(lambda: boots(slow)["gpu1"][0] == "off", *apply_words(slow))
    assert asked(slow, "gpu1") == ["soft off"]
    _, count = boots(slow)["gpu1"]
    done = slow.run_in_project("apply", "--resume", "run", "-b", "base")
    assert done.returncode == 0, done
    assert result(slow)["gpu1"]["outcome"] == "verified_after_reboot"
    assert asked(slow, "gpu1") == ["soft off", "on"]
    assert boots(slow)["gpu1"] == ("running", count + 1)
