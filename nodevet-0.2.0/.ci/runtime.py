"""Prints those lines of .ci/requirements.txt, with their hashes, that nodevet itself needs.

.venv/bin/python .ci/runtime.py kubernetes     # with this extra
"""

import re
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PINS = Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8")


def needed(extras: set[str]) -> set[str]:
    """The names of nodevet's dependencies and of theirs, as installed here."""
    names: set[str] = set()
    left = [("nodevet", frozenset(extras))]
    while left:
        name, chosen = left.pop()
        for text in requires(name) or ():
            wanted = Requirement(text)
            markers = [{"extra": extra} for extra in ("", *chosen)]
            is_wanted = wanted.marker is None or any(map(wanted.marker.evaluate, markers))
            if is_wanted and (found := canonicalize_name(wanted.name)) not in names:
                names.add(found)
                left.append((found, frozenset(wanted.extras)))
    return names


def pins(names: set[str]) -> list[str]:
    """The pin of each name, with its hashes."""
    blocks = re.findall(r"(?m)^([\w.-]+)(==.*(?:\n +--hash.*)+)", PINS)
    return [f"{name}{rest}" for name, rest in blocks if canonicalize_name(name) in names]


if __name__ == "__main__":
    sys.stdout.write("\n".join(pins(needed(set(sys.argv[1:])))) + "\n")
