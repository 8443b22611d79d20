"""The versions of nodevet and of what it uses, for bug reports."""

import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from nodevet import __version__

PARTS = {"nodevet-sim": "nodevet-sim", "pyinfra": "pyinfra", "pynvml": "nvidia-ml-py"}
"""By the names that people call them: distributions."""


def versions() -> dict[str, str]:
    """The version of each installed distribution by its name."""
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
