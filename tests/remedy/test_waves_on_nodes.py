"""Sixteen nodes, seven of which fail in different ways: the canary and the budget stop the
run, the rest is untouched, and every report accounts for every node.

One story is lived through: the run that is stopped, its resume with a larger budget, a second run
once some of the nodes are mended, and the way back.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from nodevet.fix.journal.journal import HostBegin, HostEnd, read, state
from nodevet.fixing.result import Outcome

pytestmark = pytest.mark.timeout(1800)
NAMES = [f"n{number:02}" for number in range(1, 17)]
SCENARIO = """\
sim: 1
nodes:
  n[01-16]:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    nvml: {gpu.0.power_limit_mw: "500000", gpu.0.power_limit_enforced_mw: "500000"}
"""
BASELINE = """\
nodevet: 1
expect: {power_limit: 700}
fix: [power_limit]
"""
UNIT = "nodevet-power-limit.service"
OWNED = {  # paths of a node's disk that the fix makes
    f"/etc/systemd/system/{UNIT}",
    f"/etc/systemd/system/multi-user.target.wants/{UNIT}",
}
STATE = f"""\
printf 'power\\t'; nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits
printf 'unit\\t'; systemctl show -p UnitFileState,ActiveState,LoadState {UNIT} | xargs
"""
DRIVER = "sed -i '1i gpu.0.set.power_limit_mw = {}' /run/nodevet-sim/nvml.state"
HOLDER = """\
mkdir -p -m 700 /run/nodevet
echo '{"who": "bob", "since": "2026-11-21T00:00:00Z", "boot_id": ""}' >/run/nodevet/lock
systemd-run --quiet --unit=holder flock /run/nodevet/lock sleep 100000
"""
FAILED, REFUSED, DONE = "failed_and_rolled_back", "refused", "changed"
AMISS = {  # node -> how it ends, and what the report says
    "n01": (REFUSED, "refused"),  # its sshd is stopped: no canary
    "n03": (FAILED, "nvidia-smi"),  # the driver refuses
    "n05": (FAILED, "500 W"),  # the driver agrees and does nothing
    "n06": (REFUSED, "600 W"),  # somebody changed it since
    "n08": (FAILED, "ead-only"),  # /etc/systemd/system
    "n13": (REFUSED, "bob"),  # who holds the lock
    "n15": (FAILED, "500 W"),  # the driver does not support it, which nvidia-smi takes lightly
}
CANARY = "n02"
BATCH = 4
MENDED = {"n01", "n06", "n08", "n13"}


@dataclass
class Told:
    """What one command told, in every format."""

    code: int
    said: str
    report: dict[str, Any]
    texts: dict[str, str]

    @property
    def outcomes(self) -> dict[str, str]:
        return {host["host"]: host["outcome"] for host in self.report["hosts"]}

    def host(self, name: str) -> dict[str, Any]:
        return next(host for host in self.report["hosts"] if host["host"] == name)


@dataclass
class Story:
    start: dict[str, dict[str, str]] = field(default_factory=dict)
    faulty: dict[str, dict[str, str]] = field(default_factory=dict)
    after_stop: dict[str, dict[str, str]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)  # by the journal of the run that was stopped
    written: set[str] = field(default_factory=set)
    stopped: Told | None = None
    resumed: Told | None = None
    disks: dict[str, set[str]] = field(default_factory=dict)  # what has changed after the resume
    again: Told | None = None
    back: list[Told] = field(default_factory=list)
    end: dict[str, dict[str, str]] = field(default_factory=dict)


def break_them(fleet: Any) -> None:
    fleet.set("n01", "fault=sshd-stopped")
    fleet.shell(DRIVER.format("NVML_ERROR_UNKNOWN"), "n03")
    fleet.shell(DRIVER.format("ignored"), "n05")
    fleet.shell("nvidia-smi -pl 600", "n06")
    fleet.shell("mount --bind -o ro /etc/systemd/system /etc/systemd/system", "n08")
    fleet.shell(HOLDER, "n13")
    fleet.shell(DRIVER.format("NVML_ERROR_NOT_SUPPORTED"), "n15")


def mend_some(fleet: Any) -> None:
    fleet.set("n01", "faults=[]")
    fleet.shell("nvidia-smi -pl 500", "n06")
    fleet.shell("umount /etc/systemd/system", "n08")
    fleet.shell("systemctl stop holder", "n13")


def tell(fleet: Any, run: str, stem: str, *words: Any) -> Told:
    """Run a command, and read what it left in the run's folder."""
    code, said = fleet.nodevet(*words, "--deadline", "150")
    folder = fleet.folder / run
    texts = {ending: (folder / f"{stem}.{ending}").read_text() for ending in ("txt", "md", "html")}
    return Told(code, said, json.loads((folder / f"{stem}.json").read_text()), texts)


@pytest.fixture(scope="module")
def story(live: Callable[[str, str, str], Any]) -> Story:
    fleet, story = live("wave", SCENARIO, BASELINE), Story()
    story.start = fleet.states(STATE)
    first = ("--canary", "1", "--batch", str(BATCH), "--max-fail", "2", "--settle", "0.1")
    plan = fleet.approved("plan.json", *first)
    break_them(fleet)
    reached = [name for name in NAMES if name != "n01"]
    story.faulty = {**story.start, "n06": fleet.states(STATE, "n06")["n06"]}
    apply = ("apply", "-b", "base", "--project", fleet.folder)
    order = (*apply, plan, "-i", fleet.place.inventory)
    run, again = fleet.folder / "run", fleet.folder / "again"

    story.stopped = tell(fleet, "run", "result", *order, "--run", run)
    records = read(run)
    story.begun = {each.host for each in records if isinstance(each, HostBegin | HostEnd)}
    story.written = {id.split("/")[0] for id, step in state(records).steps.items() if step.touched}
    story.after_stop = fleet.states(STATE, *reached)

    limits = ("--max-fail", "50%", "--override")
    story.resumed = tell(fleet, "run", "result", *apply, "--resume", run, *limits)
    story.disks = {
        name: {path for path, _, _ in fleet.ask("diff", name)["changes"]} for name in NAMES
    }

    mend_some(fleet)
    limits = ("--max-fail", 3, "--override")
    story.again = tell(fleet, "again", "result", *order, "--run", again, *limits)
    for name in ("again", "run"):
        words = ("rollback", fleet.folder / name)
        story.back.append(tell(fleet, name, "rollback-1", *words))
    story.end = fleet.states(STATE)
    return story


def test_the_budget_stops_the_run(story: Story) -> None:
    told = story.stopped
    assert told is not None and told.code == 1, told
    assert told.report["stopped"] == "3 nodes failed, but only 2 may"
    assert [host["host"] for host in told.report["hosts"] if host["canary"]] == ["n01", CANARY]
    assert told.outcomes[CANARY] == DONE
    for name in ("n01", "n03", "n05", "n06", "n08"):
        outcome, why = AMISS[name]
        assert told.outcomes[name] == outcome and why in told.host(name)["why"], told.host(name)
    untouched = [name for name in NAMES if told.outcomes[name] == "not_attempted"]
    assert {told.host(name)["why"] for name in untouched} == {told.report["stopped"]}
    # three failures in a window of four: so far, and no node further
    assert NAMES.index(untouched[0]) <= NAMES.index("n08") + BATCH
    assert untouched == NAMES[NAMES.index(untouched[0]) :]


def test_steps_that_did_not_begin_are_not_attempted(story: Story) -> None:
    assert story.stopped is not None
    outcomes = story.stopped.outcomes
    assert story.begun == {name for name in NAMES if outcomes[name] != "not_attempted"}
    assert story.written == {name for name in NAMES if outcomes[name] == DONE}
    for name, now in story.after_stop.items():
        if outcomes[name] == DONE:
            assert set(now) - set(story.start[name]) == OWNED and float(now["power"]) == 700
        else:
            assert now == story.faulty[name], name


def test_every_report_accounts_for_every_node(story: Story) -> None:
    every = [story.stopped, story.resumed, story.again, *story.back]
    for told in every:
        assert told is not None
        assert [host["host"] for host in told.report["hosts"]] == NAMES
        folded = {}  # nodes, as the table has them -> outcome
        for line in told.texts["txt"].split("\n\n")[0].splitlines():
            outcome, nodes, *_ = re.split(r"  +", line)
            folded[nodes] = outcome.lower()
        listed = {
            name: outcome
            for nodes, outcome in folded.items()
            for name in NodeSet(nodes, resolver=RESOLVER_NOGROUP)
        }
        assert listed == {name: Outcome(outcome).words for name, outcome in told.outcomes.items()}
        for nodes, outcome in folded.items():
            assert f"| `{outcome}` | `{nodes}` |" in told.texts["md"]
            assert nodes in told.texts["html"] and outcome in told.texts["html"]
        for outcome, number in Counter(told.outcomes.values()).items():
            words = f"{number} {Outcome(outcome).words}"
            assert all(words in text for text in told.texts.values())


def test_a_resume_with_a_larger_budget_continues_with_the_rest(story: Story) -> None:
    assert story.stopped is not None
    told = story.resumed
    assert told is not None and told.code == 1 and told.report["stopped"] == "", told
    wanted = {name: AMISS[name][0] if name in AMISS else DONE for name in NAMES}
    assert told.outcomes == wanted
    for name in ("n13", "n15"):
        assert AMISS[name][1] in told.host(name)["why"]
    for name in story.begun - {"n01"}:  # which could not be reached, and is tried again
        assert told.host(name) == story.stopped.host(name)
    assert story.disks == {
        name: OWNED if outcome == DONE else set() for name, outcome in wanted.items()
    }


def test_a_second_run_changes_only_the_repaired_nodes(story: Story) -> None:
    told = story.again
    assert told is not None and told.code == 1 and told.report["stopped"] == "", told
    assert told.outcomes == {
        name: DONE if name in MENDED else AMISS[name][0] if name in AMISS else "unchanged"
        for name in NAMES
    }


def test_rollbacks_of_both_runs_restore_the_first_state(story: Story) -> None:
    again, first = story.back
    assert (again.code, first.code) == (0, 0), story.back
    done = {name for name in NAMES if name not in AMISS}
    for told, names in ((again, MENDED), (first, done)):
        assert {name for name in NAMES if told.outcomes[name] == "rolled_back"} == names
    assert story.end == story.start
