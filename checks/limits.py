"""Services and logins have the resource limits that jobs need.

**Why it matters.** RDMA and CUDA lock memory: with the kernel's default of 8 MiB an MPI or NCCL job
fails to register its buffers, or silently uses TCP. A data loader runs out of 1024 open files, a
large job out of processes. A job inherits the limits of the service that starts it: slurmd,
containerd, the kubelet, or sshd.

**Read from** systemd for the units in `of`: LimitMEMLOCK, LimitNOFILE, LimitNPROC and LimitSTACK.
For `login`: the rows of `*` in /etc/security/limits.conf and limits.d; if they do not set a limit,
the limit of nodevet's own session.

**Verdicts.** nodevet judges the soft limit, with which a program starts. A unit that is not
installed is not applicable. slurmd may set other limits for jobs: PropagateResourceLimits.

**To fix it** add a drop-in to the unit with `systemctl edit slurmd`: `[Service]` and
`LimitMEMLOCK=infinity`, then restart it. For logins add a file in /etc/security/limits.d with `* -
memlock unlimited`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.aspects import aspect_findings, aspect_if, unread_aspect
from nodevet.checking.named import each_named, judge_each, reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.limits import LOGIN, UNLIMITED, ResourceLimits, SoftLimits
from nodevet.evidence.services import UNIT_NAME
from nodevet.model import Area, Check, CheckParams, Finding, Subject, not_applicable

UNIT = re.compile(UNIT_NAME + r"\.(service|socket|mount|swap)")
WORDS = {"memlock_b": "memlock", "nofile": "nofile", "nproc": "nproc", "stack_b": "stack"}
OF_A_UNIT = (
    "`systemctl edit UNIT`: under [Service] LimitMEMLOCK=infinity (LimitNOFILE, LimitNPROC, "
    "LimitSTACK), then restart it; running jobs keep their limits"
)
OF_A_LOGIN = (
    "add a file in /etc/security/limits.d with `* - memlock unlimited` (nofile, nproc, stack); "
    "it applies to new sessions, and a later file there may override it"
)
Least = Literal["unlimited"] | Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`limits: {of: [slurmd.service, login], minimum_memlock_b: unlimited}` or
    `limits: {of: [containerd.service], minimum_nofile: 1048576, minimum_nproc: unlimited}`"""

    of: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Full names of units, and `login`."""
    minimum_memlock_b: Least | None = None
    minimum_nofile: Least | None = None
    minimum_nproc: Least | None = None
    minimum_stack_b: Least | None = None

    def __post_init__(self) -> None:
        for name in self.of:
            if name != LOGIN and not UNIT.fullmatch(name):
                raise ValueError(f"{name[:60]} is not a unit; include the suffix: slurmd.service")
        if not self.minima:
            raise ValueError("give at least one minimum")

    @property
    def minima(self) -> Mapping[str, int | str]:
        """The given minima by the evidence's field."""
        minima = {field: getattr(self, f"minimum_{field}") for field in WORDS}
        return {field: least for field, least in minima.items() if least is not None}


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[ResourceLimits]
    names = tuple(dict.fromkeys(params.of))
    named = each_named(section, names, label="limits", listed="limits", kind="limits")
    yield from judge_each(named, lambda entry: judge_limits(*entry, params.minima))


def judge_limits(
    subject: Subject, limits: SoftLimits, least: Mapping[str, int | str]
) -> Iterator[Finding]:
    if limits.load_state is None:
        yield unread(subject, limits, "load_state")
        return
    if limits.load_state == "not-found":
        yield not_applicable(subject, why="the unit is not installed")
        return
    advice = OF_A_LOGIN if limits.name == LOGIN else OF_A_UNIT
    aspects = []
    for field, minimum in least.items():
        actual = getattr(limits, field)
        aspects.append(
            unread_aspect(limits, field)
            if actual is None
            else aspect_if(
                field,
                is_enough(minimum, actual),
                expected=f"{WORDS[field]} {at_least(minimum)}",
                actual=f"{WORDS[field]} {limit_text(actual)}",
                advice=advice,
            )
        )
    yield from aspect_findings(
        subject, aspects, {"from": limits.source or "not known"}, listed=True
    )


def is_enough(minimum: int | str, actual: int) -> bool:
    """
    >>> is_enough(65536, UNLIMITED), is_enough("unlimited", 1 << 40) (True, False)
    """
    return actual == UNLIMITED or (isinstance(minimum, int) and actual >= minimum)


def at_least(minimum: int | str) -> str:
    return minimum if isinstance(minimum, str) else f"at least {minimum}"


def limit_text(actual: int) -> str:
    return "unlimited" if actual == UNLIMITED else str(actual)


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        *reads_of("limits.limits[]", "name", "load_state", "memlock_b", "nofile", "nproc"),
        "limits.limits[].stack_b",
    ),
    judge=judge,
    unasked="only the site knows which units start its jobs: write limits: {of: [slurmd.service]}",
    asks=lambda params: {"limits": tuple(dict.fromkeys(params.of))},
)
