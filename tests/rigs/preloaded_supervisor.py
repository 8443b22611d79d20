"""The supervisor of a fleet begins, in tests, as a copy of the `nodevet sim up` that starts it: to
import the simulator takes a third of a second of CPU time, for each fleet.

The copy is the child of that process, in a mount namespace of its own, with the session, folder and
files that control.up gives it. NODEVET_PRELOADED=0 turns it off.
"""

import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from inspect import signature
from typing import Any, NoReturn

MODULE = "nodevet_sim.nspawn.supervisor"
WORDS = ["unshare", "--mount", "--propagation", "private", "--", sys.executable, "-m", MODULE]
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
OURS = ("p2cwrite", "c2pread", "errread")  # ends of pipes, of which it gets none
FILES = ("p2cread", "c2pwrite", "errwrite")
NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE and MS_REC
FAILED = 1
RESET = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

_start = subprocess.Popen._execute_child


def use() -> None:
    """From now on, in this process, which has imported the simulator."""
    before = subprocess.Popen._execute_child

    def execute(self: Any, *args: Any) -> None:
        asked = signature(_start).bind(self, *args).arguments
        words = asked["args"]
        may = isinstance(words, list) and words[: len(WORDS)] == WORDS
        may = may and asked["start_new_session"]
        may = may and asked["env"] is None and all(asked[name] == -1 for name in OURS)
        if not may:
            before(self, *args)
            return
        pid = os.fork()
        if pid == 0:
            _become(words[len(WORDS) :], asked)
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in PIPES))

    subprocess.Popen._execute_child = execute


def _become(words: list[str], asked: Mapping[str, Any]) -> NoReturn:
    """Run the supervisor, in the copy."""
    code = FAILED
    try:
        os.setsid()
        os.chdir(asked["cwd"])
        _take_files(asked)
        _unshare_mounts()
        for number in RESET:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv[:] = [MODULE, *words]
        code = importlib.import_module(MODULE).main()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _take_files(asked: Mapping[str, Any]) -> None:
    """Standard files first, and no others but those that are passed."""
    given = [asked[name] for name in FILES]
    for number, file in enumerate(given):
        if file != -1:
            os.dup2(file, number)
    sys.stdout, sys.stderr = (open(n, "w", buffering=1, closefd=False) for n in (1, 2))  # noqa: SIM115
    low = 3
    for kept in sorted(asked["pass_fds"]):
        os.closerange(low, kept)
        os.set_inheritable(kept, True)
        low = kept + 1
    os.closerange(low, 4096)


def _unshare_mounts() -> None:
    """As unshare(1) does, whose changes no other namespace sees. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) or libc.mount(b"none", b"/", None, PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
