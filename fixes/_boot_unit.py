"""The boot-time owner of a GPU setting: one systemd unit per fix, which says it of every GPU.

Its text follows from what is wanted alone, so the same wish gives the same file.
"""

import re
from collections.abc import Iterable

from nodevet.resource import Actions, Resource, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.unit import SetUnit

Words = tuple[str, ...]
Setting = tuple[str, Words]
"""A GPU, as `nvidia-smi -i` names it, and what nvidia-smi is told of it."""

PLAIN = re.compile(r"[A-Za-z0-9.,:_-]+")
"""What neither a shell nor systemd reads as anything else."""

FIRST = ("persistence_mode", "mig_mode")
"""What these change makes a GPU forget the rest: their units come before the others."""

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


def name(check: str) -> str:
    """
    >>> name("power_limit")
    'nodevet-power-limit.service'
    """
    return f"nodevet-{check.replace('_', '-')}.service"


def path(check: str) -> str:
    return f"/etc/systemd/system/{name(check)}"


def text(check: str, settings: Iterable[Setting]) -> str:
    """The unit that tells nvidia-smi all this. Raises ValueError as `command` does."""
    earlier = FIRST[: FIRST.index(check)] if check in FIRST else FIRST
    after = ("nvidia-persistenced.service", "nvidia-fabricmanager.service", *map(name, earlier))
    return TEXT.format(check=check, after=" ".join(after), command=command(settings))


def command(settings: Iterable[Setting]) -> str:
    """The command of a unit that tells nvidia-smi all this, in the order of the GPUs' names.

    Every GPU gets its turn, also after one that fails; then the command has failed.
    Raises ValueError for a word that a shell could take for something else.
    """
    told = sorted(settings, key=lambda setting: setting[0])
    for word in (word for gpu, words in told for word in (gpu, *words)):
        if not PLAIN.fullmatch(word):
            raise ValueError(f"{word!r} cannot stand in a systemd unit of nodevet's")
    rows = [f"    nvidia-smi -i {gpu} {' '.join(words)} || failed=1; \\\n" for gpu, words in told]
    return f"/bin/sh -c '\\\n    failed=0; \\\n{''.join(rows)}    exit $$failed'"


def actions(check: str, settings: Iterable[Setting]) -> Actions:
    """Write the unit and enable it. It is not started: what is set now is a plan's own part."""
    return (
        WriteFile(path=path(check), content=text(check, settings)),
        SetUnit(name=name(check), enabled=True),
    )


def deployed(check: str, settings: Iterable[Setting]) -> Actions:
    """The unit, and each GPU set now: what an operation does that knows nothing of the node."""
    told = tuple(settings)
    return (*actions(check, told), *now(told))


def now(settings: Iterable[Setting]) -> Actions:
    return tuple(RunCommand(words=("nvidia-smi", "-i", gpu, *words)) for gpu, words in settings)


def resources(check: str) -> tuple[Resource, ...]:
    return (Resource(kind="file", name=path(check)), Resource(kind="unit", name=name(check)))
