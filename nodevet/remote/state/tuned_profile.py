"""A profile of nodevet's own among those that TuneD has active."""

import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.cpufreq import (
    GOVERNOR_FILES,
    GOVERNOR_SERVICES,
    GOVERNOR_WORDS,
    LIMIT_FILES,
    LIMIT_WORDS,
    PREFERENCE_WORDS,
    PROFILE_WORDS,
    SERVICES,
)
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import exists, read

OWN = "nodevet-"
NAME = re.compile(r"nodevet-[a-z]+(-[a-z]+){0,9}\Z")
FREQUENCY = "nodevet-cpu-frequency"
PROFILE, MODE = "/etc/tuned/active_profile", "/etc/tuned/profile_mode"
AUTO = "/etc/tuned/nodevet-auto"  # while one of nodevet is active: TuneD had chosen its profile
WORDS = ("scaling_governor", r"\bcpu_dma_latency\b", PROFILE_WORDS, GOVERNOR_WORDS)
FREQUENCY_WORDS = (
    r"scaling_(?:max|min)_freq|energy_performance_preference|no_turbo",
    *(r"cpufreq/(?:policy[^/]*/)?boost", PROFILE_WORDS, PREFERENCE_WORDS, LIMIT_WORDS),
)


def look(root: str, name: str) -> "dict[str, object]":
    """The active profiles that are not nodevet's, `manual` or `auto`, and whether this one is
    active."""
    if not NAME.match(name):
        raise ValueError("not a profile of nodevet")
    try:
        names = read(root, PROFILE).split()
    except (FileNotFoundError, NotADirectoryError):
        return absent()
    others = [other for other in names if not other.startswith(OWN)]
    was_auto = len(others) < len(names) and exists(root, AUTO)
    return present(
        {
            "profile": " ".join(others),
            "mode": "auto" if was_auto else mode(root),
            "included": name in names,
        }
    )


def mode(root: str) -> str:
    """Raises OSError, ValueError."""
    try:
        return read(root, MODE).strip()
    except FileNotFoundError:
        return "manual"


def patterns(root: str, name: str) -> "Patterns":
    """What else chooses a profile, or sets what nodevet lets TuneD set."""
    is_frequency = name == FREQUENCY
    return Patterns(
        "|".join(FREQUENCY_WORDS if is_frequency else WORDS),
        services=SERVICES + GOVERNOR_SERVICES,
        files=LIMIT_FILES if is_frequency else GOVERNOR_FILES,
    )
