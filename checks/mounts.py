"""The file systems in the baseline are mounted from the right source with the right options.

**Why it matters.** If /scratch or /local_nvme is not mounted, jobs write to the root disk and fill
it. A dataset on the wrong disk, a file system mounted read-only or an NFS mount with other options
than its peers cost hours before anyone looks at the mount.

**Read from** /proc/1/mountinfo, else /proc/self/mountinfo. The check never touches the mounts
themselves.

**Verdicts.** If a path has several mounts, the topmost counts; a mount that another one hides is
not mounted. An automount (autofs, systemd.automount) is not applicable while its file system is not
in use: it would be mounted on first use. `options` are the options of the mount and of its file
system together; a value may have `*`. The kernel does not list defaults: exec, suid, dev, atime,
async and diratime mean that their opposite is absent. Paths are those of mountinfo, without
symbolic links. A file system must be read-write unless `read_only` is true.

**To fix it** `findmnt --verify` checks /etc/fstab; `systemctl status PATH.mount` and `journalctl -b
-u PATH.mount` show why it was not mounted; `mount -o remount,OPTIONS PATH` changes most options. If
it is read-only, first look for disk errors in the kernel log.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    text_aspects,
    unknown_aspect,
)
from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import each_named, judge_each, reads_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.mounts import Mount, Mounts
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

OPPOSITES = {
    "exec": "noexec",
    "suid": "nosuid",
    "dev": "nodev",
    "atime": "noatime",
    "diratime": "nodiratime",
    "async": "sync",
}
NOT_MOUNTED = (
    "`findmnt --verify` and `systemctl status` of its mount unit show why; do not start jobs "
    "before it is mounted, because they would write to the directory below it"
)
LEFT_OVER = (
    "see who uses it (`fuser -vm`), unmount it, and remove its line in /etc/fstab or its unit"
)
Path = Annotated[str, Meta(pattern=r"^/", max_length=256, title="a path that begins with /")]


class ExpectedMount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be mounted at a path."""

    type: Words | None = None
    """ext4, xfs, nfs4, lustre, or a list."""
    source: Words | None = None
    """/dev/md0, server:/export, or a list."""
    options: tuple[str, ...] = ()
    """Options that the mount must have: noatime, vers=4.2, nconnect=16."""
    without: tuple[str, ...] = ()
    """Options that the mount must not have."""
    read_only: bool = False


ABSENT = "absent"


class Params(CheckParams):
    """`mounts: {/scratch: xfs, /home: {type: nfs4, options: [hard, vers=4.2]}}` or
    `mounts: {/models: {read_only: true}, /mnt/old: absent}`"""

    whole: ClassVar[str] = "paths"

    paths: Mapping[Path, str | ExpectedMount] = {}
    """What must be mounted at each path: its type, or more; or `absent`."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Mounts]
    mounts = each_named(section, params.paths, label="mounts", listed="mounts", kind="mount")
    yield from judge_each(mounts, lambda entry: judge_path(*entry, params.paths[entry[0].id]))


def judge_path(subject: Subject, mount: Mount, expected: str | ExpectedMount) -> Iterator[Finding]:
    if expected == ABSENT:
        yield judge_absent(subject, mount)
    else:
        expected_mount = ExpectedMount(type=expected) if isinstance(expected, str) else expected
        yield from judge_mount(subject, mount, expected_mount)


def judge_absent(subject: Subject, mount: Mount) -> Finding:
    for field in ("mounted", "automount"):
        if getattr(mount, field) is None:
            return unknown(subject, why=f"{field}: {mount.why(field)}")
    if mount.mounted:
        actual = mount.type or "mounted"
        return fail(subject, expected="not mounted", actual=actual, advice=LEFT_OVER)
    if mount.automount:
        return fail(subject, expected="not mounted", actual="an automount", advice=LEFT_OVER)
    return ok(subject, expected="not mounted", actual="not mounted")


def judge_mount(subject: Subject, mount: Mount, expected_mount: ExpectedMount) -> Iterator[Finding]:
    if mount.mounted is None:
        yield unknown(subject, why=f"mounted: {mount.why('mounted')}")
    elif mount.mounted:
        aspects = (
            *text_aspects(mount, type=expected_mount.type, source=expected_mount.source),
            *access(mount, expected_mount),
            *named_options(mount, expected_mount),
        )
        yield from aspect_findings(subject, aspects, advice=lambda bad: advice(bad, expected_mount))
    elif mount.automount and expected_mount.type != "autofs":
        yield not_applicable(subject, why="an automount: not in use at the moment")
    elif mount.automount is None:
        yield unknown(subject, why=f"automount: {mount.why('automount')}")
    elif not mount.automount:
        expected = words_text(expected_mount.type) if expected_mount.type else "mounted"
        yield fail(subject, expected=expected, actual="not mounted", advice=NOT_MOUNTED)
    else:
        yield ok(subject, expected="autofs", actual="autofs")


def advice(bad: list[str], expected: ExpectedMount) -> str:
    if "type" in bad or "source" in bad:
        return "drain the node and mount the right file system: correct its line in /etc/fstab"
    if "access" in bad and not expected.read_only:
        return (
            "drain the node; `dmesg` and `smartctl -x` show whether the disk is failing. If not, "
            "fsck it and remount it read-write"
        )
    return (
        "correct its line in /etc/fstab or the automounter's map; `mount -o remount` changes "
        "most options; NFS options change only after a new mount"
    )


def why_unread(mount: Mount) -> str:
    """Why not all options are known; empty if they are."""
    for field in ("options", "super_options"):
        if getattr(mount, field) is None:
            return f"{field}: {mount.why(field)}"
    return ""


def options_of(mount: Mount) -> tuple[str, ...]:
    return (*(mount.options or ()), *(mount.super_options or ()))


def access(mount: Mount, expected_mount: ExpectedMount) -> Iterator[Aspect]:
    is_read_only = "ro" in options_of(mount)
    expected = "read-only" if expected_mount.read_only else "read-write"
    if is_read_only or not why_unread(mount):
        actual = "read-only" if is_read_only else "read-write"
        yield aspect_if("access", actual == expected, expected=expected, actual=actual)
    else:
        yield unknown_aspect("access", why_unread(mount))


def named_options(mount: Mount, expected_mount: ExpectedMount) -> Iterator[Aspect]:
    if not expected_mount.options and not expected_mount.without:
        return
    options = options_of(mount)
    lacking = [option for option in expected_mount.options if not has_option(options, option)]
    forbidden = [option for option in expected_mount.without if has_option(options, option)]
    if why_unread(mount):
        yield unknown_aspect("options", why_unread(mount))
    elif lacking or forbidden:
        instead_of = [
            alternative for option in lacking for alternative in actual_options(options, option)
        ]
        expected = ", ".join((*lacking, *(f"no {option}" for option in forbidden)))
        yield aspect_if(
            "options", False, expected=expected, actual=", ".join((*instead_of, *forbidden))
        )
    else:
        expected = ", ".join(
            (*expected_mount.options, *(f"no {option}" for option in expected_mount.without))
        )
        yield aspect_if("options", True, expected=expected, actual=expected)


def has_option(options: tuple[str, ...], option: str) -> bool:
    """
    >>> has_option(("rw", "vers=4.2"), "vers=4.*"), has_option(("noexec",), "exec")
    (True, False)
    """
    if option in OPPOSITES and option not in options:
        return OPPOSITES[option] not in options
    return any(matches(actual, option) for actual in options)


def actual_options(options: tuple[str, ...], option: str) -> list[str]:
    """The options in place of the expected one: another value, its opposite, or none.

    >>> actual_options(("rw", "vers=3"), "vers=4.2"), actual_options(("rw",), "hard")
    (['vers=3'], ['no hard'])
    """
    name = option.partition("=")[0]
    alternatives = [actual for actual in options if actual.partition("=")[0] == name]
    alternatives += [actual for actual in options if actual == OPPOSITES.get(option)]
    return alternatives or [f"no {option}"]


def learn(evidence: Evidence) -> Value:
    data = evidence[Mounts].data
    mounts = (*(data.mounts or ()), *(data.others or ())) if data else ()
    mounted: dict[str, Value] = {}
    for mount in mounts:
        if mount.mounted and mount.type and mount.name != "/":
            mounted[mount.name] = {"type": mount.type}
            if "ro" in options_of(mount):
                mounted[mount.name]["read_only"] = True
    return mounted or None


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *reads_of("mounts.mounts[]", "automount", "mounted", "name", "options[]", "source"),
        *reads_of("mounts.mounts[]", "super_options[]", "type"),
    ),
    judge=judge,
    unasked="only the site knows its mounts: write mounts: {/scratch: xfs}",
    learn=learn,
    asks=lambda params: {"mounts": tuple(params.paths)},
)
