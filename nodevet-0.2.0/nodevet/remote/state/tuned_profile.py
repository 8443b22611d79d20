"""The profile that TuneD has active."""

from nodevet.remote.look import absent, present
from nodevet.remote.managers.cpufreq import (
    GOVERNOR_FILES,
    GOVERNOR_SERVICES,
    GOVERNOR_WORDS,
    PROFILE_WORDS,
    SERVICES,
)
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.files import read

PROFILE, MODE = "/etc/tuned/active_profile", "/etc/tuned/profile_mode"
WORDS = ("scaling_governor", r"\bcpu_dma_latency\b", PROFILE_WORDS, GOVERNOR_WORDS)


def look(root: str, name: str) -> "dict[str, object]":
    """Its name, and `manual` or `auto`."""
    if name != "active":
        raise ValueError("not the active profile")
    try:
        return present({"profile": read(root, PROFILE).strip(), "mode": mode(root)})
    except (FileNotFoundError, NotADirectoryError):
        return absent()


def mode(root: str) -> str:
    """Raises OSError, ValueError."""
    try:
        return read(root, MODE).strip()
    except FileNotFoundError:
        return "manual"


def patterns(root: str, name: str) -> "Patterns":
    """What else chooses a profile, or sets what nodevet lets TuneD set."""
    services = SERVICES + GOVERNOR_SERVICES
    return Patterns("|".join(WORDS), services=services, files=GOVERNOR_FILES)
