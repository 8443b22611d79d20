"""Power cycles in a run, without nodes: what the journal says, and what is next."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.fix.journal.records import HostBegin, RunBegin
from nodevet.fix.journal.state import state
from nodevet.fix.next_steps import next_steps
from nodevet.fix.settings import Rollout, rollout_text
from nodevet.fix.use.power import powers_of, require_bmcs
from nodevet.fixing.model import Risk
from nodevet.fixing.result import (
    NOTHING_HELPED,
    POWER_TEXT,
    REQUESTED,
    SWITCHED,
    HostResult,
    Outcome,
    Result,
    StepResult,
)
from nodevet.model import Bmc, Host
from nodevet.resource import Resource, State, gpu_reset
from nodevet.resource.boot import POWER_MAY_HELP, STAYED_UP

RUN = RunBegin(plan="0" * 64, path="plan.json", controller="ops1", pid=1, boot_id="c")
BMC = Bmc(kind="ipmi", address="bmc", user="ADMIN", password=("env", "NODEVET_TEST_BMC"))


def begin(boot: str, asked: str = "", at: float | None = None) -> HostBegin:
    return HostBegin(host="gpu1", machine_id="m", boot_id=boot, asked=asked, controller_s=at)


@pytest.mark.parametrize(
    ("records", "asked"),
    [
        ([begin("a")], ""),
        ([begin("a"), begin("a", "soft off", 1), begin("a", "on", 2)], ("on", 2, "c")),
        ([begin("a", "off", 1), begin("a")], ("off", 1, "c")),  # it was read again, and not over
        ([begin("a", "off", 1), replace(RUN, boot_id="d"), begin("a")], ("off", 1, "c")),
        ([begin("a", "reboot", 1), begin("b")], ""),  # the reboot is over
        ([begin("a", "on", 1), begin("b"), begin("b", "reboot", 2)], ("reboot", 2, "c")),
    ],
)
def test_the_host_state_keeps_a_power_request_until_the_next_boot(records: Any, asked: Any) -> None:
    host = state([RUN, *records]).hosts["gpu1"]
    found = (host.asked, host.controller_s, host.controller_boot)
    assert (found if host.asked else "") == asked


def ended(outcome: Outcome, why: str, *, done: bool) -> HostResult:
    """A host that was rebooted, and whose GPU was reset, or neither."""
    reset = Resource(kind="gpu_reset", name="GPU-1")
    step = StepResult(
        id="gpu1/gpu_lost/1", fix="gpu_lost", subjects=("GPU 0",), expected=1, actual=2,
        risk=Risk.REBOOT, before=(State(resource=reset, exists=True, value=None),) if done else (),
    )  # fmt: skip
    return HostResult(host="gpu1", outcome=outcome, why=why, rebooted=done, steps=(step,))


@pytest.mark.parametrize("said", [gpu_reset.NEXT, POWER_MAY_HELP, NOTHING_HELPED])
def test_next_steps_ignore_what_a_command_printed_on_the_node(said: str) -> None:
    """It is a part of `why`, and a program may print anything."""
    facts: dict[str, Any] = {
        "kind": "apply",
        "nodevet": "1",
        "plan": "p",
        "digest": "d",
        "author": "ann",
    }
    host = ended(Outcome.FAILED, f"tool set: exit code 1: {said}", done=False)
    (step,) = next_steps(Result(**facts, started="", seconds=1, hosts=(host,)), inventories=())
    assert step.why == "remove the cause, then plan again"


@pytest.mark.parametrize(
    ("outcome", "why", "commands"),
    [
        (
            Outcome.UNKNOWN,
            f"{REQUESTED}: timed out; {POWER_TEXT} on",
            ["nodevet apply --resume RUN --power-cycle --override", "nodevet apply --resume RUN"],
        ),
        (
            Outcome.UNKNOWN,
            f"{REQUESTED}: timed out; its power is not known: no answer",
            ["nodevet apply --resume RUN"],
        ),
        (
            Outcome.UNKNOWN,
            f"{SWITCHED}: timed out; {POWER_TEXT} on",
            ["nodevet bmc show gpu1", "nodevet apply --resume RUN"],
        ),
        (
            Outcome.UNKNOWN,
            f"{SWITCHED}: timed out (rebooting): {STAYED_UP}; {POWER_TEXT} on",
            ["nodevet bmc show gpu1", "nodevet apply --resume RUN"],
        ),
        (
            Outcome.FAILED,
            f"the check says: GPU 0: GPU_RESET; next: {gpu_reset.NEXT}",
            ["nodevet plan gpu1 --again --reboot --drain-hook './hook x' -o plan.json"],
        ),
        (
            Outcome.FAILED,
            f"after the reboot GPU 0: GPU_RESET; next: {POWER_MAY_HELP}",
            ["nodevet plan gpu1 --again --power-cycle --drain-hook './hook x' -o plan.json"],
        ),
        (
            Outcome.FAILED,
            f"after the reboot GPU 0: GPU_RESET; {NOTHING_HELPED}",
            ["nodevet bmc show gpu1"],
        ),
        (Outcome.FAILED, "x", ["nodevet plan gpu1 --again"]),
    ],
)
def test_next_steps_offer_the_next_stage_of_escalation(
    outcome: Outcome, why: str, commands: list[str]
) -> None:
    result = Result(
        kind="apply",
        nodevet="0",
        plan="p",
        digest="d",
        author="ann",
        started="",
        seconds=1,
        options={"drain_hook": "./hook x"},
        hosts=(ended(outcome, why, done=True),),
    )
    assert [step.command for step in next_steps(result, inventories=())] == commands


def test_a_node_that_kept_running_has_the_bmc_of_another_machine() -> None:
    why = f"{SWITCHED}: timed out (rebooting): {STAYED_UP}"
    hosts = (HostResult(host="gpu1", outcome=Outcome.UNKNOWN, why=why),)
    facts: dict[str, Any] = {
        "kind": "apply",
        "nodevet": "1",
        "plan": "p",
        "digest": "d",
        "author": "ann",
    }
    result = Result(**facts, started="", seconds=1, hosts=hosts)
    first, *_ = next_steps(result, inventories=())
    assert first.why == "the BMC switched another machine, or none: correct `bmc` in the inventory"


def test_a_power_cycle_is_refused_without_a_bmc_and_for_this_machine() -> None:
    own = replace(BMC, address="own")
    hosts = [Host(name="gpu1", bmc=BMC), Host(name="gpu2"), Host(name="here", bmc=own, local=True)]
    require_bmcs(hosts, ["gpu1"])
    with pytest.raises(UserError, match=r"^gpu\[2-3\]: --power-cycle needs the BMC"):
        require_bmcs(hosts, ["gpu1", "gpu2", "gpu3"])
    with pytest.raises(UserError, match=r"^here: --power-cycle cannot switch off this machine"):
        require_bmcs(hosts, ["here"])


def test_two_hosts_with_one_bmc_are_refused() -> None:
    """One of the addresses is wrong, and another machine would be switched off."""
    hosts = [Host(name="gpu1", bmc=BMC), Host(name="gpu2", bmc=BMC)]
    with pytest.raises(UserError, match=r"^gpu\[1-2\]: --power-cycle needs a BMC of its own"):
        require_bmcs(hosts, ["gpu1"])
    other_port = replace(BMC, port=1623)
    require_bmcs([hosts[0], Host(name="gpu2", bmc=other_port)], ["gpu1"])


def test_a_missing_bmc_password_is_an_error_before_a_power_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NODEVET_TEST_BMC", raising=False)
    hosts = [Host(name="gpu1", bmc=BMC)]
    assert set(powers_of(hosts, Rollout(), ["gpu1"])) == {"gpu1"}  # asked for nothing
    with pytest.raises(UserError, match="NODEVET_TEST_BMC, which should hold the password"):
        powers_of(hosts, Rollout(power_cycle=True), ["gpu1"])
    monkeypatch.setenv("NODEVET_TEST_BMC", "secret")
    powers_of(hosts, Rollout(power_cycle=True), ["gpu1"])


def test_a_bmc_password_command_may_be_a_list_as_in_the_folder_of_a_run() -> None:
    """Its words are a list there."""
    bmc = replace(BMC, password=("command", ["sh", "-c", "echo secret"]))
    powers_of([Host(name="gpu1", bmc=bmc)], Rollout(power_cycle=True), ["gpu1"])


def test_the_text_of_a_rollout_shows_its_power_cycle_limits() -> None:
    rollout = Rollout(power_cycle=True, drain_hook="h")
    assert rollout.reboots and rollout.reboots_each
    text = rollout_text(rollout, 2)
    assert "power-cycle · max-power-cycles 4 · power-off-timeout 5m" in text
    assert "max-power-cycles" not in rollout_text(rollout, 1)
