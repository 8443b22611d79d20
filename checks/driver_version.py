"""The baseline allows the NVIDIA driver version.

**Why it matters.** The driver determines which CUDA applications start at all, and each release
has its own bugs. A node that missed an upgrade, or got one too early, fails jobs that run
everywhere else.

**Read from** NVML, nvmlSystemGetDriverVersion: the version of the user-space library. The check
`kernel_modules` judges the version of the loaded kernel module.

**Verdicts.** Versions compare as in PEP 440: part by part, as numbers. A plain version allows only
that version; `550.*` allows the branch, `>=550.90.07,<560` a range; `!=550.54.14` excludes one
version. No version passes if the library refuses the loaded kernel module because their versions
differ, or if the module is loaded and the library is not installed. Without a loaded module and
without the library, the version is unknown.

**To fix it** install the expected version of every installed driver package, and of the fabric
manager's, then reboot, or unload and load the modules while nothing uses a GPU. Hold the packages
(`apt-mark hold`, `dnf versionlock`) so that an unattended upgrade does not change them. If an
upgrade left the old module loaded, reboot.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from nodevet.checking.one_value import ok_if
from nodevet.evidence.across import DRIVER_FAULT, INSTALL_LIBRARY, half_a_driver
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.modules import Modules
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    NeededAction,
    Value,
    fail,
    unknown,
)


def specifiers(text: str) -> SpecifierSet:
    """The versions that `text` allows. Raises ValueError with a message for the user."""
    plain = text.strip()
    if re.fullmatch(r"\d+", plain):
        raise ValueError(
            f"{plain} is a branch, not a version: write {plain}.* for the whole branch"
        )
    if re.match(r"\d", plain):
        plain = f"=={plain}"
    try:
        admitted = SpecifierSet(plain)
    except InvalidSpecifier:
        raise ValueError(
            f"{text!r} is not a valid version specifier (examples: 550.90.07, 550.*, "
            f"'>=550.90.07,<560')"
        ) from None
    if not len(admitted):
        raise ValueError("no version is given (examples: 550.90.07, 550.*, '>=550.90.07,<560')")
    return admitted


MISMATCH = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


class Params(CheckParams):
    """`driver_version: '>=550.90.07,<560'` or `driver_version: 550.90.07`"""

    bare: ClassVar[str] = "version"

    version: str

    def __post_init__(self) -> None:
        try:
            specifiers(self.version)
        except ValueError as error:
            raise FieldError(str(error), "version") from None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Gpus]
    if section.data is None and MISMATCH in section.why:
        yield fail(
            expected=params.version,
            actual="library and kernel module of different versions",
            why=f"NVML: {section.why}{loaded_text(evidence)}",
            advice="reboot, or unload and load the nvidia modules",
            cause=DRIVER_FAULT,
        )
    elif half_a_driver(evidence):
        yield fail(
            expected=params.version,
            actual="kernel module without its library",
            why=half_a_driver(evidence),
            advice=INSTALL_LIBRARY,
            cause=DRIVER_FAULT,
        )
    elif section.data is None:
        yield unknown(why=f"NVML: {section.why}")
    elif section.data.driver_version is None:
        yield unknown(why=f"driver_version: {section.data.why('driver_version')}")
    else:
        actual = section.data.driver_version
        try:
            admitted = specifiers(params.version).contains(Version(actual), prereleases=True)
        except InvalidVersion:
            yield unknown(actual=actual, why="not a version")
        else:
            yield ok_if(admitted, expected=params.version, actual=actual)


def loaded_text(evidence: Evidence) -> str:
    """The end of a sentence with the loaded kernel module's version; empty if it is not known."""
    version = data.nvidia_version if (data := evidence[Modules].data) else None
    return f"; the loaded module is {version}" if version else ""


def learn(evidence: Evidence) -> Value:
    data = evidence[Gpus].data
    return data.driver_version if data else None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=("gpu.driver_version", "modules.nvidia_version"),
    judge=judge,
    unasked='only a site knows which release it tested: say driver_version: "550.*"',
    learn=learn,
    actions={INSTALL_LIBRARY: NeededAction.SITE},
)
