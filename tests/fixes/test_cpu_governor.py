"""The rule, the policies that are touched, and what is refused."""

import pytest

from nodevet.evidence.lists import numbers, spans
from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand
from nodevet.resource.file import WriteFile

RULE = "/etc/tmpfiles.d/nodevet-cpu-governor.conf"
BOTH = ["performance", "powersave"]


def policies(ids, governor, **rest):
    return {
        "policies": ids,
        "cpus": ids,
        "driver": "intel_cpufreq",
        "governor": governor,
        "governors_available": BOTH,
    } | rest


def node(*groups, **rest):
    cpus = spans(cpu for group in groups for cpu in numbers(group["cpus"]))
    return {"cpu": {"online": cpus}, "cpufreq": {"policies": list(groups)} | rest}


def test_a_governor_change_writes_a_boot_rule_and_applies_it(plan):
    sections = node(policies("0-1,4", "powersave"), policies("2-3", "performance"))
    (change,) = plan("cpu_governor", "performance", sections)
    assert (change.expected, change.actual) == ("performance", "powersave")
    assert change.subjects == ("cpufreq 0-1,4",)
    assert change.actions == (
        WriteFile(
            path=RULE,
            content="# Written by nodevet.\n"
            "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance\n",
        ),
        RunCommand(words=("systemd-tmpfiles", "--create", RULE)),
    )
    knob = "/sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
    assert change.resources == (
        Resource(kind="file", name=RULE),
        *(Resource(kind="kernel", name=knob.format(number)) for number in (0, 1, 4)),
    )
    assert change.risk is Risk.LIVE and change.effective == "now"


def test_the_energy_preference_is_saved_before_the_governor_changes_it(plan):
    sections = node(policies("0-1", "powersave", driver="intel_pstate", epp="balance_performance"))
    (change,) = plan("cpu_governor", "performance", sections)
    names = [resource.name.rpartition("/")[2] for resource in change.resources]
    assert names[1:] == ["energy_performance_preference"] * 2 + ["scaling_governor"] * 2


def test_governors_that_differ_are_distinguished(plan):
    sections = node(policies("0", "powersave"), policies("1", "ondemand"))
    (change,) = plan("cpu_governor", "performance", sections)
    assert change.actual == {"cpufreq 0": "powersave", "cpufreq 1": "ondemand"}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"governors_available": ["powersave"]}, "intel_cpufreq offers powersave, not performance"),
        ({"governors_available": []}, "offers none"),
        ({"governors_available": None}, "governors_available: not in the evidence"),
        ({"policies": "2;reboot"}, "not a list of policies"),
        ({"policies": ""}, "not a list of policies"),
    ],
)
def test_a_governor_that_any_policy_does_not_offer_is_refused(plan, other, told):
    sections = node(policies("0-1", "powersave"), policies("2-3", "performance", **other))
    with pytest.raises(FixError) as refused:
        plan("cpu_governor", "performance", sections)
    assert told in str(refused.value)


def test_a_correct_governor_plans_no_change(plan):
    assert plan("cpu_governor", "performance", node(policies("0-1", "performance"))) == []


def test_findings_of_other_evidence_are_refused(plan, wrong, evidence):
    findings = wrong("cpu_governor", "performance", evidence(node(policies("0-1", "powersave"))))
    for sections in ({}, node(), node(policies("0", "powersave"))):
        with pytest.raises(FixError):
            plan("cpu_governor", "performance", sections, findings)


@pytest.mark.parametrize(
    "inactive",
    [
        {"inactive": "2-3"},  # as the probe tells them apart
        {"policies": [policies("2-3", "powersave", cpus="")]},  # as they were in older evidence
    ],
)
def test_d14_a_policy_of_offline_cpus_is_not_in_the_boot_rule(plan, inactive):
    groups = [policies("0-1", "powersave"), *inactive.pop("policies", [])]
    (change,) = plan("cpu_governor", "performance", node(*groups, **inactive))
    assert change.subjects == ("cpufreq 0-1",)
    assert change.actions[0].content == (
        "# Written by nodevet.\n"
        "w /sys/devices/system/cpu/cpufreq/policy0/scaling_governor - - - - performance\n"
        "w /sys/devices/system/cpu/cpufreq/policy1/scaling_governor - - - - performance\n"
    )
    assert not any(
        "policy2" in resource.name or "policy3" in resource.name for resource in change.resources
    )


def test_d15_policies_of_half_of_the_cpus_are_not_set(plan):
    sections = node(policies("0-1", "powersave")) | {"cpu": {"online": "0-3"}}
    with pytest.raises(FixError) as refused:
        plan("cpu_governor", "performance", sections)
    assert "2 of 4 online CPUs, but not 2-3" in str(refused.value)
