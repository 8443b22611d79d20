"""The NVIDIA driver version is one that the baseline allows.

**Why it matters.** The driver determines which CUDA applications start at all, and each release
has its own bugs. A node that missed an upgrade, or got one too early, fails jobs that run
everywhere else.

**Read from** NVML, nvmlSystemGetDriverVersion: the version of the user-space library. The version
of the loaded kernel module is judged by `kernel_modules`.

**Verdicts.** Versions compare as PEP 440 says: part by part, as numbers. A plain version means
that one only; `550.*` means the branch; `>=550.90.07,<560` a range; `!=550.54.14` leaves one out.
Where the library refuses the loaded kernel module, because the two are of different versions, or
is not there while the module is loaded, no version passes. Without a loaded module and without
the library it is unknown.

**To fix it** install the expected version of every driver package that is there, the fabric
manager's with it, then reboot, or unload and load the modules while nothing uses a GPU. Hold the
packages so that an unattended upgrade does not change them. After an upgrade that left the old
module loaded: reboot.
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
from nodevet.model import Area, Check, CheckParams, FieldError, Finding, Value, fail, unknown


def specifiers(text: str) -> SpecifierSet:
    """What `text` admits. Raises ValueError with words for the user."""
    plain = text.strip()
    if re.fullmatch(r"\d+", plain):
        raise ValueError(f"{plain} is a branch, not a version: write {plain}.* for all of it")
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
    """The version of the loaded kernel module, for the sentence; nothing where it is not known."""
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
)
