"""A process: the CPUs and NUMA nodes that it and its threads may use."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from nodevet.base.bounds import NumberList
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    RestoreError,
    RunCommand,
    State,
    mapping,
)

CPUS = re.compile(r"[0-9]+([,-][0-9]+)*")
THREADS = Meta(max_length=1 << 14)

Thread = Annotated[str, Meta(max_length=32)]  # its id


class Binding(Form, frozen=True, kw_only=True):
    cpus: NumberList
    mems: NumberList


class ProcessState(Form, frozen=True, kw_only=True):
    cpus: NumberList
    mems: NumberList
    started_s: float  # seconds after boot
    threads: Annotated[dict[Thread, Binding], THREADS]  # those that differ


class ProcessKind(Kind):
    form = ProcessState

    def is_same(self, before: State, current: State) -> bool:
        """A process that has ended needs no restoring: nodevet did not bind a later one."""
        return not current.exists or super().is_same(before, current)

    def has_ended(self, before: State, current: State) -> bool:
        """Another process may have its pid by now."""
        started = before.mapping.get("started_s"), current.mapping.get("started_s")
        return not current.exists or (before.exists and started[0] != started[1])

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("taskset",)

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Set the CPUs of the process and of each thread that differs. If it did not exist when it
        was read, it had ended.

        Its cgroup says which memory it may use, and no action changes that.
        """
        if not before.exists:
            return []
        value = mapping(before)
        threads = value.get("threads") or {}
        if not isinstance(threads, Mapping):
            raise RestoreError(f"{before.resource.label}: its threads were not read")
        return [
            bind(_pid(before.resource.name), _cpus(before, value)),
            *(
                RunCommand(words=("taskset", "-p", "-c", _cpus(before, bound), _pid(str(thread))))
                for thread, bound in sorted(threads.items())
            ),
        ]


def bind(pid: str, cpus: str) -> RunCommand:
    """Bind a process with all its threads."""
    return RunCommand(words=("taskset", "-a", "-p", "-c", cpus, pid))


def _pid(text: str) -> str:
    if not (text.isascii() and text.isdecimal()):
        raise RestoreError(f"process {text}: not a valid process id")
    return text


def _cpus(state: State, bound: Any) -> str:
    cpus = bound.get("cpus") if isinstance(bound, Mapping) else None
    if not isinstance(cpus, str) or not CPUS.fullmatch(cpus):
        raise RestoreError(f"{state.resource.label}: {cpus!r} is not a list of CPUs")
    return cpus


KIND = ProcessKind()
