"""The boot-time owner of a GPU setting: one systemd unit per fix, which sets it on every GPU.

Its text follows from what is expected alone, so the same baseline gives the same file.
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
"""What neither a shell nor systemd reads as anything else."""

MODES = ("persistence_mode", "mig_mode")
"""A change of one of these makes a GPU forget its other settings: these fixes come first."""

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
"""A program that hangs holds the boot, and jobs, for no longer than the time-out."""


def switch(option: str, on: bool) -> Words:
    """The options of nvidia-smi that switch a mode."""
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
        """Write it and enable it. It is not started: what is set now is a plan's own part."""
        return (
            WriteFile(path=self.path, content=self.text(settings)),
            SetUnit(name=self.name, enabled=True),
        )


def command(settings: Iterable[Setting]) -> str:
    """The command of a unit that sets all this, in the order of the GPUs' names.

    Every GPU gets its turn, also after one that fails; then the command has failed.
    Raises ValueError for a word that a shell could take for something else.
    """
    told = sorted(settings, key=lambda setting: setting[0])
    for word in (word for gpu, words in told for word in (gpu, *words)):
        if not PLAIN.fullmatch(word):
            raise ValueError(f"{word!r} cannot be a word of a systemd unit of nodevet's")
    rows = [f"    nvidia-smi -i {gpu} {' '.join(words)} || failed=1; \\\n" for gpu, words in told]
    return f"/bin/sh -c '\\\n    failed=0; \\\n{''.join(rows)}    exit $$failed'"
