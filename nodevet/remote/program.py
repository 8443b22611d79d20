"""Running a program of the node that only reads: its output is bounded, and so is its time."""

import os
import select
import time

from nodevet.remote.guard import find_prctl, kill_with_parent
from nodevet.remote.probe.files import SectionError, quote, reason

FOLDERS = (
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
)
SECONDS = 15
OUTPUT = 1 << 20  # bytes
CHUNK = 1 << 16  # bytes
COMPLAINT = 4096  # bytes of what it says on stderr


class ToolError(SectionError):
    """The program gave no answer; the message says why."""


def find(name):
    """The path of a program. Raises ToolError."""
    for folder in FOLDERS:
        path = folder + "/" + name
        if os.access(path, os.X_OK):
            return path
    raise ToolError(name + " is not on this node")


def start(words, stderr):
    """A running program, which the kernel kills when we are gone. Raises OSError."""
    import subprocess  # costs time that most nodes need not spend

    prctl = find_prctl()
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else subprocess.DEVNULL,
        env={
            "LC_ALL": "C",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SYSTEMD_COLORS": "0",
            "SYSTEMD_PAGER": "",
        },
        cwd="/",
        preexec_fn=lambda: kill_with_parent(prctl),  # noqa: PLW1509 - there are no threads here
    )


def run(words, seconds=SECONDS, limit=OUTPUT):
    """(exit code, stdout, the beginning of stderr) of a program, named by its path; stdout of at
    most `limit` bytes, within so many seconds. Raises ToolError."""
    name = os.path.basename(words[0])
    try:
        program = start(words, stderr=True)
    except OSError as error:
        raise ToolError("{} cannot be run: {}".format(name, reason(error)))
    try:
        told, complaint = gathered(name, program, time.monotonic() + seconds, seconds, limit)
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()
        program.stdout.close()
        program.stderr.close()
    said = complaint[:COMPLAINT].decode("utf-8", "backslashreplace").strip()
    return program.returncode, told.decode("utf-8", "backslashreplace"), said


def printed(words, seconds=SECONDS, limit=OUTPUT):
    """What a program prints. Raises ToolError, also if its exit code is not 0."""
    code, text, complaint = run(words, seconds, limit)
    if code:
        name = os.path.basename(words[0])
        raise ToolError("{} ended with {}: {}".format(name, code, quote(complaint)))
    return text


def gathered(name, program, end, seconds, limit):
    """Its stdout, and the beginning of its stderr, once it has ended. Raises ToolError."""
    texts = {program.stdout.fileno(): b"", program.stderr.fileno(): b""}
    out, complaint = texts
    poll = select.poll()
    for file in texts:
        poll.register(file, select.POLLIN)
    left = len(texts)
    while left or program.poll() is None:
        rest = end - time.monotonic()
        if rest <= 0:
            raise ToolError("{} timed out after {:g} s".format(name, seconds))
        if not left:
            time.sleep(0.002)
        for file, _ in poll.poll(rest * 1000) if left else ():
            chunk = os.read(file, CHUNK)
            if not chunk:
                poll.unregister(file)
                left -= 1
            elif file == out or len(texts[file]) < COMPLAINT:
                texts[file] += chunk
        if len(texts[out]) > limit:
            raise ToolError("{} printed more than {} MiB".format(name, limit >> 20))
    return texts[out], texts[complaint]
