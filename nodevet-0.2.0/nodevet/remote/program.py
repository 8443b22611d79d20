"""Runs a program of the node that only reads, with bounded output and time."""

import os
import select
import signal
import time

from nodevet.remote.lifetime import PR_SET_NO_NEW_PRIVS, find_prctl, kill_with_parent
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
DESCRIPTORS = 256  # that a program does not inherit
GRACE = 1.0  # seconds for a program's remaining processes to end
PR_SET_CHILD_SUBREAPER = 36
STDERR_LIMIT = 4096  # bytes
ENVIRONMENT = {
    "LC_ALL": "C",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_PAGER": "",
}


class ToolError(SectionError):
    """The program gave no output; the message says why."""


def find_program(name: str) -> str:
    """The path of a program. Raises ToolError."""
    for folder in FOLDERS:
        path = folder + "/" + name
        if os.access(path, os.X_OK):
            return path
    raise ToolError(name + " is not on this node")


class Program(object):
    """A running program: its process and its pipes. Importing subprocess takes longer than most
    programs run."""

    def __init__(self, pid: int, stdout: int, stderr: "int | None") -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr  # None if it is not read
        # exit code after its end, or minus the signal that ended it
        self.code: "int | None" = None

    def ended(self, flags: int = os.WNOHANG) -> bool:
        """Whether it has ended; sets `code`."""
        if self.code is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | flags)
            if status is not None:
                signaled = status.si_code != os.CLD_EXITED
                self.code = -status.si_status if signaled else status.si_status
        return self.code is not None

    def end(self) -> None:
        """Kill its process group and close its pipes."""
        try:
            os.killpg(self.pid, signal.SIGKILL)  # not reused before waitpid
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        for file in (self.stdout, self.stderr):
            if file is not None:
                os.close(file)


def start(
    argv: "list[str] | tuple[str, ...]", stderr: bool, user: "User | None" = None
) -> "Program":
    """Start a program, which the kernel kills when this process exits. Raises OSError.

    `user`: (uid, gid, groups) that it runs as, without a way to another user."""
    prctl = find_prctl()
    stdout, stderr_pipe, error_pipe = os.pipe(), os.pipe() if stderr else (None, None), os.pipe()
    pid = os.fork()
    if not pid:
        exec_program(argv, stdout[1], stderr_pipe[1], error_pipe[1], prctl, user)
    for file in (stdout[1], stderr_pipe[1], error_pipe[1]):
        if file is not None:
            os.close(file)
    program = Program(pid, stdout[0], stderr_pipe[0])
    code = os.read(error_pipe[0], 16)  # nothing once it runs
    os.close(error_pipe[0])
    if code:
        program.end()
        raise OSError(int(code), os.strerror(int(code)), argv[0])
    return program


def exec_program(
    argv: "list[str] | tuple[str, ...]",
    stdout: int,
    stderr: "int | None",
    error_pipe: int,
    prctl: "Callable[..., int] | None",
    user: "User | None",
) -> None:
    """Replace this process with a program."""
    try:
        os.setsid()
        if user is not None:
            give_pipes((stdout, stderr), user[0])
            drop_privileges(prctl, *user)
        kill_with_parent(prctl)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, file in enumerate((null, stdout, null if stderr is None else stderr)):
            os.dup2(file, descriptor)
        os.closerange(3, error_pipe)
        os.closerange(error_pipe + 1, DESCRIPTORS)
        os.chdir("/")
        os.execve(argv[0], argv, ENVIRONMENT)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(error_pipe, str(error.errno).encode("ascii"))
    finally:
        os._exit(127)


def give_pipes(pipes: "Sequence[int | None]", uid: int) -> None:
    """Let a user open /dev/stdout and /dev/stderr, as scripts do."""
    for pipe in pipes:
        try:
            if pipe is not None:
                os.fchown(pipe, uid, -1)
        except OSError:  # root of a container may not; few programs need it
            pass


def drop_privileges(
    prctl: "Callable[..., int] | None", uid: int, gid: int, groups: "Sequence[int]"
) -> None:
    """Become this user, for good. Raises OSError."""
    if prctl is not None:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def run(
    argv: "list[str] | tuple[str, ...]",
    seconds: float = SECONDS,
    limit: int = OUTPUT,
    user: "User | None" = None,
) -> "tuple[int, str, str]":
    """(exit code, stdout, the beginning of stderr) of a program; argv[0] is its path. `limit`:
    bytes of stdout. `user`: see start. Raises ToolError."""
    name = os.path.basename(argv[0])
    try:
        program = start(argv, stderr=True, user=user)
    except OSError as error:
        raise ToolError("{} cannot be run: {}".format(name, reason(error)))
    try:
        stdout, stderr = collect_output(name, program, time.monotonic() + seconds, seconds, limit)
    finally:
        program.end()
    if program.code is None:
        raise ToolError(name + " did not end")
    error_text = stderr[:STDERR_LIMIT].decode("utf-8", "backslashreplace").strip()
    return program.code, stdout.decode("utf-8", "backslashreplace"), error_text


def run_alone(
    argv: "list[str] | tuple[str, ...]",
    seconds: float = SECONDS,
    limit: int = OUTPUT,
    user: "User | None" = None,
) -> "tuple[int, str, str]":
    """`run`, and kill every process that the program left behind, daemons too; for programs that
    nodevet does not know. Raises ToolError."""
    prctl, existing = find_prctl(), children()
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    try:
        return run(argv, seconds, limit, user)
    finally:
        kill_children_except(existing)
        if prctl is not None:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children() -> "set[int]":
    """The children of this process; empty if the kernel does not list them."""
    try:
        with open("/proc/self/task/{}/children".format(os.getpid())) as file:
            return set(map(int, file.read().split()))
    except (OSError, ValueError):
        return set()


def kill_children_except(existing: "set[int]") -> None:
    """Kill every other child of this process, and the orphans that this makes its children."""
    end = time.monotonic() + GRACE
    while time.monotonic() < end:
        pids = children() - existing
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:  # gone, or another user's
                pass
        time.sleep(0.002)


def output_of(
    argv: "list[str] | tuple[str, ...]", seconds: float = SECONDS, limit: int = OUTPUT
) -> str:
    """A program's stdout. Raises ToolError, also if its exit code is not 0."""
    code, text, stderr = run(argv, seconds, limit)
    if code:
        name = os.path.basename(argv[0])
        raise ToolError("{} ended with {}: {}".format(name, code, quote(stderr)))
    return text


def collect_output(
    name: str, program: "Program", deadline: float, seconds: float, limit: int
) -> "tuple[bytes, bytes]":
    """(stdout, the beginning of stderr) once a program has ended. Raises ToolError."""
    texts = {file: b"" for file in (program.stdout, program.stderr) if file is not None}
    stdout, stderr = texts
    poll = select.poll()
    for file in texts:
        poll.register(file, select.POLLIN)
    open_count = len(texts)
    while open_count or not program.ended():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ToolError("{} timed out after {:g} s".format(name, round(seconds, 1)))
        if not open_count:
            time.sleep(0.002)
        for file, _ in poll.poll(remaining * 1000) if open_count else ():
            chunk = os.read(file, CHUNK)
            if not chunk:
                poll.unregister(file)
                open_count -= 1
            elif file == stdout or len(texts[file]) < STDERR_LIMIT:
                texts[file] += chunk
        if len(texts[stdout]) > limit:
            raise ToolError("{} printed more than {} MiB".format(name, limit >> 20))
    return texts[stdout], texts[stderr]
