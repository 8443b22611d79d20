"""A file of /sys or /proc/sys."""

import re

from nodevet.remote.look import absent, absolute_path, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import exists, read, reason

GOVERNORS = (
    "cpupower.service",
    "cpufrequtils.service",
    "loadcpufreq.service",
    "ondemand.service",
    "power-profiles-daemon.service",
    "auto-cpufreq.service",
    "tlp.service",
)
GOVERNOR_WORDS = (
    r"cpupower\b.*\bfrequency-set|cpufreq-set|tuned-adm\s+profile|powerprofilesctl\s+set"
    r"|x86_energy_perf_policy|cpupower\b.*\bset\s"
)
GOVERNOR_FILES = (
    ("/etc/default/cpufrequtils", r"^\s*GOVERNOR\s*="),
    ("/etc/default/cpupower", r"frequency-set|^\s*governor\s*="),
    ("/etc/sysconfig/cpupower", r"frequency-set|^\s*governor\s*="),
)

HUGE_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
HUGE_KEY = "vm.nr_hugepages"  # of pages of the default size, which is this one on x86


TRIGGERS = ("/proc/sys/vm/compact_memory",)  # no one can read them


def look(root: str, path: str) -> "dict[str, object]":
    """The text without the last newline."""
    if path in TRIGGERS:
        return present("(write-only)") if exists(root, path) else absent()
    try:
        text = read(root, absolute_path(path))
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    except OSError as error:
        return unknown(reason(error), exists=True)
    return present(text[:-1] if text.endswith("\n") else text)


def patterns(root: str, path: str) -> "Patterns":
    """What sets a sysctl, a governor or another kernel file."""
    if path.startswith("/proc/sys/"):
        key = path[len("/proc/sys/") :].replace("/", ".")
        words = re.escape(key).replace(r"\.", "[./]")
        return Patterns(words, tuned=r"^\s*{}\s*=".format(words), key=key)
    name = path.rpartition("/")[2]
    if "/cpufreq/" in path and name in ("scaling_governor", "energy_performance_preference"):
        tuned = {
            "scaling_governor": r"^\s*governor\s*=",
            "energy_performance_preference": r"^\s*energy_perf(?:ormance_preference|_bias)\s*=",
        }[name]
        return Patterns(
            name + "|" + GOVERNOR_WORDS,
            services=GOVERNORS,
            files=GOVERNOR_FILES,
            tuned=tuned + "|" + name,
            slurm=r"(?i)^\s*CpuFreq(?:Def|Governors)\s*=",
            path=path,
        )
    last = re.escape("/".join(path.split("/")[-2:]))
    if path.startswith("/sys/class/net/") and name == "mtu":
        link = re.escape(path.split("/")[-2])
        return Patterns(
            r"{}|\b(?:ip|ifconfig)\s.*(?<![\w.-]){}(?![\w.-]).*\bmtu\s".format(last, link),
            path=path,
        )
    if path == HUGE_PAGES:
        last += "|" + re.escape(HUGE_KEY).replace(r"\.", "[./]")
        return Patterns(last, tuned=last, path=path, key=HUGE_KEY)
    tuned = last
    if path == "/sys/kernel/mm/transparent_hugepage/enabled":
        tuned += r"|^\s*transparent_hugepages?\s*="
    return Patterns(last, tuned=tuned, path=path)
