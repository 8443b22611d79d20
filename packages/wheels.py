"""Put the wheels of nodevet's dependencies into a folder, as .ci/requirements.txt pins them.

.venv/bin/python packages/wheels.py FOLDER
"""

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PINS = Path(__file__).parents[1] / ".ci/requirements.txt"
EXTRAS = ("notify", "postgres")  # pure Python, and a package has no pip to add them
PIP = ("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: wheels.py FOLDER\n")
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pins = folder / "pins.txt"
    pins.write_text("".join(pinned(needed())), encoding="utf-8")
    words = ("--no-build-isolation", "--require-hashes", "-w", str(folder), "-r", str(pins))
    return subprocess.run([sys.executable, *PIP, *words], check=False).returncode


def needed() -> set[str]:
    """The distributions that nodevet with EXTRAS needs on this Python; all are installed here."""
    found = {(canonicalize_name("nodevet"), extra) for extra in ("", *EXTRAS)}
    waiting = [*found]
    while waiting:
        name, extra = waiting.pop()
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                key = canonicalize_name(requirement.name)
                more = {(key, one) for one in ("", *requirement.extras)} - found
                found |= more
                waiting += more
    return {str(name) for name, _ in found} - {"nodevet"}


def pinned(names: set[str]) -> list[str]:
    """The entries of .ci/requirements.txt for these distributions, with their hashes. Raises
    SystemExit if one has none."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", PINS.read_text(encoding="utf-8"))
    chosen = [entry for entry in entries if entry.partition("==")[0].strip() in names]
    missing = names - {entry.partition("==")[0].strip() for entry in chosen}
    if missing:
        raise SystemExit(f"{PINS} does not pin {', '.join(sorted(missing))}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
