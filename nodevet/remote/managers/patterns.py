"""What somebody who sets the same thing would have written, and where. Pure.

A needle is of one touch; touches with equal needles are looked for once.
"""

import fnmatch
import re

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
SMI = r"nvidia-smi\b(?!\s+[a-z]).*\s(?:{})(?:[\s=,;|&\"')0-9]|$)"  # not dmon, pmon, topo
GPU_FIELDS = {  # field: options of nvidia-smi that set it
    "power_limit_mw": "-pl|--power-limit",
    "persistence_mode": "-pm|--persistence-mode",
    "ecc_pending": "-e|--ecc-config",
    "mig_pending": "-mig|--multi-instance-gpu",
    "compute_mode": "-c|--compute-mode",
    "locked_clock_graphics_min_mhz": "-lgc|-rgc|--lock-gpu-clocks|--reset-gpu-clocks",
    "locked_clock_graphics_max_mhz": "-lgc|-rgc|--lock-gpu-clocks|--reset-gpu-clocks",
    "locked_clock_memory_min_mhz": "-lmc|-rmc|--lock-memory-clocks|--reset-memory-clocks",
    "locked_clock_memory_max_mhz": "-lmc|-rmc|--lock-memory-clocks|--reset-memory-clocks",
    "app_clock_graphics_mhz": "-ac|-rac|--applications-clocks|--reset-applications-clocks",
    "app_clock_memory_mhz": "-ac|-rac|--applications-clocks|--reset-applications-clocks",
}
DCGM = r"dcgmi\s+config\b.*(?:--set|--enforce)"
MIG = r"mig-parted\s+apply"
DROP_IN = re.compile(r"/etc/systemd/system/([^/]+)\.d/[^/]*numa-binding\.conf\Z")
BINDING = r"^\s*(?:CPUAffinity|NUMAPolicy|NUMAMask|AllowedCPUs|AllowedMemoryNodes)\s*="
UNIT_VERBS = "start|stop|enable|disable|mask|unmask"


class Needle(object):
    """What to look for. `words` matches a line of a script, a unit, a cron table, a rule."""

    def __init__(self, words, services=(), files=(), tuned=None, path=None, key=None):
        self.words = re.compile(words) if words else None
        self.services = services  # owners by being enabled or running
        self.files = files  # (path, regular expression)
        self.tuned = re.compile(tuned) if tuned else None  # a line of a tuned profile
        self.path = path  # a kernel file, as tmpfiles.d names it
        self.key = key  # a sysctl, with dots
        self.module = None
        self.loaded = False
        self.unit = None  # its own file is no other owner
        self.drop_ins = None  # of this unit
        self.package = None  # named in apt's preferences

    def same(self):
        """What makes two needles equal."""
        words = self.words.pattern if self.words else None
        tuned = self.tuned.pattern if self.tuned else None
        told = (words, self.services, self.files, tuned, self.key, self.module)
        return told + (self.drop_ins, self.package)


def needle(kind, name, loaded):
    """The needle of a touch, or None where nothing else can own it."""
    if kind == "kernel":
        return kernel(name)
    if kind == "gpu":
        return gpu(name.rpartition(":")[2])
    if kind == "unit":
        return unit(name)
    if kind == "module":
        return module(name, loaded)
    if kind == "swap":
        return Needle(r"\bswap(?:on|off)\b")
    if kind == "package":
        found = Needle(None)
        found.package = name.partition(":")[0]
        return found
    if kind == "process":
        return Needle(None, services=("numad.service",))
    match = DROP_IN.match(name)
    if kind == "file" and match:
        found = Needle(None)
        found.drop_ins = match.group(1)
        return found
    return None


def kernel(path):
    if path.startswith("/proc/sys/"):
        key = path[len("/proc/sys/") :].replace("/", ".")
        words = re.escape(key).replace(r"\.", "[./]")
        return Needle(words, tuned=r"^\s*{}\s*=".format(words), key=key)
    name = path.rpartition("/")[2]
    if "/cpufreq/" in path and name in ("scaling_governor", "energy_performance_preference"):
        tuned = {
            "scaling_governor": r"^\s*governor\s*=",
            "energy_performance_preference": r"^\s*energy_perf(?:ormance_preference|_bias)\s*=",
        }[name]
        return Needle(
            name + "|" + GOVERNOR_WORDS, GOVERNORS, GOVERNOR_FILES, tuned + "|" + name, path
        )
    last = re.escape("/".join(path.split("/")[-2:]))
    tuned = last
    if path == "/sys/kernel/mm/transparent_hugepage/enabled":
        tuned += r"|^\s*transparent_hugepages?\s*="
    return Needle(last, tuned=tuned, path=path)


def gpu(field):
    if field not in GPU_FIELDS:
        return None
    words = SMI.format(GPU_FIELDS[field]) + "|" + DCGM
    if field == "mig_pending":
        return Needle(words + "|" + MIG, services=("nvidia-mig-manager.service",))
    return Needle(words)


def unit(name):
    stem = name[: -len(".service")] if name.endswith(".service") else name
    called = r"{}(?:\.service)?(?![\w.@-])".format(re.escape(stem))
    words = r"systemctl\b[^;|&]*\s(?:{0})\s[^;|&]*{1}|\bservice\s+{1}\s+(?:start|stop)".format(
        UNIT_VERBS, r"(?<![\w.@-])" + called
    )
    found = Needle(words)
    found.unit = name
    return found


def module(name, loaded):
    """Who would bring back what it is now: who loads one that is loaded, or keeps one out."""
    spelt = re.sub("[-_]", "[-_]", name)
    verb = r"(?:modprobe(?!\s+(?:-r|--remove))|insmod)" if loaded else r"(?:modprobe\s+-r|rmmod)"
    found = Needle(r"\b{}\b.*(?<![\w-]){}(?![\w-])".format(verb, spelt))
    found.module = spelt
    found.loaded = loaded
    return found


def pins(line, package):
    """Whether a line of apt's preferences is of this package; one of all of them is not.

    >>> [pins("Package: " + word, "nvidia-utils") for word in ("nvidia-*", "/nvidia/", "*", "cuda")]
    [True, True, False, False]
    """
    key, colon, value = line.partition(":")
    if not colon or key.strip().lower() != "package":
        return False
    return any(names_package(word, package) for word in value.split())


def names_package(word, package):
    """Whether a word of apt_preferences(5) names a package: itself, as a pattern, or /in/ it."""
    if len(word) > 2 and word[0] == word[-1] == "/":
        try:
            return re.search(word[1:-1], package) is not None
        except re.error:
            return True  # nobody knows
    word = word.partition(":")[0]
    return word != "*" and fnmatch.fnmatchcase(package, word)


def names_key(word, key):
    """Whether a name in sysctl.d, perhaps a pattern, is of this key."""
    return fnmatch.fnmatchcase(key, word.lstrip("-").replace("/", "."))
