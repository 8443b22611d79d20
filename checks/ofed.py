"""The loaded mlx5 driver is of the expected OFED or DOCA release, or the kernel's own.

**Why it matters.** GPUDirect RDMA, NCCL's plugins and the firmware of the NICs are tested against a
release of DOCA-OFED. After a kernel upgrade its modules may be gone, and the kernel's own mlx5_core
takes over unnoticed.

**Read from** /sys/module/mlx5_core/version, which the kernel's own driver does not have.

**Verdicts.** `inbox` is the kernel's own driver. `24.10-1.1.4` admits that release only, `24.10*`
all that begin so. Releases compare number by number. While mlx5_core is not loaded it is unknown.
Installed packages, which need not be what is loaded, are judged by `packages`.

**To fix it** install doca-ofed of the expected release for the running kernel (`ofed_info -s` says
which is installed), then `/etc/init.d/openibd restart` on a drained node, or reboot.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.modules import Modules
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

MODULE = "mlx5_core"
INBOX = "inbox"

Release = Annotated[str, Meta(pattern=r"^(inbox|[0-9][0-9A-Za-z.-]{0,60}\*?)$")]


class Params(CheckParams):
    """`ofed: 24.10*` or `ofed: {minimum: 23.10-0.5.5}` or `ofed: inbox`"""

    bare: ClassVar[str] = "version"

    version: Release | None = None
    minimum: Annotated[str, Meta(pattern=r"^[0-9][0-9.-]{0,60}$")] | None = None

    def __post_init__(self) -> None:
        if (self.version is None) == (self.minimum is None):
            raise ValueError("give either version or minimum")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    subject = Subject(kind="module", id=MODULE)
    section = evidence[Modules]
    modules = section.data
    expected = params.version or f"at least {params.minimum}"
    if modules is None:
        yield unknown(subject, why=f"modules: {section.why}")
        return
    version = modules.mlx5_core_version
    if version is None:
        yield unread(subject, modules, "mlx5_core_version")
        return
    actual = version or INBOX
    right = fits(actual, params)
    advice = "" if right else ADVICE
    yield (ok if right else fail)(subject, expected=expected, actual=actual, advice=advice)


def fits(actual: str, params: Params) -> bool:
    if params.version is not None:
        if params.version.endswith("*"):
            return actual.startswith(params.version[:-1])
        return actual == params.version
    return actual != INBOX and numbers(actual) >= numbers(params.minimum or "")


def numbers(text: str) -> tuple[int, ...]:
    """
    >>> numbers("24.10-1.1.4")
    (24, 10, 1, 1, 4)
    """
    return tuple(int(part[:9]) for part in re.findall(r"[0-9]+", text))


ADVICE = "install the expected DOCA-OFED for the running kernel, and load the driver again"


def learn(evidence: Evidence) -> Any:
    found = evidence[Modules].data
    if found is None or found.mlx5_core_version is None:
        return None
    return found.mlx5_core_version or INBOX


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=("modules.mlx5_core_version",),
    judge=judge,
    unasked='only a site knows which release it tested: say ofed: "24.10*"',
    severity=Severity.WARNING,
    learn=learn,
)
