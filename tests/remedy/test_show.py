"""A plan as it is read: folded and as a diff, with what is not in it below."""

import base64
import re
from typing import Any

import pytest
from msgspec.structs import replace
from shown_plan import drawn, shown_plan, unknown

from nodevet.base.printable import cells
from nodevet.fix.model import Conflict, Plan, PlannedNode, Step
from nodevet.fix.plan import render, unplanned
from nodevet.fix.plan.candidates import UnfixedFinding, Withheld
from nodevet.fix.plan.planner import Proposal
from nodevet.fix.plan.render import View
from nodevet.fix.plan_sheet import plan_blocks
from nodevet.fix.settings import Rollout
from nodevet.fixing.model import Risk
from nodevet.model import Finding, HostReport, Status, Subject, fail
from nodevet.resource import Action, Resource, RunCommand, State, kernel
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit
from nodevet.sheet.host_rows import table
from nodevet.sheet.text import nodeset


def step(host: str = "gpu001", fix: str = "power_limit", *actions: Action, **more: Any) -> Step:
    given: dict[str, Any] = {
        "id": f"{host}/{fix}/1",
        "subjects": (),
        "expected": 700,
        "actual": 500,
        "unit": "W",
        "risk": Risk.LIVE,
        "resources": (),
        "reason": "500 W, expected 700 W (site.yaml:4)",
    }
    return Step(host=host, fix=fix, actions=actions, **given | more)


def plan(*steps: Step, conflicts: tuple[Conflict, ...] = ()) -> Plan:
    hosts = {each.host for each in steps}
    return Plan(
        nodevet="0.1",
        id="0a1b2c3d",
        author="alice",
        created="2026-11-20T22:00:00+00:00",
        expires="2026-11-21T22:00:00+00:00",
        baselines={"h100": "1" * 64},
        nodes={host: PlannedNode(machine_id="m", boot_id="b", baseline="h100") for host in hosts},
        steps=steps,
        conflicts=conflicts,
    )


def folded(plan: Plan) -> str:
    return shown_plan(plan, View.FOLD)


def diff(plan: Plan) -> str:
    return shown_plan(plan, View.DIFF)


def rest(proposal: Proposal) -> str:
    return drawn(unplanned.unplanned_blocks(proposal))


GPUS = tuple(f"GPU {n}" for n in range(8))


def test_equal_changes_are_one_line() -> None:
    steps = [step(f"gpu{n:03}", subjects=GPUS) for n in range(1, 8)]
    steps.append(step("gpu009", subjects=("GPU 4",), actual=450))
    assert folded(plan(*steps)) == (
        "set power_limit  500 W → 700 W  gpu[001-007] 56 GPUs  risk live\n"
        "set power_limit  450 W → 700 W  gpu009 GPU 4          risk live\n"
        "\n"
        "plan 0a1b2c3d: 8 steps on 8 hosts · risk live · by alice"
        " · expires 2026-11-21 22:00 UTC\n"
        "applied by nodevet 0.1: canary 1 · batch 10 · max-fail 0 · settle 5s"
        " · no drain-hook\n"
    )


def test_d23_a_plan_shows_every_option_of_its_rollout() -> None:
    careful = Rollout(
        canary=2,
        batch=3,
        max_fail=1,
        pause=60.0,
        settle=0.5,
        verify_reboot=True,
        reboot_timeout=1800.0,
        boot_settle=10.0,
        holders="python3,job.service\x1b[2J",
        drain_hook="drain --now\x1b[2J",
    )
    told = folded(replace(plan(step("gpu001"), step("gpu002")), rollout=careful))
    assert "· risk reboot ·" in told
    assert told.splitlines()[-1] == (
        "applied by nodevet 0.1: canary 2 · batch 3 · max-fail 1 · pause 1m · settle 0.5s"
        " · verify-reboot · reboot-timeout 30m · boot-settle 10s"
        " · holders python3,job.service\\x1b[2J · drain-hook drain --now\\x1b[2J"
        " · drain-timeout 30m"
    )


def test_a_plan_for_one_host_shows_no_option_for_several_hosts() -> None:
    told = folded(replace(plan(step()), rollout=Rollout(canary=2, pause=60.0)))
    assert told.splitlines()[-1] == "applied by nodevet 0.1: settle 5s · no drain-hook"


def test_a_plan_shows_when_each_step_is_effective_and_its_note() -> None:
    one = step(fix="ecc_mode", expected=True, actual=False, unit="", risk=Risk.DRAIN)
    told = folded(
        plan(
            step(**{"fix": "driver_version", "effective": "reboot", "risk": Risk.REBOOT}),
            Step(**{f: getattr(one, f) for f in one.__struct_fields__} | {"effective": "reset"}),
            step(note="persistence mode is off"),
        )
    )
    assert "risk reboot; effective after a reboot" in told
    assert "off → on" in told and "risk drain; effective after a GPU reset" in told
    assert "risk live; persistence mode is off" in told
    assert "3 steps on 1 host · risk reboot" in told


def test_conflicts_are_reported_once_with_their_hosts() -> None:
    found = tuple(
        Conflict(host=host, fix="cpu_governor", why="managed by tuned", advice="disable it there")
        for host in ("gpu001", "gpu002")
    )
    assert folded(plan(conflicts=found)) == (
        "Not planned:\n"
        "  cpu_governor  gpu[001-002]  managed by tuned; advice: disable it there\n\nNo steps\n"
    )


def seen(kind: str, name: str, value: Any = None, *, exists: bool = True) -> State:
    return State(resource=Resource(kind=kind, name=name), exists=exists, value=value)


def held(path: str, text: str, **rest: Any) -> State:
    content = base64.b64encode(text.encode()).decode()
    return seen("file", path, {"content": content, "mode": 0o644, "owner": 0, "group": 0} | rest)


@pytest.mark.parametrize("content", ["YQ==\u200b", "Y", 5])
def test_a_diff_is_shown_even_if_the_earlier_content_is_not_base64(content: Any) -> None:
    was = seen("file", "/etc/x", {"content": content, "mode": 0o644, "owner": 0, "group": 0})
    write = WriteFile(path="/etc/x", content="new\n")
    assert "+new\n" in diff(plan(step("gpu001", "x", write, before=(was,))))


def test_a_host_as_a_diff() -> None:
    path = "/etc/systemd/system/nodevet-power-limit.service"
    actions = (
        WriteFile(path=path, content="[Unit]\nDescription=x\n"),
        SetUnit(name="nodevet-power-limit.service", enabled=True),
        RunCommand(words=("nvidia-smi", "-i", "GPU-1", "-pl", "700")),
        RunCommand(words=("sh", "-c", "echo 'a b'; true")),
    )
    before = (
        seen("file", path, exists=False),
        seen("unit", "nodevet-power-limit.service", exists=False),
    )
    steps = [
        step(host, "power_limit", *actions, subjects=GPUS[:2], before=before, note="mind")
        for host in ("gpu001", "gpu002")
    ]
    assert diff(plan(*steps)).splitlines()[:-3] == [
        "# power_limit on 2 hosts: gpu[001-002] (h100)",
        "## risk live; mind; 500 W, expected 700 W (site.yaml:4)",
        "-power_limit GPU 0-1: 500 W",
        "+power_limit GPU 0-1: 700 W",
        "--- /dev/null",
        f"+++ {path}",
        "+[Unit]",
        "+Description=x",
        "-nodevet-power-limit.service: (absent)",
        "+nodevet-power-limit.service: enabled",
        "$ nvidia-smi -i GPU-1 -pl 700",
        "$ sh -c 'echo '\"'\"'a b'\"'\"'; true'",
    ]


def lines(action: Action, *before: State) -> list[str]:
    """What one action shows."""
    return list(render.step_lines(step("n", "x", action, before=before)))[4:]


def test_the_diff_of_an_existing_file_shows_its_changed_lines_and_mode() -> None:
    text = "".join(f"{n}\n" for n in range(9))
    action = WriteFile(path="/etc/fstab", content=text.replace("4\n", "#4\n"), mode=0o600)
    assert lines(action, held("/etc/fstab", text)) == [
        "--- /etc/fstab",
        "+++ /etc/fstab",
        "@@ -2,7 +2,7 @@",
        *(" 1", " 2", " 3", "-4", "+#4", " 5", " 6", " 7"),
        "-/etc/fstab: mode 0644, owner 0, group 0",
        "+/etc/fstab: mode 0600, owner 0, group 0",
    ]


def test_the_diff_of_a_removed_file_shows_its_lost_lines() -> None:
    assert lines(WriteFile(path="/x", content=None), held("/x", "a")) == [
        "--- /x",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-a  (no newline at its end)",
    ]


def test_the_diff_shows_an_empty_file_that_is_created_or_removed() -> None:
    assert lines(WriteFile(path="/x", content=None), held("/x", "")) == ["--- /x", "+++ /dev/null"]
    assert lines(WriteFile(path="/x", content="")) == [
        "--- /x  (its content was not read)",
        "+++ /x",
    ]


def test_the_diff_of_a_new_file_shows_an_unusual_mode() -> None:
    shown = lines(WriteFile(path="/x", content="", mode=0o4755), seen("file", "/x", exists=False))
    assert shown == ["--- /dev/null", "+++ /x", "+/x: mode 4755, owner 0, group 0"]


def test_content_that_is_not_text_is_reported() -> None:
    binary = seen("file", "/x", {"content": "//4=", "mode": 0o644, "owner": 0, "group": 0})
    assert (
        lines(WriteFile(path="/x", content="a\n"), binary)[0] == "--- /x  (its content is not text)"
    )


def test_kernel_files_that_differ_in_a_number_share_a_line() -> None:
    paths = [f"/sys/cpu/policy{n}/governor" for n in (0, 1, 2, 10)]
    before = [seen("kernel", path, "powersave") for path in paths[:3]]
    before.append(seen("kernel", paths[3], "always [madvise] never"))
    shown = list(
        render.step_lines(
            step(
                "n", "x", *(WriteKernel(path=p, value="fast") for p in paths), before=tuple(before)
            )
        )
    )
    assert shown[4:] == [
        "-/sys/cpu/policy[0-2]/governor: powersave",
        "+/sys/cpu/policy[0-2]/governor: fast",
        "-/sys/cpu/policy10/governor: madvise",
        "+/sys/cpu/policy10/governor: fast",
    ]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a/1/b/2", "/a/2/b/2"], ["/a/[1-2]/b/2"]),
        (["/a/1/b/1", "/a/2/b/2"], ["/a/1/b/1", "/a/2/b/2"]),
        (["/a/01", "/a/02"], ["/a/[01-02]"]),
        (["/a/01", "/a/2"], ["/a/[2,01]"]),
        (["/a", "/b"], ["/a", "/b"]),
        (["/a1", "/a1"], ["/a1"]),
    ],
)
def test_folded_paths_name_exactly_what_was_given(paths: list[str], expected: list[str]) -> None:
    assert list(kernel.fold_paths(paths)) == expected


@pytest.mark.parametrize(
    ("action", "before", "shown"),
    [
        (
            SetUnit(name="a", enabled=True, running=True, masked=False),
            {"enabled": "disabled", "active": "inactive", "masked": False},
            ["-a: disabled, inactive", "+a: enabled, running, not masked"],
        ),
        (
            SetUnit(name="a", enabled=False, running=False, masked=True),
            {"enabled": True, "active": True, "masked": True},
            ["-a: enabled, running, masked", "+a: disabled, stopped, masked"],
        ),
        (
            SetUnit(name="a", restart=True),
            {"enabled": "static", "active": "active"},
            ["-a: static, active", "+a: restarted if it runs"],
        ),
        (SetUnit(name="a"), None, ["-a: (not read)", "+a: as it is"]),
    ],
)
def test_units(action: SetUnit, before: Any, shown: list[str]) -> None:
    assert lines(action, seen("unit", "a", before)) == shown


EVIL = "x\x1b[2K\n# forged\u202e"


def test_hostile_text_stays_on_its_line_and_is_visible() -> None:
    actions: tuple[Action, ...] = (
        WriteFile(path=f"/etc/{EVIL}", content=f"{EVIL}\r\n"),
        WriteKernel(path=f"/sys/{EVIL}", value=EVIL),
        SetUnit(name=EVIL, running=True),
        RunCommand(words=(EVIL,)),
    )
    evil = step(
        EVIL, EVIL, *actions, subjects=(EVIL,), expected=EVIL, actual={EVIL: EVIL}, note=EVIL,
        unit=EVIL, reason=EVIL, before=(held("/x", EVIL), seen("unit", EVIL, {"enabled": EVIL})),
    )  # fmt: skip
    found = Conflict(host=EVIL, fix=EVIL, why=EVIL, advice=EVIL)
    proposal = Proposal(
        plan=plan(evil, conflicts=(found,)),
        withheld=(Withheld(host=EVIL, fix=EVIL, findings=1),),
        left=(UnfixedFinding(host=EVIL, finding=finding(EVIL, EVIL, advice=EVIL)),),
        unvetted=(HostReport(host=EVIL, status=Status.TIMEOUT, why=EVIL),),
    )
    for text in (folded(proposal.plan), diff(proposal.plan), rest(proposal)):
        assert "\\x1b[2K" in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert "# forged" not in [line[: len("# forged")] for line in text.split("\n")]
    added = [row for row in diff(proposal.plan).split("\n") if row.startswith("+# forged")]
    assert added == ["+# forged\\u202e\\r"]  # content of a file: a line of it, marked as added


def finding(check: str, identity: str, **more: Any) -> Finding:
    return fail(Subject(kind="gpu", id=identity), check=check, expected="x16", actual="x8", **more)


def test_what_is_not_planned_is_reported_with_its_reason() -> None:
    proposal = Proposal(
        plan=plan(),
        left=tuple(
            UnfixedFinding(host=host, finding=finding("pcie_link", "4", advice="another slot"))
            for host in ("gpu013", "gpu014")
        ),
        withheld=(
            Withheld(host="gpu001", fix="cpu_governor", findings=2),
            Withheld(host="gpu002", fix="ecc_mode", findings=8, risk=Risk.DRAIN),
            Withheld(host="gpu002", fix="cpu_governor", findings=1),
        ),
        unvetted=(
            HostReport(host="gpu020", status=Status.UNREACHABLE, why="refused"),
            HostReport(host="gpu021", status=Status.VETTED),
        ),
        unknown=2,
    )
    assert rest(proposal) == (
        "No fix available:\n"
        "  pcie_link  x8, expected x16  gpu[013-014] GPU 4  advice: another slot\n"
        "\n"
        "Fix available, not allowed by the baseline:\n"
        "  cpu_governor  3 findings  gpu[001-002]  --fix cpu_governor\n"
        "\n"
        "Fix available, above the allowed risk:\n"
        "  ecc_mode  8 findings  gpu002  its risk is drain: --max-risk drain\n"
        "\n"
        "Not checked, so not planned:\n"
        "  unknown      gpu021  nothing was judged: no expectations\n"
        "  unreachable  gpu020  refused\n"
        "\n"
        "2 findings could not be judged; `nodevet check` names them\n"
    )
    assert "not everything could be judged" in unplanned.conclusion(proposal)


def test_the_conclusion_of_nothing_to_do() -> None:
    assert unplanned.conclusion(Proposal(plan=plan())) == "Nothing to do"
    assert [*unplanned.unplanned_blocks(Proposal(plan=plan()))] == []
    left = Proposal(plan=plan(), left=(UnfixedFinding(host="n", finding=finding("a", "1")),))
    assert unplanned.conclusion(left) == "Nothing to do: no fix for the failures is allowed"


def test_hosts_are_cut_before_reasons() -> None:
    hosts = [f"gpu{n}" for n in range(1, 900, 7)]
    why = "conflict: kernel /sys/a is also managed by unit tuned.service, /etc/cron.d/power:3"
    found = tuple(Conflict(host=h, fix="power_limit", why=why, advice="disable it") for h in hosts)
    for width in (40, 80, 120):
        rows = [*table(render.conflicts(found), width, "  ")]
        assert all(cells(row) <= width for row in rows)
        assert rows[0].startswith("  power_limit  gpu[1,8,15,")
        assert rows[0].endswith("… (129 hosts)")
        assert " ".join(row.strip() for row in rows[1:]) == f"{why}; advice: disable it"
    (row,) = table(render.conflicts(found))
    assert nodeset(hosts) in row and row.endswith(f"{why}; advice: disable it")


def test_conflicts_that_differ_only_in_a_gpu_share_a_row() -> None:
    uuid = "GPU-0d87a2aa-b04d-2f64-e95a-ed60d354543{}"
    found = tuple(
        Conflict(host=f"n{n}", fix="x", why=f"conflict: gpu {uuid.format(n)}:power_limit_mw")
        for n in (1, 2)
    )
    assert [*table(render.conflicts(found))] == ["x  n[1-2]  conflict: gpu GPU-…:power_limit_mw"]


def test_many_present_values_are_few_rows() -> None:
    steps = [step(f"n{n:02}", subjects=("GPU 0",), actual=400 + n) for n in range(20)]
    rows = folded(plan(*steps)).split("\n\n")[0].splitlines()
    assert len(rows) == 6
    assert rows[-1] == "set power_limit  15 other values → 700 W  n[05-19] GPU 0  risk live"


@pytest.mark.parametrize(
    ("risk", "code"), [(Risk.LIVE, ""), (Risk.DRAIN, "33"), (Risk.REBOOT, "31")]
)
def test_a_risk_that_ends_jobs_is_coloured(risk: Risk, code: str) -> None:
    blocks = [*plan_blocks(plan(step(risk=risk)), View.FOLD, unknown)]
    plain, colour = drawn(blocks), drawn(blocks, colour=True)
    told = f"risk {risk.value}"
    assert colour.count("\x1b") == (2 if code else 0)
    assert (f"\x1b[{code}m{told}\x1b[0m" in colour) is bool(code)
    assert re.sub(r"\x1b\[[0-9]*m", "", colour) == plain


def test_a_proposal_suggests_which_fixes_to_add_to_which_baseline() -> None:
    withheld = tuple(
        Withheld(host=host, fix=fix, findings=1, baseline=baseline)
        for host, fix, baseline in (("a", "x", "site"), ("b", "y", "site"), ("c", "z", "h100"))
    )
    left = (UnfixedFinding(host="d", finding=finding("pcie_link", "4")),)
    gone = (HostReport(host="e", status=Status.UNREACHABLE, why="refused"),)
    proposal = Proposal(plan=plan(), withheld=withheld, left=left, unvetted=gone)
    assert [*unplanned.suggestions(proposal, {"site": "baselines/site.yaml", "h100": ""})] == [
        "to plan x, y: add to `fix` in baselines/site.yaml, or plan once with --fix x --fix y",
        "to plan z: add to `fix` in a baseline of your own that has `extends: h100`, "
        "or plan once with --fix z",
        "what to do by hand: nodevet explain pcie_link",
        "plan again once they can be checked: --limit e",
    ]
    assert [*unplanned.suggestions(Proposal(plan=plan()), {})] == []
