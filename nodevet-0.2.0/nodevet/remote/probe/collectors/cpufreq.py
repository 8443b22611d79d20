"""CPU frequency policies: /sys/devices/system/cpu/cpufreq, and cpu*/cpufreq before Linux 4.3.

See Documentation/admin-guide/pm/cpufreq.rst in the kernel tree.
"""

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    flag,
    integer,
    line,
    names,
    numbered,
    one_line,
    parsed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

CPUS = "/sys/devices/system/cpu"
LARGEST = 8192  # policies; no more than CPUs
SHARED = ("scaling_driver", "scaling_available_governors")
"""Files that say the same of every policy: drivers/cpufreq/cpufreq.c has one driver and one list of
governors (show_scaling_driver, show_scaling_available_governors)."""
PREFERENCES = "energy_performance_available_preferences"
PREFERENCE_DRIVERS = ("intel_pstate", "intel_cpufreq", "amd-pstate-epp")
"""Drivers whose PREFERENCES depend on the governor alone: intel_pstate.c prints a constant list,
amd-pstate.c a shorter one for the governor performance."""
FIELDS = (
    ("driver", "scaling_driver", one_line),
    ("epp", "energy_performance_preference", one_line),
    ("governors_available", "scaling_available_governors", str.split),
    ("scaling_min_khz", "scaling_min_freq", integer),
    ("scaling_max_khz", "scaling_max_freq", integer),
    ("cpuinfo_min_khz", "cpuinfo_min_freq", integer),
    ("cpuinfo_max_khz", "cpuinfo_max_freq", integer),
    ("epp_available", PREFERENCES, str.split),
)


def parse_cpus(text: str) -> "list[int]":
    """affected_cpus as ids: [0, 1] of "0 1". Raises ValueError."""
    return [integer(word) for word in text.split()]


def entries(root: str, directory: str, prefix: str) -> "list[int]":
    """The numbers of the entries <prefix>N; empty without the directory."""
    try:
        return numbered(root, directory, prefix, LARGEST)
    except FileNotFoundError:
        return []


def policy_folders(root: str) -> "dict[int, str]":
    """{policy number: folder}. Raises Absent without policies, OSError without CPUs."""
    names(root, CPUS)
    policies = entries(root, CPUS + "/cpufreq", "policy")
    if policies:
        return {id: "{}/cpufreq/policy{}/".format(CPUS, id) for id in policies}
    folders = {}
    for id in entries(root, CPUS, "cpu"):
        folder = "{}/cpu{}/cpufreq/".format(CPUS, id)
        try:
            if names(root, folder):
                folders[id] = folder
        except FileNotFoundError:
            continue
    if not folders:
        raise Absent("the kernel has no cpufreq here")
    return folders


def shared_key(file: str, record: "Reading") -> "tuple[str, ...]":
    """What a file's text depends on; empty if it may be the policy."""
    if file in SHARED:
        return (file,)
    if file == PREFERENCES and record["driver"] in PREFERENCE_DRIVERS and record["governor"]:
        return file, record["governor"]
    return ()


def policy(root: str, folder: str, known: "dict[tuple[str, ...], object]") -> "Reading | None":
    """A policy's settings and its CPUs; None for a policy whose CPUs are all offline. `known`: what
    other policies said that holds for this one, too.

    affected_cpus has the online CPUs. Without any, every file reads EBUSY since Linux 5.19; before,
    affected_cpus is empty and the other files are stale.
    """
    record = Reading()
    record.take("cpus", parsed, root, folder + "affected_cpus", parse_cpus)
    if record["cpus"] == [] or record["errors"].get("cpus") == "EBUSY":
        return None
    record.take("governor", line, root, folder + "scaling_governor")
    for field, file, parse in FIELDS:
        key = shared_key(file, record)
        if key in known:
            record[field] = known[key]
            continue
        record.take(field, parsed, root, folder + file, parse)
        if key and record[field] is not None:
            known[key] = record[field]
    return record


def fold(policies: "Iterable[tuple[int, dict[str, Any]]]") -> "list[dict[str, Any]]":
    """One record for all policies with equal settings. `policies`: [(number, record)].

    >>> fold([(0, {"cpus": [0], "governor": "performance"}),
    ...       (1, {"cpus": [1], "governor": "performance"})])
    [{'governor': 'performance', 'policies': '0-1', 'cpus': '0-1'}]
    """
    groups: "list[tuple[dict[str, object], list[int], list[list[int] | None]]]" = []
    for id, record in policies:
        settings = {key: value for key, value in record.items() if key != "cpus"}
        matching = [group for group in groups if group[0] == settings]
        group = matching[0] if matching else (settings, [], [])
        if not matching:
            groups.append(group)
        group[1].append(id)
        group[2].append(record["cpus"])
    return [
        dict(settings, policies=format_cpulist(ids), cpus=join(cpus))
        for settings, ids, cpus in groups
    ]


def join(cpus: "Sequence[list[int] | None]") -> "str | None":
    """The CPUs of several policies as a cpulist; None if one is unknown."""
    lists = [ids for ids in cpus if ids is not None]
    if len(lists) < len(cpus):
        return None
    return format_cpulist(cpu for ids in lists for cpu in ids)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    folders = policy_folders(root)
    known: "dict[tuple[str, ...], object]" = {}
    policies = [(id, policy(root, folder, known)) for id, folder in sorted(folders.items())]
    active = [(id, record) for id, record in policies if record is not None]
    cpufreq = Reading(inactive=format_cpulist(id for id, record in policies if record is None))
    if active:
        cpufreq["policies"] = fold(active)
    else:
        cpufreq.fail("policies", "no cpufreq policy has an online CPU")
    cpufreq.take("intel_pstate", line, root, CPUS + "/intel_pstate/status")
    cpufreq.take("no_turbo", parsed, root, CPUS + "/intel_pstate/no_turbo", flag)
    cpufreq.take("boost", parsed, root, CPUS + "/cpufreq/boost", flag)
    return cpufreq
