"""The loaded mlx5 driver is from the expected OFED or DOCA release, or from the kernel.

**Why it matters.** GPUDirect RDMA, NCCL's plugins and the firmware of the NICs are tested against a
release of DOCA-OFED. After a kernel upgrade its modules may be missing, and the kernel loads its
own mlx5_core unnoticed.

**Read from** /sys/module/mlx5_core/version; the kernel's own driver does not have this file.

**Verdicts.** `inbox` is the kernel's own driver. `24.10-1.1.4` allows only that release, `24.10*`
all that begin with 24.10. Releases compare number by number. If mlx5_core is not loaded, the check
is unknown. `packages` judges the installed packages, which may differ from the loaded modules.

**To fix it** add the repository of the expected DOCA release. Run `apt-get install doca-ofed` or
`dnf install doca-ofed` for the running kernel; `ofed_info -s` prints the installed release. Then
run `/etc/init.d/openibd restart` on a drained node, or reboot.
"""

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.one_value import node_value, ok_if
from nodevet.evidence.modules import Modules
from nodevet.model import Area, CheckParams, Finding, Subject

MODULE = Subject(kind="module", id="mlx5_core")
INBOX = "inbox"
ADVICE = "install the expected DOCA-OFED for the running kernel, and load the driver again"

Release = Annotated[str, Meta(pattern=r"^(inbox|[0-9][0-9A-Za-z.-]{0,60}\*?)$")]


class Params(CheckParams):
    """`ofed: 24.10*` or `ofed: {minimum: 23.10-0.5.5}` or `ofed: inbox`"""

    bare: ClassVar[str] = "version"

    version: Release | None = None
    minimum: Annotated[str, Meta(pattern=r"^[0-9][0-9.-]{0,60}$")] | None = None

    def __post_init__(self) -> None:
        if (self.version is None) == (self.minimum is None):
            raise ValueError("give either version or minimum")


def judge(params: Params, version: str) -> Finding:
    expected, actual = params.version or f"at least {params.minimum}", version or INBOX
    right = is_match(actual, params)
    return ok_if(right, MODULE, expected=expected, actual=actual, advice=ADVICE)


def is_match(actual: str, params: Params) -> bool:
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


CHECK = node_value(
    Params,
    Modules,
    "mlx5_core_version",
    subject=MODULE,
    judge=judge,
    learn=lambda version: version or INBOX,
    area=Area.NETWORK,
    unasked='only the site knows which release it tested: write ofed: "24.10*"',
)
