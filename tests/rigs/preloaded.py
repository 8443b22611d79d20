"""`python -m nodevet …` of a test begins in a process that has imported nodevet already: that saves
most of the time of a short command.

What a test starts by these words with subprocess is its child as ever, with the arguments,
environment, folder, files and session that the test gives it. It is a copy of a process that waits
for this. Everything else starts as it always does: other words, a Python or a locale set otherwise,
a `preexec_fn`. NODEVET_PRELOADED=0 turns it off, for all or for one.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import platform
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import preloaded_supervisor
import preloaded_workers

WORDS = [sys.executable, "-m", "nodevet"]
PLAIN = {
    **{"executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False},
    **{"restore_signals": True, "gid": None, "gids": None, "uid": None, "umask": -1},
    "process_group": -1,
}
READ_AT_START = ("PYTHON", "LC_", "LANG", "NODEVET_PRELOADED")
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())  # the number of the system call
CLONE_PARENT = 0x8000  # whoever started the preloaded process is the parent of its copy
SIZE = struct.Struct("!q")
TURN = Lock()

_start = subprocess.Popen._execute_child


def use() -> None:
    """From now on, in this process."""
    if CLONE and os.environ.get("NODEVET_PRELOADED") != "0":
        subprocess.Popen._execute_child = _execute_child
        preloaded_workers.Place.find = cache(preloaded_workers.begin)
        _use_workers()


def _use_workers() -> None:
    plain = {name: value for name, value in PLAIN.items() if name != "cwd"}
    preloaded_workers.use(plain, _starts_the_same)


def _execute_child(self: Any, *args: Any) -> None:
    asked = signature(_start).bind(self, *args).arguments
    if _may_be_copy(asked):
        _begin(self, asked)
    else:
        _start(self, *args)


def _begin(self: Any, asked: Mapping[str, Any]) -> None:
    pipes = [asked[name] for name in PIPES]
    files = (pipes[0], pipes[3], pipes[5])
    self.pid = _begun(
        {
            "words": [os.fsdecode(word) for word in asked["args"][len(WORDS) :]],
            "folder": str(Path(asked["cwd"] or ".").absolute()),
            "env": _text(os.environ if asked["env"] is None else asked["env"]),
            "session": bool(asked["start_new_session"]),
        },
        [own if given == -1 else given for own, given in enumerate(files)],
    )
    self._child_created = True
    self._close_pipe_fds(*pipes)


def _may_be_copy(asked: Mapping[str, Any]) -> bool:
    words, env = asked["args"], asked["env"]
    return (
        isinstance(words, list | tuple)
        and list(words[: len(WORDS)]) == WORDS
        and all(asked.get(name, value) == value for name, value in PLAIN.items())
        and Path(asked["cwd"] or ".").is_dir()
        and _starts_the_same(env)
    )


def _starts_the_same(env: Mapping[Any, Any] | None) -> bool:
    now = os.environ if env is None else env
    return _at_start(_text(now)) == _at_start(_environment())


def _text(env: Mapping[Any, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


@cache
def _environment() -> dict[str, str]:
    return dict(os.environ)


@cache
def _server() -> socket.socket:
    """What this process asks for copies."""
    from left_behind import shared

    ours, its = socket.socketpair()
    with its, shared():
        words = [sys.executable, __file__, str(its.fileno()), preloaded_workers.Place.find()]
        waits = subprocess.Popen(
            words, pass_fds=[its.fileno()], env=_environment(), stdin=-3, stdout=-3, stderr=-3
        )
    atexit.register(_end, ours, waits)
    return ours


def _end(server: socket.socket, waits: subprocess.Popen[bytes]) -> None:
    server.close()
    waits.wait()


def _begun(order: dict[str, object], files: list[int]) -> int:
    text = json.dumps(order).encode()
    with TURN:
        server = _server()
        socket.send_fds(server, [SIZE.pack(len(text))], files)
        server.sendall(text)
        return int(SIZE.unpack(_exactly(server, SIZE.size))[0])


def _exactly(server: socket.socket, count: int) -> bytes:
    text = b""
    while len(text) < count:
        got = server.recv(count - len(text))
        if not got:
            raise EOFError("the preloaded nodevet has ended")
        text += got
    return text


# --- the preloaded process ---


def main(number: int, workers: str) -> NoReturn:
    preloaded_workers.Place.path = workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all()
    with socket.socket(fileno=number) as asker:
        order, files = _next_of(asker)
    _become(order, files)


def _import_all() -> None:
    for package in ("nodevet", "nodevet.checks", "nodevet.fixes", "nodevet_sim"):
        for name in _modules(package):
            importlib.import_module(name)
    _fill_caches()
    gc.freeze()  # what is here already is not looked through in each copy


def _fill_caches() -> None:
    """Ask once for what a process keeps after its first use, and what is the same in each."""
    from nodevet import baseline
    from nodevet.baseline import library
    from nodevet.checking.catalog import Catalog
    from nodevet.evidence import document, sections
    from nodevet.fleet.protocol import payload
    from nodevet.sheet import page
    from nodevet.store import documents

    page.template(page.HERE, "page")
    payload.payload()
    payload.payload(payload.REMOTE)
    for name, record in sections.sections().items():
        document._decoder(record)
        documents._decoder_of(name)
    baseline.load([name for name, _ in library.available(())], folders=[], catalog=Catalog())


def _modules(package: str) -> list[str]:
    """Those that commands import; what runs on nodes is a program of its own."""
    paths = importlib.import_module(package).__path__
    found = pkgutil.walk_packages(paths, f"{package}.")
    parts = {"__main__", "remote", "worker", "demo", "migrations", "pyinfra_run"}
    return [each.name for each in found if not parts & set(each.name.split("."))]


def _next_of(asker: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Copy this process for each order; the copy returns with its order."""
    while True:
        head, files, _, _ = socket.recv_fds(asker, SIZE.size, 3)
        if not head:
            sys.exit()
        order = json.loads(_exactly(asker, SIZE.unpack(head)[0]))
        pid = _copied()
        if pid == 0:
            return order, files
        asker.sendall(SIZE.pack(pid))
        for file in files:
            os.close(file)


def _copied() -> int:
    """As os.fork, but the copy is a child of this process's parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return int(pid)


def _become(order: Mapping[str, Any], files: list[int]) -> NoReturn:
    """Run nodevet as `python -m nodevet` does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["folder"])
    sys.stdin, sys.stdout, sys.stderr = (
        _stream(number, stream) for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr))
    )
    _use_workers()
    preloaded_supervisor.use()
    sys.argv[1:] = order["words"]
    sys.path[0] = str(Path.cwd())
    runpy.run_module("nodevet", run_name="__main__", alter_sys=True)
    sys.exit()


def _stream(number: int, was: Any) -> Any:
    text = {"encoding": was.encoding, "errors": was.errors, "newline": "\n", "closefd": False}
    return open(number, "w" if number else "r", buffering=1 if number == 2 else -1, **text)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
