"""Running a program of the node that only reads: its output is bounded, and so is its time."""

import os
import select
import signal
import time

from nodevet.remote.guard import PR_SET_NO_NEW_PRIVS, find_prctl, kill_with_parent
from nodevet.remote.probe.files import SectionError, quote, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Sequence, Tuple

    User = Tuple[int, int, Sequence[int]]

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
DESCRIPTORS = 256  # that a program does not inherit, whoever left them open
GRACE = 1.0  # seconds for what a program leaves behind to be gone
PR_SET_CHILD_SUBREAPER = 36
COMPLAINT = 4096  # bytes of what it says on stderr
ENVIRONMENT = {
    "LC_ALL": "C",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_PAGER": "",
}


class ToolError(SectionError):
    """The program gave no answer; the message says why."""


def find(name: str) -> str:
    """The path of a program. Raises ToolError."""
    for folder in FOLDERS:
        path = folder + "/" + name
        if os.access(path, os.X_OK):
            return path
    raise ToolError(name + " is not on this node")


class Program(object):
    """A running program: its process, and what it writes. subprocess, which can do more, takes
    longer to import than most programs take."""

    def __init__(self, pid: int, stdout: int, stderr: "int | None") -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr  # None if nobody wants it
        # its exit code once it has ended, or minus the signal that ended it
        self.code: "int | None" = None

    def ended(self, flags: int = os.WNOHANG) -> bool:
        """Whether it has ended."""
        if self.code is None:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | flags)
            if found is not None:
                signaled = found.si_code != os.CLD_EXITED
                self.code = -found.si_status if signaled else found.si_status
        return self.code is not None

    def end(self) -> None:
        """Kill it, and what it started, and leave nothing of it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)  # nobody else's number until it is waited for
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        for file in (self.stdout, self.stderr):
            if file is not None:
                os.close(file)


def start(
    words: "list[str] | tuple[str, ...]", stderr: bool, user: "User | None" = None
) -> "Program":
    """A running program, which the kernel kills when we are gone. Raises OSError.

    `user`: (uid, gid, groups) of whom it is to be, who can become nobody else."""
    prctl = find_prctl()
    out, complaint, fault = os.pipe(), os.pipe() if stderr else (None, None), os.pipe()
    pid = os.fork()
    if not pid:
        become(words, out[1], complaint[1], fault[1], prctl, user)
    for file in (out[1], complaint[1], fault[1]):
        if file is not None:
            os.close(file)
    program = Program(pid, out[0], complaint[0])
    code = os.read(fault[0], 16)  # nothing once it runs
    os.close(fault[0])
    if code:
        program.end()
        raise OSError(int(code), os.strerror(int(code)), words[0])
    return program


def become(
    words: "list[str] | tuple[str, ...]",
    out: int,
    complaint: "int | None",
    fault: int,
    prctl: "Callable[..., int] | None",
    user: "User | None",
) -> None:
    """Be this program from here on."""
    try:
        os.setsid()
        if user is not None:
            give((out, complaint), user[0])
            drop(prctl, *user)
        kill_with_parent(prctl)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, file in enumerate((null, out, null if complaint is None else complaint)):
            os.dup2(file, descriptor)
        os.closerange(3, fault)
        os.closerange(fault + 1, DESCRIPTORS)
        os.chdir("/")
        os.execve(words[0], words, ENVIRONMENT)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(fault, str(error.errno).encode("ascii"))
    finally:
        os._exit(127)


def give(pipes: "Sequence[int | None]", uid: int) -> None:
    """Let this user open its own /dev/stdout and /dev/stderr, as scripts do."""
    for pipe in pipes:
        try:
            if pipe is not None:
                os.fchown(pipe, uid, -1)
        except OSError:  # root of a container that may not: most programs do without
            pass


def drop(prctl: "Callable[..., int] | None", uid: int, gid: int, groups: "Sequence[int]") -> None:
    """Be this user, for good. Raises OSError."""
    if prctl is not None:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def run(
    words: "list[str] | tuple[str, ...]",
    seconds: float = SECONDS,
    limit: int = OUTPUT,
    user: "User | None" = None,
) -> "tuple[int, str, str]":
    """(exit code, stdout, the beginning of stderr) of a program, named by its path; stdout of at
    most `limit` bytes, within so many seconds. `user`: see start. Raises ToolError."""
    name = os.path.basename(words[0])
    try:
        program = start(words, stderr=True, user=user)
    except OSError as error:
        raise ToolError("{} cannot be run: {}".format(name, reason(error)))
    try:
        told, complaint = gathered(name, program, time.monotonic() + seconds, seconds, limit)
    finally:
        program.end()
    if program.code is None:
        raise ToolError(name + " did not end")
    said = complaint[:COMPLAINT].decode("utf-8", "backslashreplace").strip()
    return program.code, told.decode("utf-8", "backslashreplace"), said


def run_alone(
    words: "list[str] | tuple[str, ...]",
    seconds: float = SECONDS,
    limit: int = OUTPUT,
    user: "User | None" = None,
) -> "tuple[int, str, str]":
    """`run`, of which no process is left, not even one that became a daemon; for programs that
    nobody here knows. Raises ToolError."""
    prctl, known = find_prctl(), children()
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what it leaves behind becomes our child
    try:
        return run(words, seconds, limit, user)
    finally:
        end_all_but(known)
        if prctl is not None:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children() -> "set[int]":
    """The children of this process; none where the kernel does not tell them."""
    try:
        with open("/proc/self/task/{}/children".format(os.getpid())) as file:
            return set(map(int, file.read().split()))
    except (OSError, ValueError):
        return set()


def end_all_but(known: "set[int]") -> None:
    """Kill every child of this process but these, and what becomes its child by that."""
    end = time.monotonic() + GRACE
    while time.monotonic() < end:
        left = children() - known
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:  # gone, or another user's that nobody but root ends
                pass
        time.sleep(0.002)


def printed(
    words: "list[str] | tuple[str, ...]", seconds: float = SECONDS, limit: int = OUTPUT
) -> str:
    """What a program prints. Raises ToolError, also if its exit code is not 0."""
    code, text, complaint = run(words, seconds, limit)
    if code:
        name = os.path.basename(words[0])
        raise ToolError("{} ended with {}: {}".format(name, code, quote(complaint)))
    return text


def gathered(
    name: str, program: "Program", end: float, seconds: float, limit: int
) -> "tuple[bytes, bytes]":
    """Its stdout, and the beginning of its stderr, once it has ended. Raises ToolError."""
    texts = {file: b"" for file in (program.stdout, program.stderr) if file is not None}
    out, complaint = texts
    poll = select.poll()
    for file in texts:
        poll.register(file, select.POLLIN)
    left = len(texts)
    while left or not program.ended():
        rest = end - time.monotonic()
        if rest <= 0:
            raise ToolError("{} timed out after {:g} s".format(name, round(seconds, 1)))
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
