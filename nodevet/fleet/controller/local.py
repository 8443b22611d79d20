"""Probe this machine without SSH: the same request and answer, the installed probe."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import nodevet
from nodevet.base.durations import elapsed
from nodevet.fleet.controller.child import ChildProcess, Ending
from nodevet.fleet.model import Options, Visit
from nodevet.fleet.protocol.exchange import Answer, AnswerError, request
from nodevet.model import Host, Status

SERVE = (
    "import sys;sys.path+=sys.argv[1:];"
    "from nodevet.remote import main;main.serve(sys.stdin.buffer,sys.stdout.buffer)"
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
ENVIRONMENT: Mapping[str, str] = {"PATH": PATH, "HOME": "/", "LC_ALL": "C"}
"""The environment of every process that reads or changes this machine. It takes nothing from the
caller, whose LD_LIBRARY_PATH would choose the libraries.
"""
ISOLATED = ("-I", "-S", "-c")  # without site, which reads installed packages: half of the start


def start(*, sudo: bool, stdin: bytes | None = None) -> ChildProcess:
    """A process that answers a request on this machine, with `sudo` as root. Raises FleetError."""
    as_root = ("sudo", "-n") if sudo and os.geteuid() != 0 else ()
    argv = [*as_root, sys.executable, *ISOLATED, SERVE, *_folders()]
    return ChildProcess(argv, stdin, environment=ENVIRONMENT)


def _folders() -> list[str]:
    """The folders of nodevet and pynvml, which the probe needs besides the standard library."""
    nvml = find_spec("pynvml")
    folders = [str(Path(nodevet.__file__).parents[1])]
    if nvml and nvml.origin:
        folders.append(str(Path(nvml.origin).parent))
    return list(dict.fromkeys(folders))


class LocalProbe:
    """One probe of this machine, in a child process."""

    def __init__(self, host: Host, options: Options) -> None:
        nonce = os.urandom(8).hex()
        self._host = host
        self._answer = Answer(nonce, options.max_output)
        self._deadline = options.deadline
        self._done = False
        self._fault = ""
        self.child = start(
            sudo=host.sudo or options.sudo,
            stdin=request(
                nonce=nonce,
                root=host.root,
                whole_machine=host.whole_machine,
                deadline=options.probe_seconds,
                asked_s=None,
                sample=options.sample,
                asks=options.asks_for(host),
                sections=options.sections,
            ),
        )
        self._started = time.monotonic()
        self.due = self._started + options.deadline

    def take(self, chunk: bytes) -> Iterator[Visit]:
        """The visit, once the evidence is complete."""
        if self._done or self._fault:
            return
        try:
            evidence = self._answer.take(chunk)
        except AnswerError as error:
            self._fault = str(error)
            self.child.kill()
            return
        if evidence is not None:
            self._done = True
            yield self._visit(Status.VETTED, "", evidence)

    def unfinished(self, ending: Ending, *, late: bool) -> Iterator[Visit]:
        """The visit, if the evidence is not complete."""
        if self._done:
            return
        self._done = True
        if late:
            yield self._visit(Status.TIMEOUT, f"timed out after {elapsed(self._deadline)}")
        elif self._fault or self._answer.has_begun or ending.code == 0:
            yield self._visit(Status.PROBE_FAILED, self._fault or self._answer.missing())
        else:
            from nodevet.fleet.protocol.commands import explain

            yield self._visit(Status.PROBE_FAILED, explain(ending.code, ending.stderr, python=None))

    def _visit(self, status: Status, why: str, evidence: bytes | None = None) -> Visit:
        seconds = round(time.monotonic() - self._started, 3)
        return Visit(self._host.name, status, why, evidence, seconds)
