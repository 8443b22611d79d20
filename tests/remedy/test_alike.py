"""What an approver sees of many hosts: each action once, and none of any host left out."""

import base64
import random
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.printable import cells
from nodevet.fix.approval.judge import Standing
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan import alike, summary
from nodevet.fix.plan.alike import Folded, fold_texts, same_steps, unfold
from nodevet.fix.plan.render import View
from nodevet.fix.plan_sheet import plan_blocks
from nodevet.fixing.model import Risk
from nodevet.resource import Actions, Contents, Resource, RunCommand, State, to_stored
from nodevet.resource.file import WriteFile
from nodevet.resource.gpu import nvidia_smi, setting
from nodevet.resource.running_process import EndProcess
from nodevet.resource.unit import SetUnit
from nodevet.sheet import terminal
from nodevet.sheet.model import Sheet
from nodevet.sheet.text import MORE
from planned_fleet import capped, proposal, uuids

HOSTS = [f"gpu{n:03}" for n in range(1, 501)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """500 hosts of eight GPUs each, one of which is at 490 W, and 120 with a slow governor."""
    gpus = {host: [capped(490_000 if host == "gpu004" else 500_000)] * 8 for host in HOSTS}
    slow = dict.fromkeys(HOSTS[:120], "powersave")
    return proposal(tmp_path_factory.mktemp("site"), gpus, governor=slow).plan


def drawn(plan: Plan, view: View, contents: Contents = {}.get, width: int | None = None) -> str:
    blocks = tuple(plan_blocks(plan, view, contents))
    return terminal.render(Sheet(title="", kind="plan", blocks=blocks), width=width)


def shown(plan: Plan, view: View = View.DIFF, width: int | None = None) -> str:
    return drawn(plan, view, width=width)


def given_back(plan: Plan) -> dict[str, list[Actions]]:
    """What is done on each host, in the order in which it is shown."""
    found: dict[str, list[Actions]] = {}
    for each in same_steps(plan):
        for host in each.hosts:
            found.setdefault(host, []).append(each.actions(host))
    return found


def planned(plan: Plan) -> dict[str, list[Actions]]:
    return {host: [s.actions for s in some] for host, some in alike.by_host(plan).items()}


def test_500_hosts_fit_on_one_screen(fleet: Plan) -> None:
    power = replace(fleet, steps=tuple(s for s in fleet.steps if s.fix == "power_limit"))
    text = shown(power, width=120)
    assert len(text.splitlines()) <= 40
    assert "# power_limit on 500 hosts: gpu[001-500] (site)\n" in text
    assert (
        "-power_limit GPU 0-7: 500 W on gpu[001-003,005-500]; 490 W on gpu004\n"
        "+power_limit GPU 0-7: 700 W\n"
    ) in text
    assert text.count("nvidia-smi") == 2
    assert "$ nvidia-smi -i ‹each GPU› -pl 700\n" in text
    assert "+    nvidia-smi -i ‹each GPU, by UUID› -pl 700 || failed=1; \\\n" in text
    assert all(cells(line) <= 120 for line in text.splitlines()[:-3])


def test_each_of_two_changes_is_shown_once(fleet: Plan) -> None:
    text = shown(fleet)
    heads = [line for line in text.splitlines() if line.startswith("# ")]
    assert heads == [
        "# power_limit on 500 hosts: gpu[001-500] (site)",
        "# cpu_governor on 120 hosts: gpu[001-120] (site)",
    ]


def test_every_action_of_every_host_can_be_recovered_from_the_view(fleet: Plan) -> None:
    assert given_back(fleet) == planned(fleet)


def test_the_full_view_names_every_uuid(fleet: Plan) -> None:
    text = shown(fleet, View.FULL)
    for host in HOSTS[::50]:
        assert all(text.count(uuid) == 3 for uuid in uuids(host, 8))
    assert "‹" not in text
    assert sum(line.startswith("$ nvidia-smi") for line in text.splitlines()) == 4000


# --- nothing can hide -------------------------------------------------------------------


def changed(step: Step, place: int, action: Any) -> Step:
    actions = list(step.actions)
    actions[place] = action
    return replace(step, actions=tuple(actions))


def changes(step: Step) -> Iterator[Step]:
    """One step, each time with one thing that is not as on all other hosts."""
    write, unit, *commands = step.actions
    assert isinstance(write, WriteFile) and isinstance(unit, SetUnit)
    one = commands[3]
    assert isinstance(one, RunCommand) and write.content is not None
    words = one.words
    other = uuids("gpu001", 8)[0]
    yield changed(step, 5, replace(one, words=(*words[:-1], "701")))
    yield changed(step, 5, replace(one, words=("nvidia-sm1", *words[1:])))
    yield changed(step, 5, replace(one, words=(words[0], "-i", other, *words[3:])))
    yield changed(step, 5, replace(one, words=(*words, "")))
    yield changed(step, 5, replace(one, seconds=900))
    yield changed(step, 5, commands[2])
    yield changed(step, 0, replace(write, mode=0o777))
    yield changed(step, 0, replace(write, content=write.content.replace("700", "7000", 1)))
    yield changed(step, 0, replace(write, content=write.content + "\n"))
    yield changed(step, 0, replace(write, content=write.content + other))
    yield changed(step, 0, replace(write, content=None))
    yield changed(step, 1, replace(unit, enabled=None, restart=True))
    yield replace(step, actions=(*step.actions, RunCommand(words=("reboot",))))
    yield replace(step, actions=step.actions[:-1])
    yield replace(step, actions=(*step.actions[:2], *reversed(commands)))
    yield replace(step, actions=(write, unit, commands[1], commands[0], *commands[2:]))
    yield replace(step, risk=Risk.REBOOT)
    yield replace(step, expected=600)


def test_one_outlier_of_500_hosts_is_seen_with_its_name(fleet: Plan) -> None:
    before = shown(fleet)
    place = next(n for n, s in enumerate(fleet.steps) if s.id == "gpu250/power_limit/1")
    seen = set()
    for step in changes(fleet.steps[place]):
        steps = list(fleet.steps)
        steps[place] = step
        other = replace(fleet, steps=tuple(steps))
        text = shown(other)
        assert text != before
        assert "gpu250" in text
        assert given_back(other) == planned(other)
        seen.add(text)
    assert len(seen) == len(list(changes(fleet.steps[place])))


def test_another_order_of_steps_on_one_host_is_seen(fleet: Plan) -> None:
    first, second, *rest = fleet.steps
    assert first.host == second.host == "gpu001" and first.fix != second.fix
    other = replace(fleet, steps=(second, first, *rest))
    assert given_back(other) == planned(other)
    heads = [line for line in shown(other).splitlines() if line.startswith("# ")]
    assert heads[:2] == ["# cpu_governor on gpu001 (site)", "# power_limit on gpu001 (site)"]


def test_a_word_that_is_not_a_gpu_uuid_is_shown_unchanged() -> None:
    nodes = {
        f"n{n}": PlannedNode(machine_id="m", boot_id=f"{n}", baseline="b", gpus=("reboot", "now"))
        for n in (1, 2)
    }
    steps = [one(host, RunCommand(words=("reboot", "now")), subjects=()) for host in nodes]
    text = shown(hand_made(nodes, steps))
    assert "$ reboot now\n" in text and "‹" not in text


def test_a_gpu_of_another_host_is_shown_by_its_uuid() -> None:
    nodes = {host: node(host) for host in ("n1", "n2")}
    theirs = uuids("n1", 2)[0]
    steps = [one(host, nvidia_smi(theirs, "-pl", "700"), subjects=()) for host in nodes]
    text = shown(hand_made(nodes, steps))
    risk = "## risk live; wrong\n## set by commands: file /etc/x (not read)\n"
    assert f"# x on n1 (b)\n{risk}-x: 1\n+x: 2\n$ nvidia-smi -i {theirs}" in text
    assert f"# x on n2 (b)\n{risk}-x: 1\n+x: 2\n$ nvidia-smi -i {theirs}" in text


def test_gpus_in_an_order_that_the_steps_contradict_are_shown_by_their_uuids() -> None:
    nodes = {host: node(host) for host in ("n1", "n2")}
    steps = [
        one(host, nvidia_smi(uuids(host, 2)[1], "-pl", "700"), subjects=("GPU 0",),
            resources=(setting(uuids(host, 2)[1], "power_limit_mw"),))
        for host in nodes
    ]  # fmt: skip
    text = shown(hand_made(nodes, steps))
    assert "‹" not in text
    assert all(uuids(host, 2)[1] in text for host in nodes)


def test_text_that_looks_like_a_gpu_placeholder_is_escaped() -> None:
    nodes = {host: node(host) for host in ("n1", "n2")}
    steps = [one(host, RunCommand(words=("echo", "‹each GPU›")), subjects=()) for host in nodes]
    for view in (View.DIFF, View.FULL):
        text = shown(hand_made(nodes, steps), view)
        assert "$ echo '\\u2039each GPU\\u203a'\n" in text
        assert "‹" not in text


def test_a_line_that_is_wrapped_cannot_pass_for_another() -> None:
    nodes = {"n1": node("n1")}
    text = "x" * 75 + " " * 4 + "$ reboot" + "y" * 200 + "\n"
    step = one("n1", WriteFile(path="/etc/x", content=text), subjects=())
    for width in (24, 80, 81, 120):
        rows = drawn(hand_made(nodes, [step]), View.DIFF, width=width)
        assert "\n$ reboot" not in rows
        assert all(cells(row) <= width for row in rows.splitlines() if row[:1] in "+-$↪")
        joined = rows.replace(f"\n{MORE}", "")
        assert f"+{text}" in joined


# --- what differs is named --------------------------------------------------------------


def node(host: str, number: int = 2) -> PlannedNode:
    gpus = tuple(uuids(host, number))
    return PlannedNode(machine_id="m", boot_id=host, baseline="b", gpus=gpus)


def one(host: str, *actions: Any, **more: Any) -> Step:
    given: dict[str, Any] = {
        "id": f"{host}/x/1",
        "host": host,
        "fix": "x",
        "subjects": ("GPU 0",),
        "expected": 2,
        "actual": 1,
        "risk": Risk.LIVE,
        "actions": actions,
        "resources": (Resource(kind="file", name="/etc/x"),),
        "reason": "wrong",
    }
    return Step(**given | more)


def hand_made(nodes: dict[str, PlannedNode], steps: list[Step]) -> Plan:
    return Plan(
        id="0a1b2c3d",
        author="alice",
        created="2026-11-21T00:00:00+00:00",
        expires="2026-11-22T00:00:00+00:00",
        baselines={"b": "1" * 64},
        nodes=nodes,
        steps=tuple(steps),
    )


def test_one_gpu_on_one_host_and_all_on_the_others(tmp_path: Path) -> None:
    hosts = {f"n{n}": [capped(500_000)] * 4 for n in range(1, 9)}
    hosts["n9"] = [{}, {}, capped(500_000), {}]
    plan = proposal(tmp_path, hosts).plan
    text = shown(plan)
    assert (
        "-power_limit: GPU 0-3: 500 W on n[1-8]; GPU 2: 500 W on n9\n+power_limit: 700 W\n" in text
    )
    assert "$ nvidia-smi -i ‹GPUs of list 1› -pl 700\n" in text
    assert (
        "## ‹GPUs of list 1›: this line for each GPU on n[1-8]; GPU 2 on n9, with its UUID\n"
        in text
    )
    assert given_back(plan) == planned(plan)


def test_the_uuids_of_few_gpus_are_named(tmp_path: Path) -> None:
    plan = proposal(tmp_path, {host: [capped(500_000)] * 2 for host in ("n1", "n2")}).plan
    text = shown(plan)
    for host in ("n1", "n2"):
        first, second = uuids(host, 2)
        assert f"## {host}: GPU 0 {first}, GPU 1 {second}\n" in text


def test_a_file_that_is_there_on_some_hosts_is_compared_on_these(tmp_path: Path) -> None:
    path = "/etc/tmpfiles.d/nodevet-cpu-governor.conf"
    old = {"content": "b2xkCg==", "mode": 0o644, "owner": 0, "group": 0}
    held = [State(resource=Resource(kind="file", name=path), exists=True, value=old)]
    hosts = {f"n{n}": [{}] for n in range(1, 6)}
    made = proposal(
        tmp_path, hosts, governor=dict.fromkeys(hosts, "powersave"), held={"n3": held, "n5": held}
    )
    text = drawn(made.plan, View.DIFF, made.contents.get)
    assert "## on n[1-2,4]:\n--- /dev/null\n" in text
    assert f"## on n[3,5]:\n--- {path}\n+++ {path}\n@@\n-old\n+# Written by nodevet.\n" in text
    assert text.count("$ systemd-tmpfiles") == 1


def test_the_present_values_are_listed_with_their_hosts(tmp_path: Path) -> None:
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"
    hosts = {f"n{n}": [{}] for n in range(1, 6)}
    now = {"n1": "[always] madvise never", "n2": "always madvise [never]"}
    held = {
        host: [State(resource=Resource(kind="kernel", name=thp), exists=True, value=value)]
        for host, value in (dict.fromkeys(hosts, now["n1"]) | now).items()
    }
    pages = dict.fromkeys(hosts, "always") | {"n2": "never"}
    text = shown(proposal(tmp_path, hosts, pages=pages, held=held).plan)
    assert f"-{thp}: always on n[1,3-5]; never on n2\n+{thp}: madvise\n" in text


def test_very_many_present_values_are_counted(tmp_path: Path) -> None:
    hosts = {f"n{n:03}": [capped(400_000 + 1000 * n)] for n in range(1, 101)}
    text = shown(proposal(tmp_path, hosts).plan)
    assert "; 412 W on n012; 88 other values on 88 other hosts, which --full shows\n" in text
    assert text.count("nvidia-smi -i") == 2


FSTAB = """\
# /etc/fstab
UUID={host}-root / ext4 defaults 0 1
/dev/swap none swap sw 0 0
UUID={host}-home /home ext4 defaults 0 2
"""


def fstabs(*hosts: str, swap: str = "#/dev/swap", **other: str) -> tuple[Plan, Contents]:
    """Swap is commented out in the table of each host, in which all other lines are its own."""
    steps, contents = [], {}
    for host in hosts:
        old = FSTAB.format(host=host)
        content = base64.b64encode(old.encode()).decode()
        read = {"content": content, "mode": 0o644, "owner": 0, "group": 0}
        file = Resource(kind="file", name="/etc/fstab")
        before, held = to_stored([State(resource=file, exists=True, value=read)])
        contents.update(held)
        new = old.replace("/dev/swap", other.get(host, swap))
        write = WriteFile(path="/etc/fstab", content=new)
        steps.append(one(host, write, subjects=(), before=before, resources=(file,)))
    return hand_made({host: node(host) for host in hosts}, steps), contents.get


def test_the_same_change_to_different_files_of_hosts_is_shown_once() -> None:
    plan, contents = fstabs(*(f"n{n}" for n in range(1, 101)))
    text = drawn(plan, View.DIFF, contents)
    assert (
        "# x on 100 hosts: n[1-100] (b)\n## risk live; wrong\n-x: 1\n+x: 2\n"
        "## the lines around these, which stay, differ between the hosts; see --full\n"
        "--- /etc/fstab\n+++ /etc/fstab\n@@\n"
        "-/dev/swap none swap sw 0 0\n+#/dev/swap none swap sw 0 0\n\nplan "
    ) in text
    found = {host: each.actions(host) for each in same_steps(plan, contents) for host in each.hosts}
    assert found == {step.host: step.actions for step in plan.steps}


def test_a_line_that_changes_differently_on_one_host_is_shown_with_its_name() -> None:
    for other in ("/dev/other", "#/dev/swap\n/dev/more", ""):
        plan, contents = fstabs("n1", "n2", "n3", n2=other)
        text = drawn(plan, View.DIFF, contents)
        assert "# x on 2 hosts: n[1,3] (b)\n" in text and "# x on n2 (b)\n" in text
        steps = same_steps(plan, contents)
        found = {host: each.actions(host) for each in steps for host in each.hosts}
        assert found == {step.host: step.actions for step in plan.steps}


def test_a_file_whose_earlier_lines_are_not_here_is_shown_whole() -> None:
    plan, _ = fstabs("n1", "n2")
    text = shown(plan)
    assert "# x on n1 (b)\n" in text and "# x on n2 (b)\n" in text
    assert "+UUID=n1-root / ext4" in text and "+UUID=n2-home /home" in text


def test_commands_in_gpu_order_and_in_rounds_are_shown_differently() -> None:
    nodes = {host: node(host) for host in ("n1", "n2")}

    def steps(*, in_turn: bool) -> list[Step]:
        found = []
        for host in nodes:
            both = [
                [nvidia_smi(uuid, word) for word in ("-lgc", "-lmc")] for uuid in uuids(host, 2)
            ]
            rounds = both if in_turn else list(zip(*both, strict=True))
            found.append(one(host, *(each for some in rounds for each in some), subjects=()))
        return found

    turns, rounds = (hand_made(nodes, steps(in_turn=each)) for each in (True, False))
    assert "$ nvidia-smi -i ‹each GPU, 2 lines at a time› -lgc\n" in shown(turns)
    assert "$ nvidia-smi -i ‹each GPU› -lgc\n" in shown(rounds)
    assert given_back(turns) == planned(turns) and given_back(rounds) == planned(rounds)


@pytest.mark.parametrize("seed", range(20))
def test_any_texts_can_be_folded_and_unfolded(seed: int) -> None:
    some = random.Random(seed)
    own = uuids("n1", 3)
    every = [*own, *uuids("n2", 2)]
    words = ["nvidia-smi -i ", " -pl 700", "L", "A", "", " ", "GPU-", "‹each GPU›", "\n", '"\\']
    for _ in range(50):
        texts = [
            "".join(some.choice(some.choice((every, words))) for _ in range(some.randrange(5)))
            for _ in range(some.randrange(12))
        ]
        assert list(unfold(fold_texts(texts, own))) == texts


@pytest.mark.parametrize("seed", range(10))
def test_every_action_of_a_random_plan_can_be_recovered_from_the_view(seed: int) -> None:
    """Steps of any fixes in any order, with few words, so that many are alike."""
    some = random.Random(seed)
    nodes = {f"n{n}": node(f"n{n}", some.choice((1, 2, 8))) for n in range(12)}
    steps = []
    for host, planned_node in nodes.items():
        for number, fix in enumerate(some.sample(["a", "b", "c", "a"], some.randrange(5)), 1):
            listed = [
                some.choice(
                    (
                        *(nvidia_smi(uuid, "-pl", "7") for uuid in planned_node.gpus),
                        WriteFile(path="/etc/x", content="\n".join(planned_node.gpus)),
                        WriteFile(path="/etc/x", content=None),
                        WriteFile(path="/etc/x", content=""),
                        SetUnit(name="x.service", enabled=True),
                    )
                )
                for _ in range(some.randrange(1, 6))
            ]
            given = {"fix": fix, "id": f"{host}/{fix}/{number}", "subjects": ()}
            steps.append(one(host, *listed, **given))
    some.shuffle(steps)
    plan = hand_made(nodes, steps)
    assert given_back(plan) == planned(plan)
    assert shown(plan)


def test_no_texts_are_folded_into_an_empty_list() -> None:
    assert fold_texts([], []) == Folded((), ())
    assert same_steps(hand_made({}, [])) == ()


def test_the_summary_promises_nothing_about_the_effects_of_commands() -> None:
    standing = Standing(risk=Risk.LIVE, needed=1, people=(), may=())
    now = datetime(2026, 11, 21, 1, tzinfo=timezone.utc)

    def told(*actions: Any) -> dict[str, str]:
        plan = hand_made({"n1": node("n1")}, [one("n1", *actions)])
        return dict(summary.facts(plan, standing, now, rollback=False))

    write = WriteFile(path="/etc/x", content="")
    quiet = "no unit is stopped or restarted, no host is rebooted"
    assert told(write)["interrupts"] == f"nothing: {quiet}"
    reboots = told(write, RunCommand(words=("systemctl", "reboot")))
    assert reboots["interrupts"] == f"{quiet}, unless a command does it"
    assert reboots["runs"] == "systemctl (1 ×)"
    around = (SetUnit(name="a.service", running=False), SetUnit(name="a.service", running=True))
    both = told(around[0], SetUnit(name="b.service", restart=True), around[1])["interrupts"]
    assert both == "stops and starts again a.service on 1 host, restarts b.service on 1 host"
    assert told(SetUnit(name="c.service", enabled=False, running=False))["interrupts"] == (
        "stops c.service on 1 host"
    )


def test_irreversible_actions_are_reported_first() -> None:
    action = EndProcess(pid=4711, started_s=1.0, uid=1000, name="python")
    more = one("n1", action, resources=(action.resource,))
    plan = hand_made({"n1": node("n1")}, [more])
    standing = Standing(risk=Risk.IDLE, needed=2, one_way=True, people=(), may=("bob",))
    now = datetime(2026, 11, 21, 1, tzinfo=timezone.utc)
    told = dict(summary.facts(plan, standing, now, rollback=False))
    assert told["one-way"] == f"cannot be undone: 1 action of {more.fix}"
    assert told["interrupts"] == "end process 4711 (python, uid 1000) on 1 host"
    assert told["approvals"].startswith(
        "needs 2 approvals by different people for a step that cannot be undone; has none"
    )
    for view in View:
        assert "cannot be undone" in shown(plan, view)
