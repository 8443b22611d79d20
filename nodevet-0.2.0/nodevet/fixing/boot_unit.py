"""The boot-time owner of a GPU setting: one systemd unit per fix, which sets it on every GPU.

Its text depends only on the expected values, so the same baseline gives the same file.
"""

import re
from collections.abc import Iterable

import msgspec

from nodevet.resource import Actions, Resource
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

Words = tuple[str, ...]
Setting = tuple[str, Words]
"""A GPU, as `nvidia-smi -i` names it, and the options that set it."""

PLAIN = re.compile(r"[A-Za-z0-9.,:_-]+")
"""Characters that have no meaning of their own for a shell or systemd."""

MODES = ("persistence_mode", "mig_mode")
"""If one of these modes changes, the GPU forgets its other settings: these fixes run first."""

TEXT = """\
# Written by nodevet: the boot-time owner of {check}.
[Unit]
Description={check} of the GPUs, as nodevet set it
After={after}
Before=slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=5min
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""
"""A program that hangs delays the boot, and jobs, until the time-out."""


def switch(option: str, on: bool) -> Words:
    """Options of nvidia-smi that switch a mode: `-pm 1`."""
    return (option, "1" if on else "0")


class BootUnit(msgspec.Struct, frozen=True):
    """The unit of one fix; `after`: the fixes whose units come before it."""

    check: str
    after: tuple[str, ...] = MODES

    @property
    def name(self) -> str:
        """
        >>> BootUnit("power_limit").name
        'nodevet-power-limit.service'
        """
        return f"nodevet-{self.check.replace('_', '-')}.service"

    @property
    def path(self) -> str:
        return f"/etc/systemd/system/{self.name}"

    @property
    def resources(self) -> tuple[Resource, ...]:
        return (Resource(kind="file", name=self.path), Resource(kind="unit", name=self.name))

    def text(self, settings: Iterable[Setting]) -> str:
        """Raises ValueError as `command` does."""
        units = (
            *("nvidia-persistenced.service", "nvidia-fabricmanager.service"),
            *(BootUnit(check).name for check in self.after),
        )
        return TEXT.format(check=self.check, after=" ".join(units), command=command(settings))

    def actions(self, settings: Iterable[Setting]) -> Actions:
        """Write the unit and enable it. It is not started: other actions of the plan set the value
        now."""
        return (
            WriteFile(path=self.path, content=self.text(settings)),
            SetUnit(name=self.name, enabled=True),
        )


def command(settings: Iterable[Setting]) -> str:
    """The command of a unit that sets every GPU, in the order of their names.

    It goes on after a GPU that fails, and then ends with 1. Raises ValueError for a word with
    characters that are not PLAIN.
    """
    ordered = sorted(settings, key=lambda setting: setting[0])
    for word in (word for gpu, words in ordered for word in (gpu, *words)):
        if not PLAIN.fullmatch(word):
            raise ValueError(f"{word!r} cannot be a word of nodevet's systemd unit")
    lines = [
        f"    nvidia-smi -i {gpu} {' '.join(words)} || failed=1; \\\n" for gpu, words in ordered
    ]
    return f"/bin/sh -c '\\\n    failed=0; \\\n{''.join(lines)}    exit $$failed'"
