"""The table of a run of fixes: hosts folded, differences named, contents compared, what is next."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.printable import cells
from nodevet.fix.formats import FixRun
from nodevet.fix.formats import render as rendered
from nodevet.fix.next_steps import next_steps
from nodevet.fixing.model import Risk
from nodevet.fixing.result import (
    CANARY_NOT_REBOOTED,
    CANARY_PENDING,
    CONFIRMED,
    LEFT_OUT,
    NO_FURTHER,
    HostResult,
    Outcome,
    Ran,
    Refusal,
    Result,
    StepResult,
)
from nodevet.model import Value
from nodevet.resource import Resource, RunCommand, State

UNIT = "/etc/systemd/system/nodevet-power-limit.service"
OLD = "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/old\n"
NEW = "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/new\n"
TEXTS = {hashlib.sha256(text.encode()).hexdigest(): text.encode() for text in (OLD, NEW)}


def render(
    form: str, result: Result, *, colour: bool = False, width: int | None = None, **run: Any
) -> str:
    return rendered(form, result, FixRun(**run), colour=colour, width=width)


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-1111-2222-{number:012x}"


def state(kind: str, name: str, value: Any) -> State:
    return State(resource=Resource(kind=kind, name=name), exists=value is not None, value=value)


def file(text: str) -> State:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    value = {"sha256": sha256, "size": len(text), "mode": 0o644, "owner": 0, "group": 0}
    return state("file", UNIT, value)


def power(host: str, number: int, before: Value = 500, **rest: Any) -> StepResult:
    """As it is made on eight GPUs with ids of their own."""
    ids = [uuid(8 * number + gpu) for gpu in range(8)]
    milli = int(before) * 1000 if isinstance(before, int) else before
    given: dict[str, Any] = {
        "id": f"{host}/power_limit/1", "fix": "power_limit", "expected": 700, "actual": before,
        "subjects": tuple(f"GPU {gpu}" for gpu in range(8)), "unit": "W", "risk": Risk.LIVE,
        "outcome": Outcome.CHANGED,
        "before": (file(OLD), *(state("gpu", f"{id}:power_limit_mw", milli) for id in ids)),
        "after": (file(NEW), *(state("gpu", f"{id}:power_limit_mw", 700000) for id in ids)),
        "ran": tuple(
            Ran(action=RunCommand(words=("nvidia-smi", "-i", id, "-pl", "700")), ok=True, code=0)
            for id in ids
        ),
        "verdicts": {f"GPU {gpu}": "ok" for gpu in range(8)},
    }  # fmt: skip
    return StepResult(**given | rest)


def host(name: str, outcome: Outcome, *steps: StepResult, **rest: Any) -> HostResult:
    return HostResult(host=name, outcome=outcome, steps=steps, **rest)


def run(hosts: Sequence[HostResult], **rest: Any) -> Result:
    return Result(
        nodevet="0.1", plan="p1", digest="d" * 64, author="ann", started="2026-01-02T03:04:05Z",
        seconds=61.5, hosts=tuple(hosts), **rest,
    )  # fmt: skip


def changed(name: str, number: int, **rest: Any) -> HostResult:
    return host(name, Outcome.CHANGED, power(name, number, **rest), canary=number == 1)


def test_500_alike_hosts_are_one_screen() -> None:
    hosts = [changed(f"gpu{number:03}", number) for number in range(1, 501)]
    text = render("table", run(hosts), contents=TEXTS.get, width=100)
    assert text.startswith("CHANGED  gpu[001-500]\n\ngpu[001-500] (canary: gpu001)\n")
    assert len(text.splitlines()) <= 24, text
    assert "    ran    nvidia-smi -i GPU-… -pl 700 ×8\n" in text
    assert "    now    gpu GPU-…:power_limit_mw: 500 W → 700 W ×8\n" in text


def test_changes_of_only_some_hosts_name_these_hosts() -> None:
    hosts = [changed(f"gpu{n}", n, before=490 if n == 4 else 500) for n in range(1, 7)]
    text = render("table", run(hosts))
    assert "  500 W → 700 W on GPU 0-7  on gpu[1-3,5-6]\n" in text
    assert "  490 W → 700 W on GPU 0-7  on gpu4\n" in text
    many = [changed(f"gpu{n}", n, before=400 + n) for n in range(1, 41)]
    text = render("table", run(many), folder="runs/x-1")
    assert "and 37 more that differ by host: nodevet report runs/x-1 --format diff" in text
    assert len(text.splitlines()) < 30


def test_hosts_that_ended_otherwise_are_blocks_of_their_own() -> None:
    failed = [
        host(
            f"n{number}",
            Outcome.FAILED,
            power(f"n{number}", number, outcome=Outcome.FAILED, why="the driver refused"),
            why=f"the driver refused; n{number}/cpu_governor/1 is changed, and stays",
        )
        for number in (1, 2)
    ]
    text = render("table", run([*failed, changed("n3", 3)]))
    assert text.startswith(
        "FAILED AND ROLLED BACK  n[1-2]  the driver refused; cpu_governor/1 is changed, and stays\n"
        "CHANGED                 n3\n\nn[1-2]\n"
    ), "a host's own name in a reason does not keep it apart"
    assert "\nn3\n" in text and text.count("the driver refused") == 2


def test_the_name_of_the_host_is_removed_only_from_names_of_steps() -> None:
    why = "n1/a/1: /runs/n1/x and /opt/man1/y (n1/b/1)"
    text = render("table", run([host("n1", Outcome.REFUSED, why=why)]))
    assert "n1  a/1: /runs/n1/x and /opt/man1/y (b/1)\n" in text


@pytest.mark.parametrize("form", ["markdown", "junit"])
def test_other_formats_show_what_became_of_a_file_too(form: str) -> None:
    text = render(form, run([changed("n1", 1)]), contents=TEXTS.get)
    assert "-ExecStart=/bin/old" in text
    assert "+ExecStart=/bin/new" in text
    assert "ExecStart" not in render(form, run([changed("n1", 1)])), "if it is not here"


def test_the_content_of_a_file_does_not_end_a_block_of_markdown() -> None:
    hostile = "````\n# a heading\n"
    texts = dict(TEXTS) | {hashlib.sha256(hostile.encode()).hexdigest(): hostile.encode()}
    step = replace(power("n1", 1), after=(file(hostile),), before=(file(OLD),))
    text = render("markdown", run([host("n1", Outcome.CHANGED, step)]), contents=texts.get)
    assert "\n`````diff\n" in text
    assert "\n# a heading" not in text


def test_contents_of_changed_files_are_a_diff() -> None:
    text = render("table", run([changed("n1", 1), changed("n2", 2)]), contents=TEXTS.get)
    assert (
        f"""\
    now    file {UNIT}: changed
    now    gpu GPU-…:power_limit_mw: 500 W → 700 W ×8

    file {UNIT}
    @@ -2,3 +2,3 @@
     After=a.service
     [Service]
    -ExecStart=/bin/old
    +ExecStart=/bin/new
"""
        in text
    )
    assert "other content" in render("table", run([changed("n1", 1)])), "if it is not here"
    made = power("n1", 1)
    made = replace(made, before=(state("file", UNIT, None), *made.before[1:]))
    text = render("table", run([host("n1", Outcome.CHANGED, made)]), contents=TEXTS.get)
    assert "absent → a file of mode 644, 4 lines\n" in text
    gone = replace(made, before=made.after, after=(state("file", UNIT, None), *made.after[1:]))
    text = render("table", run([host("n1", Outcome.CHANGED, gone)]), contents=TEXTS.get)
    assert "a file of mode 644, 4 lines → absent\n" in text


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    why = "a reason that goes on and on " * 6
    hosts = [host(f"gpu{n:03}x{n * n}", Outcome.REFUSED, why=why) for n in range(40)]
    hosts += [changed("n1", 1), changed("n2", 2)]
    text = render("table", run(hosts), width=width, contents=TEXTS.get)
    words = [line for line in text.splitlines() if cells(line) > width]
    assert not [line for line in words if len(line.split()) > 2 and width >= 80], words
    whole = render("table", run(hosts), contents=TEXTS.get)
    assert "".join(text.split()) == "".join(whole.split()), "nothing is lost"


def test_outcomes_and_lines_of_a_diff_have_their_colours() -> None:
    hosts = [changed("n1", 1), host("n2", Outcome.ROLLBACK_FAILED, why="odd\x1b[2K")]
    text = render("table", run(hosts), colour=True, contents=TEXTS.get)
    assert "\x1b[31mROLLBACK FAILED\x1b[0m  n2  odd\\x1b[2K" in text
    assert "\x1b[32mCHANGED\x1b[0m          n1" in text
    assert "\x1b[31m-ExecStart=/bin/old\x1b[0m" in text
    assert "\x1b[32m+ExecStart=/bin/new\x1b[0m" in text
    assert "\x1b" not in render("table", run(hosts), contents=TEXTS.get)


RESUME = "nodevet apply --resume runs/x-1"
AGAIN = "nodevet plan -i fleet.yaml --limit 'n[1-2]'"
APPLY = "nodevet apply runs/x-1/plan.json -i fleet.yaml --host 'n[1-2]'"
BACK = "nodevet rollback runs/x-1 --host 'n[1-2]'"


@pytest.mark.parametrize(
    ("outcome", "rest", "command"),
    [
        (Outcome.ROLLBACK_FAILED, {}, BACK),
        (Outcome.UNKNOWN, {}, RESUME),
        (Outcome.FAILED, {}, f"{AGAIN} --again"),
        (Outcome.REFUSED, {"refusal": Refusal.STALE}, AGAIN),
        (Outcome.REFUSED, {"refusal": Refusal.MANAGER}, AGAIN),
        (Outcome.REFUSED, {"refusal": Refusal.LOCKED}, RESUME),
        (Outcome.REFUSED, {"refusal": Refusal.UNREACHABLE}, RESUME),
        (Outcome.PARTIAL, {"refusal": Refusal.PRECONDITION}, APPLY),
        (Outcome.NOT_ATTEMPTED, {"why": LEFT_OUT}, APPLY),
        (Outcome.NOT_ATTEMPTED, {"why": "interrupted"}, RESUME),
        (Outcome.NOT_ATTEMPTED, {"why": "the canary failed"}, APPLY),
        (Outcome.NOT_ATTEMPTED, {"why": "2 nodes failed, but only 1 may"}, APPLY),
        (Outcome.NOT_ATTEMPTED, {"why": "the plan expired"}, AGAIN),
        (Outcome.NOT_ATTEMPTED, {"why": f"{NO_FURTHER}: the disk is full"}, RESUME),
        (Outcome.NOT_ATTEMPTED, {"why": f"{CANARY_PENDING}: later"}, RESUME),
        (Outcome.NOT_ATTEMPTED, {"why": f"{CANARY_NOT_REBOOTED}: busy"}, RESUME),
        (Outcome.PENDING, {}, "nodevet check -i fleet.yaml --limit 'n[1-2]'"),
    ],
)
def test_each_outcome_says_the_next_command(
    outcome: Outcome, rest: dict[str, Any], command: str
) -> None:
    hosts = [host(name, outcome, **rest) for name in ("n1", "n2")]
    (found,) = next_steps(run(hosts), "runs/x-1", ["fleet.yaml"])
    assert (found.hosts, found.command) == (("n1", "n2"), command)
    assert found.text == f"n[1-2]: {found.why}: {command}"
    text = render("table", run(hosts), folder="runs/x-1", inventories=["fleet.yaml"])
    assert text.endswith(f"next: {found.text}\n")


@pytest.mark.parametrize(
    ("outcome", "rest", "command"),
    [
        (Outcome.FAILED, {}, "nodevet apply @local --again"),
        (Outcome.REFUSED, {"refusal": Refusal.LOCKED}, "nodevet apply @local"),
        (Outcome.NOT_ATTEMPTED, {"why": "interrupted"}, "nodevet apply @local"),
        (Outcome.UNKNOWN, {}, "nodevet apply --resume runs/x-1"),
        (Outcome.ROLLBACK_FAILED, {}, "nodevet rollback runs/x-1 --host n1"),
        (Outcome.PENDING, {}, "nodevet check @local"),
    ],
)
def test_the_next_step_after_a_local_fix_is_another_local_fix(
    outcome: Outcome, rest: dict[str, Any], command: str
) -> None:
    one = run([host("n1", outcome, **rest)], options={CONFIRMED: {"user": "root", "uid": 0}})
    (found,) = next_steps(one, "runs/x-1", ())
    assert found.command == command
    assert ("with the same options" in found.why) is command.startswith("nodevet apply @local")


def test_hosts_whose_names_are_not_found_need_an_inventory() -> None:
    lost = host("n1", Outcome.REFUSED, refusal=Refusal.UNREACHABLE, why="name not found")
    (found,) = next_steps(run([lost]), "runs/x-1", ())
    assert found.command == "nodevet apply --resume runs/x-1 -i INVENTORY"


@pytest.mark.parametrize("outcome", Outcome)
def test_the_next_step_of_an_incomplete_rollback_continues_it(outcome: Outcome) -> None:
    one = run([host("n1", outcome)], kind="rollback")
    found = next_steps(one, "runs/x-1")
    done = outcome in (
        Outcome.ROLLED_BACK, Outcome.UNCHANGED, Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT,
        Outcome.FAILED,
    )  # fmt: skip
    assert bool(found) is not done
    for step in found:
        assert step.command in ("", "nodevet rollback runs/x-1 --host n1")


def test_next_steps_after_irreversible_actions_suspect_no_other_change() -> None:
    ended = "end process 4711 (python, uid 1000): cannot be undone"
    one = run([host("n1", Outcome.PARTIAL, why=f"{ended}; {ended}")], kind="rollback")
    assert next_steps(one, "runs/x-1") == []
    both = run([host("n1", Outcome.PARTIAL, why=f"{ended}; file /x is absent")], kind="rollback")
    (found,) = next_steps(both, "runs/x-1")
    assert "something else changed it since" in found.why


def test_next_commands_name_hosts_unless_their_names_are_unsafe() -> None:
    (found,) = next_steps(run([host("n1", Outcome.FAILED)]), "runs/x-1", ())
    assert found.command == "nodevet plan n1 --again"
    (found,) = next_steps(run([host("odd name; rm", Outcome.UNKNOWN)], kind="rollback"), "runs/x-1")
    assert found.command == "nodevet rollback runs/x-1 --host HOSTS"
    assert next_steps(run([host("n1", Outcome.CHANGED), host("n2", Outcome.UNCHANGED)])) == []
