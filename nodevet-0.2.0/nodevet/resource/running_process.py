"""A process that runs: who it is. It can be ended, and nothing can start it again."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

import nodevet
from nodevet.base.bounds import Text
from nodevet.base.printable import brief, plain
from nodevet.resource.core import Action, Form, Kind, Resource, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

PROGRAM = Path(nodevet.__file__).parent / "remote" / "end_process.py"
PYTHON = "$(command -v python3 || echo /usr/libexec/platform-python)"
MOST = 10.0  # seconds between SIGTERM and SIGKILL

Pid = Annotated[int, Meta(ge=2, lt=1 << 22)]  # PID_MAX_LIMIT of the kernel


class EndProcess(Action, frozen=True, kw_only=True, tag="end_process"):
    """End one process: SIGTERM, a wait, then SIGKILL. If it has ended already, this does nothing.

    The pid, the start time and the user identify it: never another process that got the pid since.
    """

    pid: Pid
    started_s: Annotated[float, Meta(gt=0, lt=1e10)]  # after boot
    uid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    name: Text  # its command, for people
    job: Annotated[int, Meta(ge=1, lt=1 << 32)] | None = None
    """The Slurm job that left it. A process in the control group of another job is not ended."""

    @property
    def resource(self) -> Resource:
        return Resource(kind="running_process", name=str(self.pid))

    @property
    def label(self) -> str:
        return f"end process {self.pid} ({self.identity})"

    @property
    def identity(self) -> str:
        """Its name, user and job, printable."""
        job = "" if self.job is None else f", of job {self.job}"
        return f"{brief(self.name, 16)}, uid {self.uid}{job}"

    @property
    def is_one_way(self) -> bool:
        return True

    def command(self, *, seconds: float) -> "StringCommand":
        from pyinfra.api.command import QuoteString, StringCommand

        wait = max(1.0, min(MOST, seconds / 3))
        job = "" if self.job is None else str(self.job)
        numbers = (str(self.pid), f"{self.started_s:.2f}", str(self.uid), job, f"{wait:.1f}")
        head = StringCommand("exec", f'"{PYTHON}"', "-I", "-S", "-c")
        return StringCommand(head, *map(QuoteString, (_program(), *numbers)))


class RunningProcessState(Form, frozen=True, kw_only=True):
    name: Text  # comm
    uid: int
    started_s: float  # seconds after boot


class RunningProcessKind(Kind):
    form = RunningProcessState
    actions = (EndProcess,)

    def name_problem(self, name: str) -> str:
        return "" if re.fullmatch(r"[1-9][0-9]{0,6}", name, re.ASCII) else "is not a process id"

    def is_same(self, before: State, current: State) -> bool:
        return before.exists == current.exists and not self.has_ended(before, current)

    def has_ended(self, before: State, current: State) -> bool:
        """Another process may have its pid by now."""
        started = before.mapping.get("started_s"), current.mapping.get("started_s")
        return before.exists and (not current.exists or started[0] != started[1])

    def describe(self, state: State) -> str:
        return f"{brief(str(state.mapping.get('name')), 16)} (uid {state.mapping.get('uid')})"

    def holds(self, action: Action, state: State) -> bool | None:
        if not isinstance(action, EndProcess):
            return None
        return not state.exists or state.mapping.get("started_s") != action.started_s

    def diff(self, actions: Sequence[Action], before: Mapping[Resource, State]) -> Iterator[str]:
        for action in actions:
            if isinstance(action, EndProcess):
                since = f"started {action.started_s:.2f} s after boot"
                yield plain(f"-process {action.pid}: {action.identity}, {since}")
                yield f"+process {action.pid}: ended by SIGTERM, or SIGKILL; cannot be undone"

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Nothing: a process that runs as before needs none, and nothing starts an ended one."""
        return ()


@cache
def _program() -> str:
    """The program of nodevet.remote.end_process without its docstring, for `python3 -c`."""
    return PROGRAM.read_text(encoding="utf-8").split('"""\n\n', 1)[1]


KIND = RunningProcessKind()
