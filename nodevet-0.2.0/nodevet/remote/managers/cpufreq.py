"""What sets a CPU frequency file: its governor, energy preference, limits, and turbo. Pure."""

from nodevet.remote.managers.patterns import Patterns

FOLDERS = ("cpufreq", "intel_pstate")
PROFILE_WORDS = r"tuned-adm\s+profile|powerprofilesctl\s+set"
SERVICES = ("auto-cpufreq.service", "tlp.service")  # set all of them
GOVERNOR_SERVICES = (
    "cpupower.service",
    "cpufrequtils.service",
    "loadcpufreq.service",
    "ondemand.service",
    "power-profiles-daemon.service",
)
GOVERNOR_WORDS = (
    r"cpupower\b.*\bfrequency-set|cpufreq-set|x86_energy_perf_policy|cpupower\b.*\bset\s"
)
GOVERNOR_FILES = (
    ("/etc/default/cpufrequtils", r"^\s*GOVERNOR\s*="),
    ("/etc/default/cpupower", r"frequency-set|^\s*governor\s*="),
    ("/etc/sysconfig/cpupower", r"frequency-set|^\s*governor\s*="),
)
LIMIT_WORDS = (
    r"(?:cpupower\b.*\bfrequency-set|cpufreq-set)\b.*\s(?:-[a-z]*[duf]|--(?:max|min|freq)\b)"
)
LIMIT_FILES = (
    ("/etc/default/cpufrequtils", r"^\s*(?:MAX|MIN)_SPEED\s*=\s*\"?[1-9]"),
    ("/etc/default/cpupower", LIMIT_WORDS + r"|^\s*(?:max|min)_freq\s*="),
    ("/etc/sysconfig/cpupower", LIMIT_WORDS),
)
TURBO_WORDS = r"cpupower\b.*\bset\b.*\s(?:-t|--turbo-boost)|x86_energy_perf_policy\b.*turbo"

GOVERNOR = GOVERNOR_WORDS, GOVERNOR_SERVICES, GOVERNOR_FILES
LIMIT = LIMIT_WORDS, (), LIMIT_FILES
TURBO = TURBO_WORDS, (), ()
FILES = {  # file -> commands, services and files that set it; keys of tuned's plug-in `cpu`
    "scaling_governor": (GOVERNOR, "governor"),
    "energy_performance_preference": (GOVERNOR, "energy_perf(?:ormance_preference|_bias)"),
    "scaling_max_freq": (LIMIT, "max_perf_pct"),
    "scaling_min_freq": (LIMIT, "min_perf_pct"),
    "no_turbo": (TURBO, "no_turbo"),
    "boost": (TURBO, "boost"),
}


def patterns_of_file(path: str) -> "Patterns | None":
    """Of a file of cpufreq, however a script names the policy; None for another file."""
    folder, name = path.split("/")[:-1], path.rpartition("/")[2]
    if name not in FILES or not set(folder).intersection(FOLDERS):
        return None
    (words, services, files), tuned = FILES[name]
    own = r"cpufreq/(?:policy[^/]*/)?boost" if name == "boost" else name
    return Patterns(
        "|".join((own, PROFILE_WORDS, words)),
        services=services + SERVICES,
        files=files,
        tuned=r"^\s*(?:{})\s*=|{}".format(tuned, own),
        slurm=None if words == TURBO_WORDS else r"(?i)^\s*CpuFreq(?:Def|Governors)\s*=",
        path=path,
    )
