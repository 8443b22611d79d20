"""Section cpufreq."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

GOVERNORS = at_most(64)  # or energy preferences, that a frequency driver offers


class CpufreqPolicies(Record, frozen=True, kw_only=True):
    """All policies with equal settings, as one record. /sys/devices/system/cpu/cpufreq/policy*."""

    policies: NumberList  # policy numbers as a list: 0-63
    cpus: NumberList | None = None  # affected_cpus of all, as a cpulist
    governor: Text | None = None
    driver: Text | None = None
    governors_available: Annotated[tuple[Text, ...], GOVERNORS] | None = None
    scaling_min_khz: int | None = None
    scaling_max_khz: int | None = None
    cpuinfo_min_khz: int | None = None
    cpuinfo_max_khz: int | None = None
    epp: Text | None = None  # energy_performance_preference
    epp_available: Annotated[tuple[Text, ...], GOVERNORS] | None = None


class Cpufreq(SectionRecord, frozen=True, kw_only=True):
    """`absent` if the kernel offers no cpufreq (most virtual machines)."""

    unique = ("policies[].policies",)
    plural = "cpufreq policies"

    policies: Annotated[tuple[CpufreqPolicies, ...], bounds.CPUS] | None = None  # with a CPU online
    inactive: NumberList | None = None  # policy numbers: every CPU of theirs is offline
    intel_pstate: Text | None = None  # active, passive, off
    no_turbo: bool | None = None
    boost: bool | None = None
