"""Frequencies, idle states and huge pages: the whole change, and what is refused."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

CPU = "/sys/devices/system/cpu"
LATER = "/etc/tmpfiles.d/nodevet-later-cpu-frequency.conf"
PAGES = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
CAPPED = {"scaling_max_khz": 2_000_000}


def policies(cpus, **fields):
    usual = {
        "driver": "intel_pstate",
        "governor": "performance",
        "scaling_min_khz": 800_000,
        "scaling_max_khz": 3_800_000,
        "cpuinfo_max_khz": 3_800_000,
        "epp": "balance_performance",
        "epp_available": ["default", "performance", "balance_performance", "power"],
    }
    return {"policies": cpus, "cpus": cpus, **usual, **fields}


def cpufreq(*groups, online="0-3", **fields):
    switches = {"no_turbo": False, "boost": None, "errors": {"max_perf_pct": "ENOENT"}}
    return {
        "cpufreq": {"policies": list(groups), **switches, **fields},
        "cpu": {"online": online},
    }


def files(change):
    """The rule's lines, and the values that are written now by the end of their path."""
    rule, *writes = change.actions
    assert isinstance(rule, WriteFile) and rule.path == LATER
    assert all(isinstance(each, WriteKernel) for each in writes)
    assert [each.name for each in change.resources] == [LATER, *(each.path for each in writes)]
    now = {each.path.removeprefix(f"{CPU}/"): each.value for each in writes}
    return rule.content.splitlines()[1:], now


def test_every_policy_that_fails_is_set_and_the_rule_names_all(plan):
    sections = cpufreq(policies("0-1", **CAPPED), policies("2-3", epp="performance"))
    params = {"epp": ["performance", "balance_performance"], "turbo": False, "minimum_mhz": 1200}
    (change,) = plan("cpu_frequency", params, sections)
    rule, now = files(change)
    names = ("scaling_max_freq", "scaling_min_freq")
    assert rule == [
        f"w {CPU}/cpufreq/policy*/scaling_max_freq - - - - 3800000",
        f"w {CPU}/cpufreq/policy*/scaling_min_freq - - - - 1200000",
        *(
            f"w {CPU}/cpufreq/policy{number}/energy_performance_preference - - - - {word}"
            for number, word in enumerate(["balance_performance"] * 2 + ["performance"] * 2)
        ),
        f"w {CPU}/intel_pstate/no_turbo - - - - 1",
    ]
    highest, lowest = (
        {f"cpufreq/policy{number}/{name}": value for number in numbers}
        for name, value, numbers in zip(
            names, ("3800000", "1200000"), ((0, 1), range(4)), strict=True
        )
    )
    assert now == highest | lowest | {"intel_pstate/no_turbo": "1"}
    assert change.risk is Risk.LIVE
    assert change.subjects == ("cpufreq 0-1", "cpufreq 2-3", "")


def test_turbo_is_set_through_boost_without_intel_pstate(plan):
    """With it off, the highest frequency may be lower: the rule must not set that at boot."""
    sections = cpufreq(policies("0-3"), no_turbo=None, boost=False, errors={"no_turbo": "ENOENT"})
    (change,) = plan("cpu_frequency", {"turbo": True}, sections)
    assert files(change) == ([f"w {CPU}/cpufreq/boost - - - - 1"], {"cpufreq/boost": "1"})
    assert plan("cpu_frequency", {"turbo": False}, sections) == []


def test_a_limit_of_every_cpu_is_lifted(plan):
    (change,) = plan("cpu_frequency", {}, cpufreq(policies("0-3"), max_perf_pct=60))
    rule, now = files(change)
    assert rule == [
        f"w {CPU}/cpufreq/policy*/scaling_max_freq - - - - 3800000",
        f"w {CPU}/intel_pstate/max_perf_pct - - - - 100",
    ]
    assert now == {"intel_pstate/max_perf_pct": "100"}


def test_a_cpufreq_policy_of_offline_cpus_is_not_written(plan):
    sections = cpufreq(
        policies("0-1", **CAPPED), {**policies("2-3", **CAPPED), "cpus": ""}, online="0-1"
    )
    (change,) = plan("cpu_frequency", {}, sections)
    assert set(files(change)[1]) == {f"cpufreq/policy{n}/scaling_max_freq" for n in (0, 1)}


@pytest.mark.parametrize(
    ("params", "fields", "why"),
    [
        ({"epp": "power*"}, {}, "its driver offers default, performance, .* not power"),
        ({"epp": "performance"}, {"epp_available": None}, "its driver offers none"),
        ({"minimum_mhz": 4000}, {}, "its highest frequency is 3800 MHz"),
        ({"minimum_mhz": 2400, "uncapped": False}, CAPPED, "its limit is lower"),
        ({"minimum_mhz": 2400, "uncapped": False}, {"cpuinfo_max_khz": None}, "cpuinfo_max_khz"),
    ],
)
def test_cpu_frequency_settings_that_the_hardware_lacks_are_refused(plan, params, fields, why):
    with pytest.raises(FixError, match=why):
        plan("cpu_frequency", params, cpufreq(policies("0-3", **fields)))


def test_a_cpu_without_a_policy_is_refused(plan):
    with pytest.raises(FixError, match="policies that were not read"):
        plan("cpu_frequency", {}, cpufreq(policies("0-1", **CAPPED)))


# --- cpu_idle_states


def test_a_systemd_unit_holds_the_cpu_latency_limit(plan):
    states = [{"name": "C6", "latency_us": 170, "cpus": "0-3", "enabled_cpus": "0-3"}]
    idle = {"latency_limit_us": 2_000_000_000, "count": 1, "states": states}
    sections = {
        "cpuidle": {"driver": "intel_idle", **idle},
        "host": {"virtualization": "none"},
        "cpu": {"online": "0-3"},
    }
    (change,) = plan("cpu_idle_states", 10, sections)
    file, unit = change.actions
    assert "ExecStartPre=/bin/sh -c 'test -c /dev/cpu_dma_latency'\n" in file.content
    assert "printf 0000000a >&3 && exec sleep infinity'" in file.content
    name = "nodevet-cpu-idle-states.service"
    assert unit == SetUnit(name=name, enabled=True, running=True, restart=True)
    assert [each.name for each in change.resources] == [f"/etc/systemd/system/{name}", name]
    assert plan("cpu_idle_states", 200, sections) == []


# --- hugepages


def pages(totals, free=None, available=1 << 30):
    listed = [
        {"size_kb": size, "total": total, "free": total if free is None else free}
        for size, total in totals.items()
    ]
    held = sum(size * (total or 0) for size, total in totals.items())
    return {"memory": {"hugepages": listed, "hugetlb_kb": held, "available_kb": available}}


@pytest.mark.parametrize(
    ("params", "rule", "now", "risk"),
    [
        ("none", {2048: 0, 1048576: 0}, {2048: 0}, Risk.LIVE),
        ({"total": {"2M": 1024}}, {2048: 1024}, {2048: 1024}, Risk.DRAIN),
        ({"total": {"2M": 100, "32M": 0}}, {2048: 100}, {2048: 100}, Risk.LIVE),
        ({"total": {"1G": 16, "2M": 512}}, {2048: 512, 1048576: 16}, {1048576: 16}, Risk.DRAIN),
    ],
)
def test_pages_are_reserved_or_released_now_and_at_boot(plan, params, rule, now, risk):
    (change,) = plan("hugepages", params, pages({2048: 512, 1048576: 0}))
    file, *writes = change.actions
    assert file.content.splitlines()[1:] == [
        f"w {PAGES.format(size)} - - - - {number}" for size, number in rule.items()
    ]
    assert writes == [
        WriteKernel(path=PAGES.format(size), value=str(number)) for size, number in now.items()
    ]
    assert change.risk is risk


@pytest.mark.parametrize(
    ("params", "sections", "why"),
    [
        ({"minimum_free": {"2M": 512}}, pages({2048: 512}, free=0), "hold pages"),
        ({"total": {"512M": 2}}, pages({2048: 0}), "the kernel does not have pages of 512M"),
        ({"total": {"1G": 16}}, pages({1048576: 0}, available=1 << 20), "16777216 KiB more are"),
        ({"total": {"1G": 16}}, pages({1048576: 0}, available=None), "an unknown number of KiB"),
        ("none", {"memory": {"hugetlb_kb": 2048}}, "could not read the huge pages"),
        ("none", pages({2048: 512, 1048576: None}), "1G: the number of pages was not read"),
    ],
)
def test_huge_pages_that_the_node_cannot_provide_are_refused(plan, params, sections, why):
    with pytest.raises(FixError, match=why):
        plan("hugepages", params, sections)


@pytest.mark.parametrize(
    ("cmdline", "params", "why"),
    [
        ("ro hugepages=512", "none", "hugepages=512 for pages of 2M"),
        ("hugepagesz=1G hugepages=16", "none", "hugepages=16 for pages of 1G"),
        ("default_hugepagesz=1G hugepages=8", {"total": {"1G": 16}}, "hugepages=8 .* of 1G"),
        ("hugepages=8 default_hugepagesz=1G", {"total": {"1G": 16}}, "hugepages=8 .* of 1G"),
        ("hugepagesz=2048k hugepages=0:4,1:4", {"total": {"2M": 8}}, "hugepages=0:4,1:4 .* of 2M"),
        ("hugepagesz=1G hugepages=16", {"total": {"1G": 16, "2M": 8}}, ""),
        ("hugepagesz=1G hugepages=16", {"total": {"2M": 8}}, ""),
        ("hugepagesz=x hugepages=16 hugetlb_cma=4G", "none", ""),
    ],
)
def test_huge_pages_that_the_kernel_command_line_reserves_are_refused(plan, cmdline, params, why):
    sections = {**pages({2048: 512, 1048576: 0}), "host": {"cmdline": cmdline}}
    if not why:
        assert plan("hugepages", params, sections)
        return
    with pytest.raises(FixError, match=why):
        plan("hugepages", params, sections)
