"""A kernel module: whether it is loaded, and what loading it would bring along."""

import re
from collections.abc import Sequence
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    Traces,
    mapping,
    switch,
)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
UNLOAD = 'test ! -d "/sys/module/$1" || exec rmmod -- "$1"'


class ModuleState(Form, frozen=True, kw_only=True):
    loaded: bool
    brings: Annotated[tuple[Text, ...], bounds.MODULES]


_DRIVER = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")  # the others load the first


class ModuleKind(Kind):
    form = ModuleState

    def couples(self, resource: Resource, other: Resource) -> bool:
        """NVIDIA's driver loses the settings of its GPUs; a driver of cpufreq brings its own."""
        if resource.name in _DRIVER:
            return other.kind == "gpu"
        drives_cpufreq = any(word in resource.name for word in ("cpufreq", "pstate"))
        return drives_cpufreq and "/cpufreq/" in other.name

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("modprobe",)

    def restore_rank(self, before: State) -> int:
        return 3

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Load all that were loaded, then unload the others with the modules that came along.

        `modprobe -r` would also unload unused modules that were loaded before.
        """
        runs: list[RunCommand] = []
        order: dict[str, None] = {}  # in which they were loaded
        for state in siblings:
            value, label = mapping(state), state.resource.label
            names = [*(value.get("brings") or ()), state.resource.name]
            if invalid := [name for name in names if not NAME.fullmatch(str(name))]:
                raise RestoreError(f"{label}: {invalid[0]!r} is not a valid module name")
            if switch(state, value.get("loaded")):
                runs.append(load(state.resource.name))
            else:
                order.update(dict.fromkeys(name.replace("-", "_") for name in names))
        unloads = [
            RunCommand(words=("sh", "-c", UNLOAD, "rmmod", name)) for name in reversed(order)
        ]
        return runs + unloads

    def is_of_step(self, traces: Traces, current: State) -> bool | None:
        """True after a reboot, which may have loaded or unloaded the module; None otherwise."""
        return True if traces.effective == "reboot" else None


def load(name: str) -> RunCommand:
    return RunCommand(words=("modprobe", "--", name))


KIND = ModuleKind()
