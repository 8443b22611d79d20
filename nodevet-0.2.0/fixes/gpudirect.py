"""Load nvidia_peermem, now and at every boot.

**Now** `modprobe nvidia_peermem`.

**At every boot** `/etc/modules-load.d/nodevet-gpudirect.conf` names the module.

**Risk** live: a transfer uses the module only after its program has registered memory again.

**Rollback** removes the file, and unloads the module, with the modules that were loaded for it, if
nothing uses it.

**What it cannot do.** It does not install a module that the node does not have, nor the open kernel
modules that dma-buf needs: if the baseline accepts only `dma_buf`, nodevet plans nothing. The
module needs the driver of the RDMA devices: if `modprobe` fails, nodevet removes the file. It does
not load a module that the kernel's command line blacklists.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.gpudirect import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.modules import Modules
from nodevet.fixing.kernel_files import conf, denied_at_boot
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Resource, module

MODULE = "nvidia_peermem"
LOAD = "/etc/modules-load.d/nodevet-gpudirect.conf"


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that loads the module; see `FIX`."""
    if "peermem" not in params.one_of:
        raise FixError("the baseline expects dma-buf, which needs the open kernel modules")
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None:
        raise FixError("nodevet could not read the kernel's modules")
    if "nvidia" not in modules.loaded:
        raise FixError("the module nvidia is not loaded: repair the driver first")
    if MODULE in modules.loaded:
        raise FixError("the finding does not come from this evidence")
    if MODULE in denied_at_boot(evidence):
        raise FixError(f"the kernel's command line blacklists {MODULE}")
    file = conf(LOAD, [MODULE])
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        actions=(file, module.load(MODULE)),
        resources=(
            Resource(kind="file", name=file.path),
            Resource(kind="module", name=MODULE),
        ),
        risk=Risk.LIVE,
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("kernel_modules",))
