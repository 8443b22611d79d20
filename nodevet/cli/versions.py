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
    found = {"nodevet": __version__}
    for name, distribution in PARTS.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            continue
    found["python"] = platform.python_version()
    found["executable"] = sys.executable
    found["platform"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    with suppress(OSError, KeyError):
        found["system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    return found
