"""The systemd unit that gates a node at boot, as a pure function of its options.

Units that start jobs require it, so a node that it fails takes none. nodevet itself may be broken,
and a Python that cannot start has the exit code of a failed gate, 1. The unit therefore
ignores exit codes and lets a shell read the verdict file: nodevet writes `fail`, or why a node has
not passed yet, only after it looked at the node.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from msgspec import Struct, to_builtins

from nodevet.model import Baseline, Severity
from nodevet.vet.defaults import DEADLINE
from nodevet.vet.systemd_words import command_line, continued, escaped, quoted

NAME = "nodevet-gate"
VERDICT = "/run/nodevet/gate.json"
GATED = ("slurmd.service", "kubelet.service")
"""The units that start jobs."""
GRACE = 60.0  # seconds to start and to report, beyond the last attempt
STOPPING = 60.0  # seconds that systemd waits longer than the unit's own limit

DECISION = r"""
{ read -r _; read -r verdict; read -r code; read -r _; read -r _; read -r why; } 2>/dev/null <"$0";
out() { echo "<2>$1; slurmd and kubelet do not start until the node passes"; exit 1; };
case $verdict in
  *pass*) echo "pass: slurmd and kubelet may start"; exit 0 ;;
  *fail*) out "FAIL, see above" ;;
esac;
case $code in *75*) out "NOT JUDGED YET: what is unknown above passes by itself" ;; esac;
case $why in
  *"\": \"not settled: "*"; so far "*) ;;
  ""|"}"|*"\": \"not settled: "*)
    echo "<2>NO VERDICT: nodevet is broken, see above. JOBS START UNVETTED."; exit 0 ;;
esac;
printf "%s\n" "$why"; out "NO VERDICT, and the node had not passed when nodevet ended"
"""
"""Reads the verdict file, `$0`. A shell's script without `'` and without a need for line breaks.

Each line of the file has one value (`GateVerdict.text`). Only the sixth, `"HOST": "REASON"`, may
have text of the node, in which JSON escapes each `"`. `<2>` is a priority in the journal,
sd-daemon(3).
"""

TEXT = """\
# {name}.service: printed by `nodevet gate --install`
[Unit]
Description=Vet this node before it takes jobs
Documentation=https://github.com/nodevet/nodevet/blob/main/docs/gate.md#at-boot
Before={gated}
After=network-online.target
After=nvidia-persistenced.service nvidia-fabricmanager.service nvidia-imex.service
# Two ways to start jobs without a verdict: this file, and this argument of the kernel.
ConditionPathExists=!/etc/nodevet/gate-off
ConditionKernelCommandLine=!nodevet.gate=off

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec={timeout}
OOMPolicy=continue
SyslogIdentifier={name}
ExecStartPre=-/bin/mkdir -p {folder}
ExecStartPre=/bin/rm -f {verdict}
# "-": the exit code decides nothing; a broken Python ends with 1, as a failed gate does.
ExecStart=-/usr/bin/timeout --verbose --signal=KILL {limit} {gate}
# The verdict file decides: "pass" lets the node in; "fail", or a reason for which the node had not
# passed when nodevet ended, keeps it out. If nodevet never judged the node, the node is let in.
ExecStart=/bin/sh -c ${{DECISION}} {verdict}
Environment='DECISION={decision}'
ExecStop=/bin/rm -f {verdict}

[Install]
RequiredBy={gated}
"""


class GateUnit(Struct, frozen=True, kw_only=True):
    """What the unit is printed from. Paths are absolute; times are in seconds."""

    program: tuple[str, ...]
    baselines: tuple[str, ...]
    wait: float
    settle: float
    fail_on: str
    verdict: str = VERDICT

    @property
    def limit(self) -> int:
        """The seconds after which nodevet counts as hung. A gate ends sooner, even if its last
        attempt is slow."""
        return ceil(self.wait + self.settle + DEADLINE + GRACE)

    @property
    def command(self) -> tuple[str, ...]:
        """The gate's command line."""
        chosen = (word for name in self.baselines for word in ("-b", name))
        times = ("--wait", f"{self.wait:g}s", "--settle", f"{self.settle:g}s")
        rest = ("--fail-on", self.fail_on, "--verdict", self.verdict)
        return (*self.program, "gate", "@local", *chosen, *times, *rest)

    def text(self) -> str:
        return TEXT.format(
            name=NAME,
            gated=" ".join(GATED),
            decision=continued(escaped(DECISION)),
            timeout=ceil(self.limit + STOPPING),
            limit=self.limit,
            gate=command_line(self.command),
            folder=quoted(self.verdict.rpartition("/")[0] or "/"),
            verdict=quoted(self.verdict),
        )


def never_true(baselines: Sequence[Baseline], fail_on: Severity) -> Iterator[str]:
    """The expectations that no node can fulfil before jobs may start, as `FILE:LINE: CHECK:
    reason`: they would keep every node out."""
    for baseline in baselines:
        for expectation in baseline.expectations:
            if expectation.severity.rank < fail_on.rank:
                continue
            if why := _never(expectation.check, to_builtins(expectation.params)):
                yield f"{expectation.origin}: {expectation.check}: {why}"


def _never(check: str, params: Any) -> str:
    if check == "slurm_node":
        return "slurmd, which waits for the gate, does not run yet"
    if check == "failed_units":
        return "systemd is still starting units, so the check stays unknown"
    late = sorted(set(GATED) & set(_running(params))) if check in ("services", "rule") else []
    return f"{late[0]} waits for the gate and does not run yet" if late else ""


def _running(params: Any) -> Iterator[str]:
    """The units that are expected to run, also those of a rule."""
    if isinstance(params, Mapping):
        for key, value in params.items():
            yield from value if key == "running" else _running(value)
