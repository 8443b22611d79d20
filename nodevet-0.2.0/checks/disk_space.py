"""The file systems that every job needs have free space and are writable.

**Why it matters.** On a full root disk jobs start and then fail, logs are lost, and sshd, Slurm and
the container runtime stop working. After a disk error the kernel makes a file system read-only, and
many programs go on as if nothing had happened.

**Read from** statvfs(3) of /, /tmp, /var, /var/log, /var/tmp, /dev/shm, /home and /run, each file
system once, and of the `paths` that the baseline adds (/scratch, /local_nvme); and
/proc/self/mounts.

**Verdicts.** Free space is what unprivileged users may still write, as a percentage of the total
size. If a file system does not count inodes, only its free space is judged. A network file system
is not applicable, and nodevet never queries it, because an unreachable server would block the
probe. A file system that is read-only by design is not applicable: images (squashfs, erofs),
overlays without an upper layer, and the paths that `read_only` names. A path in `paths` that does
not exist fails. If the file system of a path is not mounted, nodevet judges the file system of the
folder above: see the check `mounts`.

**To fix it** `du -xh --max-depth=2 / | sort -h` shows what uses the space. The usual causes are the
journal (`journalctl --vacuum-size=1G`), old kernels, container images and core dumps. `lsof +L1`
lists deleted files that are still open. Read-only: first look for disk errors in the kernel log.
"""

import math
import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.filesystems import FileSystem, FileSystems
from nodevet.evidence.mounts import Mounts
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    Verdict,
    fail,
    not_applicable,
    unknown,
)

Percent = (
    Annotated[str, Meta(pattern=r"^[0-9]{1,2}(\.[0-9]+)?%$", title="a percentage such as 5%")]
    | Annotated[float, Meta(ge=0, lt=100)]
)
PLAIN = re.compile(r"/[A-Za-z0-9._/-]{0,100}")  # a path that a shell needs no quotes for
NOT_THERE = "create it and mount its file system, or correct the baseline's `paths`"
IN_MEMORY = ("/dev/shm", "/run")  # noqa: S108 - nothing is written there

Path = Annotated[str, Meta(pattern=r"^/", title="a path that begins with /")]


class Params(CheckParams):
    """`disk_space: 5%` or `disk_space: {minimum_percent: 10, paths: [/scratch]}` or
    `disk_space: {read_only: [/]}`"""

    bare: ClassVar[str] = "minimum_percent"

    minimum_percent: Percent = 5.0
    """The free space that must be left."""
    minimum_inodes_percent: Percent = 5.0
    """The free inodes that must be left."""
    paths: tuple[Path, ...] = ()
    """Further paths that need free space: /scratch, /local_nvme."""
    read_only: tuple[Path, ...] = ()
    """Paths that are read-only by design; they need no free space."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[FileSystems]
    if section.status == "absent":
        yield not_applicable(why=section.why)
    elif section.data is None:
        yield unknown(why=f"file systems: {section.why}")
    elif section.data.filesystems is None:
        yield unknown(why=f"filesystems: {section.data.why('filesystems')}")
    else:
        if not any(filesystem.path == "/" for filesystem in section.data.filesystems):
            yield unknown(Subject(kind="filesystem", id="/"), why="it was not found")
        unmounted = not_mounted(evidence)
        for filesystem in section.data.filesystems:
            cause = f"mounts mount {filesystem.path}"
            for finding in judge_one(filesystem, params):
                follows = finding.verdict is Verdict.FAIL and filesystem.path in unmounted
                yield msgspec.structs.replace(finding, cause=cause) if follows else finding
        paths_read = {filesystem.path for filesystem in section.data.filesystems}
        for path in dict.fromkeys(params.paths):
            if path not in paths_read:
                why, subject = NOT_ASKED, Subject(kind="filesystem", id=path)
                yield unknown(subject, why=why, advice=READ_AGAIN)
        paths = set(section.data.found or ())
        missing = sorted(paths - {filesystem.path for filesystem in section.data.filesystems})
        if missing:
            why = f"{len(paths) - len(missing)} of {len(paths)} file systems were read; not read:  "
            yield unknown(why=why + ", ".join(path[:100] for path in missing[:8]))


def not_mounted(evidence: Evidence) -> frozenset[str]:
    """The mount points whose own file system is not mounted."""
    mounts = (data.mounts if (data := evidence[Mounts].data) else None) or ()
    return frozenset(mount.name for mount in mounts if mount.mounted is False)


def judge_one(filesystem: FileSystem, params: Params) -> Iterator[Finding]:
    subject = Subject(kind="filesystem", id=filesystem.path)
    if filesystem.missing:
        yield fail(subject, expected="a directory", actual="not there", advice=NOT_THERE)
    elif filesystem.remote:
        yield not_applicable(subject, why=f"on the network ({filesystem.type}): not queried")
    elif filesystem.read_only and (filesystem.immutable or filesystem.path in params.read_only):
        yield not_applicable(subject, why="read-only by design")
    else:
        aspects = [*access(filesystem, params), *space_aspects(filesystem, params)]
        yield from aspect_findings(
            subject, aspects, advice=lambda bad: advice(filesystem.path, bad)
        )


def access(filesystem: FileSystem, params: Params) -> Iterator[Aspect]:
    if filesystem.remote is None:
        yield unread_aspect(filesystem, "remote")
    if filesystem.read_only is None:
        yield unread_aspect(filesystem, "read_only")
    elif filesystem.path not in params.read_only:
        actual = "read-only" if filesystem.read_only else "read-write"
        yield aspect_if("access", not filesystem.read_only, expected="read-write", actual=actual)


def space_aspects(filesystem: FileSystem, params: Params) -> Iterator[Aspect]:
    """The aspects of free space and free inodes."""
    for name, fields, minimum in (
        ("free", ("size_b", "available_b"), percent(params.minimum_percent)),
        ("free inodes", ("inodes", "inodes_available"), percent(params.minimum_inodes_percent)),
    ):
        total, available = (getattr(filesystem, field) for field in fields)
        missing = [field for field in fields if getattr(filesystem, field) is None]
        if missing:
            yield unread_aspect(filesystem, missing[0])
        elif name == "free inodes" and total == 0:
            continue
        elif not 0 <= available <= total or total == 0:
            yield unknown_aspect(name, f"{fields[1]}: {available} of {total}")
        else:
            right = available * 100 >= total * minimum
            share = f"{math.floor(1000 * available / total) / 10:g}%"
            aspect = aspect_if(name, right, expected=f"at least {minimum:g}%", actual=share)
            space = space_text(filesystem) if name == "free" and not right else ""
            yield aspect._replace(why=space)


def advice(path: str, bad: list[str]) -> str:
    if "access" in bad:
        return (
            "drain the node; `dmesg` and `smartctl -x` show whether the disk is failing. If it "
            "is, have it replaced and attach both outputs; otherwise fsck it and remount it "
            "read-write"
        )
    path = path if PLAIN.fullmatch(path) else "/"
    if path in IN_MEMORY:
        return (
            f"it is in memory: with no job on the node, `ls -lt {path}` shows files that "
            "finished jobs left there; remove them, or reboot, which clears it"
        )
    if "free" not in bad:
        return (
            f"many small files: `du -x --inodes {path} | sort -n | tail` shows where; job and "
            f"package caches are the usual cause"
        )
    find = f"`du -xh --max-depth=2 {path} | sort -h | tail` shows what uses the space"
    if path in ("/", "/var", "/var/log"):
        return (
            f"{find}; try `journalctl --vacuum-size=1G`, and look for container images, core "
            "dumps, old kernels"
        )
    return (
        f"{find}; `lsof +L1` lists deleted files that are still open. Ask the owners before "
        "removing anything"
    )


def percent(value: str | float) -> float:
    return float(value.rstrip("%")) if isinstance(value, str) else value


def space_text(filesystem: FileSystem) -> str:
    """As `1.2 GB of 512 GB`."""
    return (
        f"{(filesystem.available_b or 0) / 1e9:.3g} GB of {(filesystem.size_b or 0) / 1e9:.3g} GB"
    )


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *reads_of("filesystems.filesystems[]", "available_b", "immutable", "inodes"),
        *reads_of("filesystems.filesystems[]", "inodes_available", "missing", "path", "read_only"),
        *reads_of("filesystems.filesystems[]", "remote", "size_b"),
        "filesystems.found[]",
    ),
    explains=("mounts",),
    judge=judge,
    asks=lambda params: {"filesystems": params.paths},
    severity=Severity.WARNING,
)
