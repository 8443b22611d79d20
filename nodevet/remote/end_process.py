"""Ends one process: SIGTERM, a wait, SIGKILL, a wait. The program of an action on the node.

Arguments: its pid, its start in seconds after boot, its user, the Slurm job that left it (empty:
none), and seconds to wait after each signal.

A pidfd names the process itself: no signal can reach another process that gets the pid. The
identity is read after the pidfd is open, and the process is alive after that, so both are of one
process. It ends with 0 if the process has ended, by whatever, and else says why it has not.
"""

import ctypes
import os
import re
import select
import signal
import sys

OPEN, SEND = 434, 424  # pidfd_open(2), pidfd_send_signal(2): the same on every architecture
USER_HZ = 100  # clock ticks per second in /proc
KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
JOB = re.compile(r"/job_([0-9]+)(?:/|$)", re.M)
BY_USER = re.compile(r"/user@[0-9]+\.service/.*")  # the user's own systemd: names of any kind
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int) -> int:
    """The result of a system call. Raises OSError."""
    result = LIBC.syscall(number, *(ctypes.c_long(argument) for argument in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def text(pid: int, name: str) -> str:
    with open("/proc/{}/{}".format(pid, name), errors="replace") as file:
        return file.read()


def ends(process: int, seconds: float) -> bool:
    """Whether the process of a pidfd ends within this time."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def another(pid: int, started: float) -> bool:
    """Whether the pid belongs to a process with another start."""
    ticks = text(pid, "stat").rsplit(")", 1)[1].split()[19]
    return int(ticks) != round(started * USER_HZ)


def refusal(pid: int, uid: int, job: str) -> str:
    """Why this process may not be ended; empty if it may."""
    match = re.search(r"^Uid:\s+([0-9]+)", text(pid, "status"), re.M)
    if match is None or int(match.group(1)) != uid:
        return "its user is another one now"
    if int(text(pid, "stat").rsplit(")", 1)[1].split()[6]) & KERNEL_THREAD:
        return "it is a thread of the kernel"
    cgroup = BY_USER.sub("", text(pid, "cgroup"))
    if "/kubepods" in cgroup or set(JOB.findall(cgroup)) - {job}:
        return "it is in the control group of a job or a pod"
    return ""


def main(pid: int, started: float, uid: int, job: str, seconds: float) -> str:
    """Why the process has not ended; empty if it has."""
    try:
        process = call(OPEN, pid, 0)
        if another(pid, started):
            return ""
        why = refusal(pid, uid, job)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError as error:
        return "process {}: {}".format(pid, error)
    if ends(process, 0):
        return ""
    if why:
        return "process {}: {}; nothing was done to it".format(pid, why)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            call(SEND, process, number, 0, 0)
        except ProcessLookupError:
            return ""
        except OSError as error:
            return "process {}: {}".format(pid, error)
        if ends(process, seconds):
            return ""
    return "process {} is still there after SIGKILL: it waits for the kernel".format(pid)


ID, START, USER, OF_JOB, WAIT = sys.argv[1:]
sys.exit(main(int(ID), float(START), int(USER), OF_JOB, float(WAIT)) or 0)
