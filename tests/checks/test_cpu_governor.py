"""Policies that are not those of every CPU online, and policies of no CPU at all."""

import pytest

from nodevet.model import Verdict


def policies(ids, cpus, governor="performance"):
    return {"policies": ids, "cpus": cpus, "governor": governor}


@pytest.fixture
def verdicts(ask, make_params, make_document):
    """(subject, verdict, why) of each finding."""

    def of(*groups, online):
        document = make_document({"cpu": {"online": online}, "cpufreq": {"policies": [*groups]}})
        found = ask("cpu_governor", make_params("cpu_governor", "performance"), document)
        return [(each.subject.label, each.verdict, each.why) for each in found]

    return of


def test_d15_policies_for_half_of_the_online_cpus_are_unknown(verdicts):
    assert verdicts(policies("0-31", "0-31"), online="0-63") == [
        ("cpufreq 0-31", Verdict.OK, ""),
        ("", Verdict.UNKNOWN, "the policies cover 32 of 64 online CPUs, but not 32-63"),
    ]


def test_d15_the_governor_is_unknown_if_the_online_cpus_were_not_read(verdicts):
    _, (_, verdict, why) = verdicts(policies("0-31", "0-31"), online=None)
    assert (verdict, why) == (Verdict.UNKNOWN, "online: not in the evidence")


def test_d14_a_stale_governor_of_offline_cpus_does_not_fail(verdicts):
    found = verdicts(policies("0-31", "0-31"), policies("32-63", "", "powersave"), online="0-31")
    assert found == [
        ("cpufreq 0-31", Verdict.OK, ""),
        ("cpufreq 32-63", Verdict.NOT_APPLICABLE, "all its CPUs are offline"),
    ]


def test_d14_a_policy_without_cpus_does_not_hide_online_cpus(verdicts):
    found = verdicts(policies("0-31", "0-31"), policies("32-63", "", "powersave"), online="0-63")
    assert found[-1][1] is Verdict.UNKNOWN
