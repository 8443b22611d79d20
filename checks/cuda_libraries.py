"""The driver's libraries exist, are complete and have the loaded module's version.

**Why it matters.** A program that finds no usable libcuda.so.1 silently falls back to the CPU, or
fails with "CUDA driver version is insufficient". Container tools that mounted over a file leave it
empty, a wrong LD path finds stubs of the CUDA toolkit, and an upgrade without a reboot leaves
libraries of another version.

**Read from** /etc/ld.so.cache and the loader's own folders, the beginning of each file, and
/sys/module/nvidia/version. nodevet loads no library. It always reads libcuda.so.1,
libnvidia-ml.so.1 and libnvidia-ptxjitcompiler.so.1, and also the libraries that `libraries` and
`versions` name.

**Verdicts.** nodevet judges the file that the loader would open: the first 64-bit entry of its
cache. A library that is empty, truncated or a stub fails. A driver library whose version differs
from the loaded module's fails, too; while no module is loaded, its version is not judged.
`versions` compares the version at the end of a file's name with a prefix: libnccl.so.2.21.5 matches
2.21. If a container holds the driver (GPU Operator, GKE) and the node itself has none of its
libraries, they are not applicable. The check `environment` judges LD_LIBRARY_PATH.

**To fix it** reinstall the package that contains the file (`dpkg -S FILE`, `rpm -qf FILE`), then
run `ldconfig`. For a stub: remove its folder from /etc/ld.so.conf.d. For another version: reboot,
or unload and load the nvidia modules.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import UNSET, Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.evidence.across import DRIVER_FAULT
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.libraries import LIBRARY_NAME, Libraries, Library
from nodevet.evidence.modules import Modules
from nodevet.evidence.versions import is_version
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)

DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
OF_DRIVER = re.compile(r"lib(cuda|nvcuvid|nvidia-[a-z0-9-]+)\.so\.1")
STUBS = "/stubs/"

Name = Annotated[str, Meta(pattern=f"^{LIBRARY_NAME}$")]
Prefix = Annotated[str, Meta(pattern=r"^[0-9][0-9.]{0,40}$")]


class Params(CheckParams):
    """`cuda_libraries: {}` or
    `cuda_libraries: {libraries: [libcudart.so.12], versions: {libnccl.so.2: "2.21"}}`"""

    libraries: tuple[Name, ...] = ()
    """Libraries that the loader must find, besides the driver's."""
    versions: Mapping[Name, Prefix] = {}
    """The expected prefix of the version at the end of a library's file name."""
    version_matches: bool = True
    """Whether the driver's libraries must have the loaded module's version."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.libraries, *self.versions)))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Libraries]
    libraries = (section.data.libraries if section.data else None) or ()
    by_name = {library.name: library for library in libraries}
    in_container = bool(section.data and section.data.driver_in_container)
    for name in dict.fromkeys((*DRIVER, *params.names)):
        subject = Subject(kind="library", id=name)
        if section.data is None:
            yield unknown(subject, why=f"libraries: {section.why}")
        elif section.data.libraries is None:
            yield unread(subject, section.data, "libraries")
        elif name not in by_name:
            yield unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
        elif by_name[name].path == "" and in_container and OF_DRIVER.fullmatch(name):
            yield not_applicable(subject, why="the driver and its libraries are in a container")
        else:
            yield from judge_library(subject, by_name[name], evidence, params)


def judge_library(
    subject: Subject, library: Library, evidence: Evidence, params: Params
) -> Iterator[Finding]:
    """The findings about one library. A missing library and a stub have no version to judge."""
    if library.path is None:
        yield unread(subject, library, "path")
    elif not library.path:
        cause = DRIVER_FAULT if OF_DRIVER.fullmatch(library.name) else UNSET
        yield fail(subject, expected="there", actual="not found", advice=REINSTALL, cause=cause)
    elif STUBS in f"{library.path}\0{library.file}":
        yield fail(subject, expected="a library", actual=f"a stub: {library.path}", advice=NO_STUBS)
    elif library.file is None:
        yield unread(subject, library, "file")
    else:
        facts = [
            judge_file(subject, library),
            judge_prefix(subject, library, params.versions.get(library.name)),
        ]
        if OF_DRIVER.fullmatch(library.name) is not None and params.version_matches:
            facts.append(judge_version(subject, library, evidence))
        yield from each_fact(facts)


def judge_file(subject: Subject, library: Library) -> Finding:
    if library.broken is None:
        return unread(subject, library, "broken")
    if not library.broken:
        return ok(subject)
    actual = f"{library.broken} ({library.file or library.path})"
    return fail(subject, expected="a library", actual=actual, advice=REINSTALL)


def judge_prefix(subject: Subject, library: Library, prefix: str | None) -> Finding:
    if prefix is None or is_version(ending(library.file or ""), prefix):
        return ok(subject, expected=f"{prefix}*" if prefix else "there", actual=library.file)
    actual = ending(library.file or "") or library.file or library.path
    return fail(subject, expected=f"{prefix}*", actual=actual, advice=OTHER)


def judge_version(subject: Subject, library: Library, evidence: Evidence) -> Finding:
    """Whether a library of the driver has the loaded module's version."""
    modules = evidence[Modules]
    if modules.data is None:
        return unknown(subject, why=f"modules: {modules.why}")
    loaded = modules.data.nvidia_version
    if loaded is None and modules.data.errors.get("nvidia_version") == "ENOENT":
        return ok(subject, expected="there", actual=library.path)
    if loaded is None:
        return unread(subject, modules.data, "nvidia_version")
    if library.version is None:
        return unread(subject, library, "version")
    if not library.version:
        return unknown(subject, why=f"the file name {library.file} contains no version")
    if library.version == loaded:
        return ok(subject, expected=loaded, actual=library.version)
    return fail(
        subject, expected=loaded, actual=library.version, advice=SAME_VERSION, cause=DRIVER_FAULT
    )


def ending(file: str) -> str:
    """The version at the end of a library's file.

    >>> ending("/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    '2.21.5'
    """
    return file.rpartition(".so.")[2] if ".so." in file else ""


OTHER = "install the expected version, or correct the order of folders in /etc/ld.so.conf.d"
REINSTALL = "reinstall its package (`dpkg -S FILE` or `rpm -qf FILE` names it), then run `ldconfig`"
NO_STUBS = "remove the folder of stubs from /etc/ld.so.conf.d, then run `ldconfig`"
SAME_VERSION = (
    "after an upgrade: reboot, or unload and load the nvidia modules; otherwise remove the "
    "second installed driver (`nvidia-uninstall` for a .run installer, or its packages)"
)


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "libraries.driver_in_container",
        *reads_of("libraries.libraries[]", "broken", "file", "name", "path", "version"),
        "modules.nvidia_version",
    ),
    judge=judge,
    asks=lambda params: {"libraries": params.names},
)
