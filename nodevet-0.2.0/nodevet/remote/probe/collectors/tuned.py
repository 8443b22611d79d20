"""TuneD's active profile: what it and the profiles that it includes set of CPUs."""

import os

from nodevet.remote.probe.files import LINE, Absent, Reading, exists
from nodevet.remote.tuned import ACTIVE, ProfileFiles, TunedProfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
FOLDERS = ("/etc/tuned/profiles", "/etc/tuned")
KEYS = ("governor", "force_latency", "pm_qos_resume_latency_us")
MOST = 64  # settings, or scripts


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """Raises Absent without an active profile, and as `ProfileFiles`."""
    node = ProfileFiles(root)
    active = " ".join(node.text(path).strip() for path in ACTIVE).strip()
    if not active:
        raise Absent("TuneD has no active profile")
    profile = TunedProfile(node)
    section = Reading()
    section.take("profile", lambda: active[:LINE])
    section.take("profiles", lambda: [os.path.basename(os.path.dirname(p)) for p in profile.files])
    section.take("missing", lambda: profile.missing)
    section.take("settings", settings, profile)
    section.take("scripts", lambda: [path for _, _, path in profile.scripts()][:MOST])
    section.take("folder", lambda: next(path for path in FOLDERS if exists(root, path)))
    return section


def settings(profile: "TunedProfile") -> "list[dict[str, object]]":
    return [
        {"file": path, "line": number, "section": section, "key": key, "value": value[:LINE]}
        for path in profile.files
        for number, section, key, value in profile.settings(path)
        if key in KEYS
    ][:MOST]
