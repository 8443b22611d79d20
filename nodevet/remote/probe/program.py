"""Running a program of the node that only reads: its output is bounded, and so is its time."""

import os
import select
import signal
import time

from nodevet.remote.probe.children import PR_SET_PDEATHSIG, find_prctl
from nodevet.remote.probe.files import SectionError, quote, reason

CHUNK = 1 << 16  # bytes
COMPLAINT = 4096  # bytes of what it says on stderr


def find(name, paths):
    """The first of these paths that can be run. Raises SectionError."""
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    raise SectionError(name + " is not on this node")


def printed(words, seconds, limit):
    """What a program prints, at most `limit` bytes, within so many seconds. Raises SectionError."""
    import subprocess  # costs time that most nodes need not spend

    name = os.path.basename(words[0])
    prctl = find_prctl()

    def die_with_us():
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    try:
        program = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_COLORS": "0"},
            cwd="/",
            preexec_fn=die_with_us,  # noqa: PLW1509  (no threads here)
        )
    except OSError as error:
        raise SectionError("{} does not run: {}".format(name, reason(error)))
    try:
        told, complaint = gathered(name, program, time.monotonic() + seconds, seconds, limit)
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()
        program.stdout.close()
        program.stderr.close()
    if program.returncode:
        said = complaint[:COMPLAINT].decode("utf-8", "backslashreplace").strip()
        raise SectionError("{} ended with {}: {}".format(name, program.returncode, quote(said)))
    return told.decode("utf-8", "backslashreplace")


def gathered(name, program, end, seconds, limit):
    """Its stdout, and the beginning of its stderr, once it has ended. Raises SectionError."""
    texts = {program.stdout.fileno(): b"", program.stderr.fileno(): b""}
    out, complaint = texts
    poll = select.poll()
    for file in texts:
        poll.register(file, select.POLLIN)
    left = len(texts)
    while left or program.poll() is None:
        rest = end - time.monotonic()
        if rest <= 0:
            raise SectionError("{} does not answer within {:g} s".format(name, seconds))
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
            raise SectionError("{} printed more than {} MiB".format(name, limit >> 20))
    return texts[out], texts[complaint]
