"""A machine of captured files that the shipped payload takes for the live machine it runs on.

In a mount namespace of its own the capture lies over this machine's /sys, /proc and /dev/kmsg, and
programs that print captured text over those of the same name. It takes root.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodevet.evidence.document import Evidence, decode
from nodevet.fleet.protocol import exchange, payload

PROGRAMS = "usr/local/sbin"
FOLDERS = ("sys", "proc", "dev", "var/log", "var/lib/systemd", "sys/class", PROGRAMS)
NONCE = "captured"
OVER = """
set -e
tree=$1
shift
for program in "$tree"/usr/local/sbin/*; do
    for folder in /usr/sbin /usr/bin /usr/local/bin; do
        place=$folder/${program##*/}
        [ ! -e "$place" ] || mount --bind "$program" "$place"
    done
done
for place in /usr/local/sbin /var/log /var/lib/systemd /dev/kmsg /sys /proc; do
    mount --bind "$tree$place" "$place"
done
exec "$@"
"""


def can_be_made() -> bool:
    """Whether this process may have a mount namespace."""
    tried = ["unshare", "--mount", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(tried, check=False).returncode == 0


def write_program(tree: Path, name: str, text: bytes, code: int = 0, device: str = "") -> None:
    """A program of the machine that prints this text, and ends with this code; with a `device`, if
    its arguments name that."""
    (tree / PROGRAMS).mkdir(parents=True, exist_ok=True)
    (tree / PROGRAMS / f".{name}").write_bytes(text)
    asked = f'case " $* " in *" {device} "*) ;; *) exit 64 ;; esac\n' if device else ""
    write_script(tree, name, f"{asked}cat /{PROGRAMS}/.{name}\nexit {code}\n")


def write_script(tree: Path, name: str, text: str) -> None:
    """A program of the machine: these lines of sh."""
    (tree / PROGRAMS).mkdir(parents=True, exist_ok=True)
    place = tree / PROGRAMS / name
    place.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    place.chmod(0o755)


def evidence(
    tree: Path,
    sections: Sequence[str] = (),
    asks: Mapping[str, Sequence[Any]] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Evidence:
    """What the probe reads on the machine of this tree; `sections`: of these alone."""
    for folder in FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "dev/kmsg").touch()
    if not (tree / PROGRAMS / "journalctl").exists():
        write_program(tree, "journalctl", b"")
    wish = exchange.request(
        nonce=NONCE, root="/", whole_machine=True, deadline=60, asked_s=None, asks=asks
    )
    request = json.dumps({**json.loads(wish), "sections": list(sections)}).encode() + b"\n"
    python = [sys.executable, "-I", "-c", payload.BOOT]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", OVER, "sh", str(tree.resolve()), *python],
        input=payload.payload() + request,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return decode(exchange.unframe(done.stdout, NONCE))
