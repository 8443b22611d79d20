"""Build and install DKMS modules for the running kernel and for the kernel that boots next.

**Now** nodevet runs `dkms install -m MODULE -v VERSION -k KERNEL` for each missing module and each
kernel that lacks it. A build uses all CPUs for some minutes; after half an hour nodevet ends it.

**At every boot** nothing: an installed module stays below /lib/modules.

**Risk** drain, because the build takes CPU time from jobs. nodevet does not load or unload a module
here. If the module of the running kernel was missing, the fix `kernel_modules` or a reboot loads
it.

**Rollback** runs `dkms unbuild` (DKMS since 2020), or `dkms uninstall` if the module was already
built before. Both restore the kernel's own module if DKMS had replaced one. Some files of DKMS stay
in /var/lib/dkms: a signing key if DKMS created one, and the folder `build` with its log if a build
failed. `depmod` writes its list of modules again.

**What it cannot do.** It does not install headers: if they are missing, it names the package. If
secure boot is on, it plans nothing: a module then loads only if a person enrolled its key at the
console. If DKMS knows several versions of a module, or if files of an installed module are missing,
a person must decide. It does not first build the modules that another module needs
(BUILD_DEPENDS): if a build fails for this reason, plan again. Tests run the real DKMS, but they do
not compile a real module.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.dkms import Params
from nodevet.evidence.dkms import Dkms, DkmsModule
from nodevet.evidence.document import Evidence
from nodevet.evidence.modules import Modules
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding
from nodevet.resource import Resource, dkms

NOT_BUILT = "not built"


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for each module that fails; see `FIX`."""
    require_no_secure_boot(evidence)
    section = evidence[Dkms].data
    if section is None or section.headers is None:
        why = section.why("headers") if section else evidence[Dkms].why
        raise FixError(f"nodevet could not read which headers are installed: {why}")
    modules = {module.name: module for module in section.modules or ()}
    changes, refused = [], []
    for finding in failed:
        name = finding.subject.id
        try:
            changes.append(change(finding, modules.get(name), section.headers))
        except FixError as error:
            refused.append(f"{name}: {error}")
    yield from with_refusals(changes, refused)


def require_no_secure_boot(evidence: Evidence) -> None:
    """Raises FixError if secure boot is on, or if that is not known."""
    modules = evidence[Modules].data
    if modules is None or modules.secure_boot is None:
        why = modules.why("secure_boot") if modules else evidence[Modules].why
        raise FixError(f"nodevet could not read whether secure boot is on: {why}")
    if modules.secure_boot:
        raise FixError(
            "secure boot is on, and the kernel loads no module without an enrolled key: run `dkms "
            "autoinstall`, then `mokutil --test-key` with the key that it names"
        )


def change(finding: Finding, module: DkmsModule | None, headers: Sequence[str]) -> PlannedChange:
    """The change of one module. Raises FixError."""
    version, kernels = version_of(module), kernels_of(finding)
    names = [f"{finding.subject.id}/{version}/{kernel}" for kernel in kernels]
    if unclear := [name for name in names if dkms.KIND.name_problem(name)]:
        raise FixError(f"{unclear[0]!r} {dkms.KIND.name_problem(unclear[0])}")
    for kernel in kernels:
        if kernel not in headers:
            raise FixError(
                f"the headers of {kernel} are missing: install linux-headers-{kernel} "
                f"(kernel-devel-{kernel} with dnf)"
            )
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(finding.subject.label,),
        actions=tuple(map(dkms.install, names)),
        resources=tuple(Resource(kind="dkms", name=name) for name in names),
        risk=Risk.DRAIN,
        note="a build takes minutes; nodevet does not load the module",
    )


def version_of(module: DkmsModule | None) -> str:
    """The only version that DKMS can build. Raises FixError if there is none, or several."""
    if module is None:
        raise FixError("the finding does not come from this evidence")
    if module.versions is None:
        raise FixError(f"its versions were not read: {module.why('versions')}")
    if not module.versions:
        raise FixError("DKMS has no source of it: install its package again")
    if len(module.versions) > 1:
        raise FixError(
            f"DKMS has several versions, {', '.join(module.versions[:5])}: `dkms remove` all but "
            "the one that should be built"
        )
    return module.versions[0]


def kernels_of(finding: Finding) -> list[str]:
    """The kernels that lack the module. Raises FixError for one whose files are gone."""
    actual = finding.actual if isinstance(finding.actual, Mapping) else {}
    for kernel, words in actual.items():
        if words != NOT_BUILT:
            raise FixError(
                f"{kernel}: {words}: find out what removed them, then `dkms install --force`"
            )
    if not actual:
        raise FixError("the finding names no kernel")
    return list(actual)


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=())
"""Before the modules are loaded: `kernel_modules` follows."""
