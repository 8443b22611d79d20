"""What this nodevet is and runs on: for a report of a fault."""

import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from nodevet import __version__

PARTS = {"nodevet-sim": "nodevet-sim", "pyinfra": "pyinfra", "pynvml": "nvidia-ml-py"}
"""By the names that people call them: distributions."""


def versions() -> dict[str, str]:
    """What is installed by its name, with its version; what is not installed is left out."""
    known = {"nodevet": __version__}
    for name, distribution in PARTS.items():
        try:
            known[name] = version(distribution)
        except PackageNotFoundError:
            continue
    known["python"] = platform.python_version()
    known["executable"] = sys.executable
    known["platform"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    with suppress(OSError, KeyError):
        known["system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    return known
