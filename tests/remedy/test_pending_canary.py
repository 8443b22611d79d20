"""A canary proves what was verified there: what is in force later, or was to be rebooted and was
not, proves nothing, and the other hosts do not begin."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.fix.settings import Rollout
from nodevet.fix.use.plan import canary_delay

HOSTS = ("n1", "n2", "n3")


@pytest.fixture
def ecc(rig: Any) -> Any:
    """Three hosts; ECC is effective after a reboot."""
    return rig(*HOSTS, ecc_mode=True).by_bob()


def hosts(d: Any) -> dict[str, Any]:
    return {host["host"]: host for host in d.told()["hosts"]}


def test_e24_a_pending_canary_is_no_proof(ecc: Any) -> None:
    said = ecc.apply(canary=1, batch=2, drain_hook="true")
    assert said.code == 1, said
    assert ecc.outcomes() == {"n1": "pending", "n2": "not_attempted", "n3": "not_attempted"}
    assert ecc.reached == {"n1"}
    assert "the canary is pending" in hosts(ecc)["n2"]["why"]
    assert "nodevet apply --resume" in said.out and "n[2-3]" in said.out, said


def test_e24_a_resumed_run_continues_once_the_canary_is_in_force(ecc: Any) -> None:
    ecc.apply(canary=1, batch=2, drain_hook="true")
    said = ecc.resume()
    assert said.code == 1 and ecc.outcomes()["n2"] == "not_attempted", said
    ecc.w.boxes["n1"].reboot()
    said = ecc.resume()
    assert said.code == 0, said
    assert ecc.outcomes() == {"n1": "verified_after_reboot", "n2": "pending", "n3": "pending"}
    assert hosts(ecc)["n1"]["canary"]


def test_e24_a_resumed_run_may_reboot_the_canary(ecc: Any) -> None:
    ecc.apply(canary=1, batch=2, drain_hook="true")
    said = ecc.resume("--verify-reboot", "--override")
    assert said.code == 0, said
    assert ecc.outcomes() == {"n1": "verified_after_reboot", "n2": "pending", "n3": "pending"}
    assert ecc.w.boxes["n1"].boots == 2 and ecc.w.boxes["n2"].boots == 1


def test_e24_a_pending_canary_is_proof_if_the_plan_says_so(ecc: Any) -> None:
    said = ecc.apply(canary=1, batch=2, drain_hook="true", pending_canary=True)
    assert said.code == 0, said
    assert set(ecc.outcomes().values()) == {"pending"}


def test_e24_apply_accepts_an_unapproved_pending_canary_only_with_override(ecc: Any) -> None:
    said = ecc.apply("--pending-canary", canary=1, batch=2, drain_hook="true")
    assert said.code == 2 and "--pending-canary is on, off was approved" in said.err, said
    said = ecc.apply("--pending-canary", "--override", plan=ecc.project / "plan.json")
    assert said.code == 0 and set(ecc.outcomes().values()) == {"pending"}, said
    assert "--pending-canary is on, off was approved" in said.out, said


def test_e24_a_canary_that_was_not_rebooted_is_no_proof_if_the_plan_reboots_it(rig: Any) -> None:
    """The plan wants the canary's change proven by a reboot, before which the hook fails."""
    d = rig(*HOSTS, pages="never").by_bob()
    hook = d.project / "hook"
    asked = d.project / "asked"
    hook.write_text(f"#!/bin/sh\necho >>{asked}\n[ $(wc -l <{asked}) -ne 2 ]\n")
    hook.chmod(0o755)
    said = d.apply(canary=1, batch=2, verify_reboot=True, drain_hook=str(hook))
    found = hosts(d)
    assert found["n1"]["outcome"] == "changed" and not found["n1"]["rebooted"], said
    assert found["n2"]["outcome"] == "not_attempted", said
    assert "the canary was not rebooted" in found["n2"]["why"]
    said = d.resume()
    assert said.code == 0, said
    assert d.outcomes() == {"n1": "verified_after_reboot", "n2": "changed", "n3": "changed"}


def test_e24_a_host_that_was_already_pending_is_not_the_canary(ecc: Any) -> None:
    """It was set there already: another host is the canary."""
    plan = ecc.plan(canary=1, batch=2, drain_hook="true", pending_canary=True)
    ecc.w.boxes["n1"].gpus[0]["ecc"][1] = ecc.w.boxes["n1"].gpus[1]["ecc"][1] = True
    said = ecc.apply(plan=plan)
    found = hosts(ecc)
    assert found["n1"]["outcome"] == "pending" and found["n2"]["canary"], said


def test_e24_a_plan_for_one_host_needs_no_canary(rig: Any) -> None:
    d = rig("n1", ecc_mode=True).by_bob()
    said = d.apply(canary=1, drain_hook="true")
    assert said.code == 0 and not d.told()["stopped"], said


@pytest.mark.parametrize(
    ("rollout", "waits"),
    [
        ({}, True),
        ({"verify_reboot": True, "drain_hook": "true"}, False),
        ({"pending_canary": True}, False),
        ({"canary": 0}, False),
        ({"canary": 3}, False),
    ],
)
def test_e24_the_plan_says_that_the_other_hosts_will_wait(
    ecc: Any, rollout: dict[str, Any], waits: bool
) -> None:
    plan = replace(ecc.w.plan(), rollout=Rollout(**rollout))
    assert ("take effect after a reboot" in canary_delay(plan)) is waits
    assert not canary_delay(replace(plan, steps=plan.host_steps("n1")))
