"""The few programs that are asked: systemctl, dpkg-query, rpm and modprobe --show-depends.

They change nothing here.
"""

import os
import subprocess

SECONDS = 15
OUTPUT = 1 << 20


class ToolError(Exception):
    """The program gave no answer; the message says why."""


def run(*words):
    """(exit code, stdout as text). Raises ToolError."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # as root has it
    environment = dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", SYSTEMD_COLORS="0", PATH=path)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise ToolError("{} is not on the node".format(words[0]))
    except OSError as error:
        raise ToolError("{} does not run: {}".format(words[0], error.strerror))
    except subprocess.TimeoutExpired:
        raise ToolError("{} does not answer within {} s".format(words[0], SECONDS))
    return done.returncode, done.stdout[:OUTPUT].decode("utf-8", "backslashreplace")


def show(unit, properties):
    """Properties of a unit, as systemctl(1) shows them. Raises ToolError."""
    code, text = run("systemctl", "show", "--property=" + ",".join(properties), "--", unit)
    rows = dict(row.split("=", 1) for row in text.splitlines() if "=" in row)
    if code != 0 or not set(properties) <= set(rows):
        raise ToolError("systemctl does not show {}".format(ascii(unit)))
    return rows
