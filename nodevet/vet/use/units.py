"""A sweep as a service and a timer of systemd."""

from collections.abc import Sequence
from pathlib import Path

from nodevet.base.durations import seconds_of
from nodevet.vet.systemd_words import command_line, escaped, quoted

TIMEOUT = 6 * 3600  # seconds, of a sweep without a deadline
GRACE = 600  # seconds after a deadline, for reports and notifications


def service(
    name: str, program: Sequence[str], config: Path, *, user: str, within: str | None, state: str
) -> str:
    """The text of nodevet-sweep-NAME.service."""
    words = (*program, "sweep", name, "--config", str(config), "--jitter", "0s")
    limit = round(seconds_of(within) or TIMEOUT) + GRACE if within else TIMEOUT
    return f"""\
# {_unit(name)}.service
[Unit]
Description=Vet the GPU nodes: sweep {name}
Documentation=https://github.com/nodevet/nodevet/blob/main/docs/sweep.md
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={user}
Environment=XDG_STATE_HOME={quoted(state)}
WorkingDirectory={escaped(str(config.parent))}
ExecStart={command_line(words)}
# 1: something fails; 3: something could not be judged; 75: another sweep is running
SuccessExitStatus=1 3 75
# it ends by itself before that; its reports are written on SIGTERM too
TimeoutStartSec={limit}
TimeoutStopSec=120
KillMode=mixed
"""


def timer(name: str, *, at: str, jitter: str | None) -> str:
    """The text of nodevet-sweep-NAME.timer."""
    spread = f"RandomizedDelaySec={round(seconds_of(jitter) or 0)}\n" if jitter else ""
    return f"""\
# {_unit(name)}.timer
[Unit]
Description=Vet the GPU nodes: when sweep {name} begins

[Timer]
OnCalendar={at}
{spread}Persistent=true

[Install]
WantedBy=timers.target
"""


def _unit(name: str) -> str:
    return f"nodevet-sweep-{name}"
