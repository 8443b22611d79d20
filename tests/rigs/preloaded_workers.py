"""The process that keeps SSH sessions begins, in tests, as a copy of one that has imported pyinfra
and libssh already: to import them takes most of the time of a short run.

nodevet starts it by the words of `WORKERS`, in a session of its own. In its place begins a small
process that holds its number: it ends as the copy ends, and the copy is killed if it is. The copy
has the files, environment, folder and limit of open files that the process would have. Other words
start as always. NODEVET_PRELOADED=0 turns it off, and so does `off`.
"""

import atexit
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

BEGINNING = [sys.executable, "-I", "-m"]
WORKERS = frozenset({"nodevet.fleet.worker.serve", "nodevet.fleet.worker.shard"})
SIZE = struct.Struct("!q")
HOLDER = """\
exec <&"$0" >&- 2>&-
read -r code || exit 70
[ "$code" -lt 0 ] || exit "$code"
ulimit -c 0
kill "$code" $$
"""
"""A script of bash, which starts in a tenth of the CPU time of Python. It reads how the copy ended:
an exit code, or the number of a signal, negative."""

_start = subprocess.Popen._execute_child


class Place:
    """Where the preloaded process listens: `path`, once it is known, or `find` tells it."""

    path = ""
    find: Callable[[], str] = staticmethod(lambda: "")


def use(plain: Mapping[str, Any], same_start: Callable[[Any], bool]) -> None:
    """From now on, in this process: for what is started with the arguments `plain` and an
    environment in which Python starts the same."""
    before = subprocess.Popen._execute_child

    def execute(self: Any, *args: Any) -> None:
        asked = signature(_start).bind(self, *args).arguments
        words = list(asked["args"])
        may = words[:3] == BEGINNING and WORKERS.issuperset(words[3:])
        may = may and all(asked.get(name, value) == value for name, value in plain.items())
        if may and asked["cwd"] is None and asked["start_new_session"] and same_start(asked["env"]):
            asker = _asker()
        else:
            asker = None
        if asker is None:
            before(self, *args)
            return
        with asker:
            _ask(asker, asked)
            holder = ["/bin/bash", "-p", "-c", HOLDER, str(asker.fileno())]  # -p: no BASH_ENV
            _start(**{**asked, "args": holder, "pass_fds": (asker.fileno(),)})

    subprocess.Popen._execute_child = execute


@contextmanager
def off() -> Iterator[None]:
    """Workers of this process start as always meanwhile."""
    with patch.object(Place, "path", "/"):
        yield


def _ask(asker: socket.socket, asked: Mapping[str, Any]) -> None:
    env = os.environ if asked["env"] is None else asked["env"]
    order = {
        "module": asked["args"][3],
        "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
        "folder": str(Path.cwd()),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    text = json.dumps(order).encode()
    given = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
    files = [own if number == -1 else number for own, number in enumerate(given)]
    socket.send_fds(asker, [SIZE.pack(len(text))], files)
    asker.sendall(text)


def _asker() -> socket.socket | None:
    """A connection to the preloaded process; None if it cannot be reached from here."""
    Place.path = Place.path or Place.find()
    asker = socket.socket(socket.AF_UNIX)
    try:
        asker.connect(Place.path)
    except OSError:
        asker.close()
        return None
    return asker


def begin() -> str:
    """Start the preloaded process, and say where it listens. It ends when this process does."""
    from left_behind import shared

    folder = mkdtemp(prefix="nodevet-workers-")
    path = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listener, shared():
        listener.bind(path)
        listener.listen(64)
        words = [sys.executable, "-I", __file__, str(listener.fileno())]
        waits = subprocess.Popen(
            words, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=-3, stderr=-3
        )
    atexit.register(_end, waits, path)
    return path


def _end(waits: "subprocess.Popen[bytes]", path: str) -> None:
    waits.communicate()
    shutil.rmtree(Path(path).parent)


# --- the preloaded process ---


class Copies:
    """Those that run. What gevent patches is called as it was before: the copies patch nothing
    anew, and this process starts no loop of gevent's that they would share."""

    def __init__(self, listener: int) -> None:
        from gevent import monkey

        self._fork = monkey.get_original("os", "fork")
        self._poll = monkey.get_original("select", "poll")()
        self._socket = importlib.import_module("_socket").socket
        self._listener = self._socket(fileno=listener)
        self._asker: dict[int, Any] = {}  # by the copy's pid
        self._pid: dict[int, int] = {}  # by the descriptor of a connection, or of a process
        for descriptor in (0, listener):
            self._poll.register(descriptor, 1)

    def next_order(self) -> dict[str, Any]:
        """Returns in each copy; the preloaded process exits here."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == 0:
                    for pid in self._asker:
                        self._kill(pid)
                    os._exit(0)
                elif descriptor == self._listener.fileno():
                    if order := self._begun():
                        return order
                elif pid := self._pid.get(descriptor):
                    if descriptor == self._asker[pid].fileno():
                        self._kill(pid)  # whoever held its number is gone
                        self._poll.unregister(descriptor)
                    else:
                        self._ended(pid, descriptor)

    def _begun(self) -> dict[str, Any] | None:
        """The order, in the copy; None in this process."""
        asker = self._socket(fileno=self._listener._accept()[0])
        head, files, _, _ = socket.recv_fds(asker, SIZE.size, 3)
        if not head:
            return None
        text, size = b"", SIZE.unpack(head)[0]
        while len(text) < size:
            text += asker.recv(size - len(text))
        pid = self._fork()
        if pid == 0:
            os.setsid()
            for number, file in enumerate(files):
                os.dup2(file, number)
            os.closerange(3, 4096)
            return dict(json.loads(text))
        for file in files:
            os.close(file)
        self._asker[pid] = asker
        for descriptor in (asker.fileno(), os.pidfd_open(pid)):
            self._pid[descriptor] = pid
            self._poll.register(descriptor, 1)
        return None

    @staticmethod
    def _kill(pid: int) -> None:
        """Kill a copy, and what it started; one that just began has no group of its own yet."""
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def _ended(self, pid: int, descriptor: int) -> None:
        asker = self._asker.pop(pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for each in (descriptor, asker.fileno()):
            del self._pid[each]
        self._poll.unregister(descriptor)
        os.close(descriptor)
        with suppress(KeyError, OSError):  # nobody holds its number any more
            self._poll.unregister(asker.fileno())
            asker.send(b"%d\n" % code)
        asker.close()


def main(listener: int) -> None:
    importlib.import_module("nodevet.fleet.worker.serve")
    import gc

    gc.freeze()  # what is here already is not looked through in each copy
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = Copies(listener).next_order()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(order["files"]))
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["folder"])
    sys.argv[:] = [order["module"]]
    importlib.import_module(order["module"]).main()


if __name__ == "__main__":
    main(int(sys.argv[1]))
