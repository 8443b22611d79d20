"""Mount what /etc/fstab or a mount unit says, and set the options of a mount as they say.

**Now** if a line of /etc/fstab names the path, nodevet runs `mount PATH` for at most 60 s.
Otherwise it starts the path's mount unit; `--deadline` limits this time. If the path is already
mounted with other options, nodevet runs `mount -o remount,bind`, which changes the options of the
mount but not its file system.

**At every boot** /etc/fstab already mounts the path, and the fix does not change that file. If the
mount unit is disabled, the fix enables it.

**Risk** live for a mount over an empty folder, and for options that allow more. drain if the folder
contains files: a job may have written them, and the mount hides them. drain also for `ro`,
`nosuid`, `nodev` and `noexec`, because a job may need what they forbid.

**Rollback** unmounts what the fix mounted, never lazily and never by force: if a program uses the
mount, the rollback fails and says so. It sets the earlier options of a mount again. If systemd
created the folder for a unit, the folder stays.

**What it cannot do.** If neither /etc/fstab nor a unit names the path, or if they contradict the
baseline, a person must decide which is right; nodevet names the line to add. It never unmounts
anything and never changes what is mounted: if the type or the source is wrong, unmount it on a
drained node. It sets only `ro`, `nosuid`, `nodev`, `noexec`, `nodiratime`, `noatime`, `relatime`
and their opposites; other options need a new mount. If the whole file system is read-only, the
kernel probably found errors: check the disk first. nodevet refuses a line with `noauto` or `bg`, a
path that two files name or that has a symbolic link in it, and a unit with drop-ins. It does not
repair a server: if the server does not answer, `timeout` ends the command after 60 s with code 124,
and nothing is mounted.
"""

from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename

from msgspec.structs import replace

from nodevet.checking.aspects import text_aspects
from nodevet.checks.mounts import (
    ABSENT,
    ExpectedMount,
    Params,
    access,
    has_option,
    named_options,
)
from nodevet.evidence.core import NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.mounts import ConfiguredMount, Mount, Mounts
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.fixing.units import OBSTACLES, STANDS, unit_of
from nodevet.model import Finding, Verdict
from nodevet.remote.fstab import PATH as FSTAB
from nodevet.remote.fstab import mount_unit
from nodevet.resource import Actions, Resource
from nodevet.resource import mount as resource
from nodevet.resource.unit import SetUnit

NEVER = ("noauto", "bg")
"""Options of a line that does not mount at boot, or not when `mount` ends."""
UNTOLD = ("auto", "nfs")
"""Types in /etc/fstab that a mount shows as another type; the check judges that one."""
HIDES = "{} is not empty, or was not read: its files are hidden while something is mounted there"


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for each path that fails; see `FIX`."""
    changes, refused = [], []
    for finding in sorted(failed, key=lambda finding: finding.subject.id):  # a parent comes first
        path = finding.subject.id
        try:
            changes.append(change(finding, evidence, params.paths[path]))
        except FixError as error:
            refused.append(f"{path}: {error}")
    yield from with_refusals(changes, refused)


def change(finding: Finding, evidence: Evidence, expected: str | ExpectedMount) -> PlannedChange:
    """The change of one path. Raises FixError."""
    path = finding.subject.id
    if expected == ABSENT:
        raise FixError("nodevet unmounts nothing: see who uses it, then unmount it by hand")
    if why := resource.KIND.name_problem(path):
        raise FixError(why)
    if isinstance(expected, str):
        expected = ExpectedMount(type=expected)
    mount, said = parts_of(evidence, path)
    require_agreement(said, expected)
    if mount.mounted:
        flags = flags_to_set(mount, finding, expected, said)
        actions: Actions = (resource.remount(path, mount.options or (), flags),)
        harms, note = not resource.FLAGS.keys().isdisjoint(flags), ""
    else:
        actions, harms = start(evidence, said), hides_files(said)
        note = HIDES.format(path) if harms else ""
    named = (action.resource for action in actions if action.resource)
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(finding.subject.label,),
        actions=actions,
        resources=(Resource(kind="mount", name=path), *named),
        risk=Risk.DRAIN if harms else Risk.LIVE,
        note=note,
    )


def parts_of(evidence: Evidence, path: str) -> tuple[Mount, ConfiguredMount]:
    """What is mounted at a path, and what a file says of it. Raises FixError if no file names it,
    or if it was not read."""
    data = evidence[Mounts].data
    mounts = (data.mounts if data else None) or ()
    mount = next((mount for mount in mounts if mount.name == path), None)
    configured = (data.configured if data else None) or ()
    said = next((record for record in configured if record.name == path), None)
    if mount is None or mount.mounted is None or said is None:
        raise FixError(NOT_ASKED)
    for field in ("file", "type", "source", "options"):
        if getattr(said, field) is None:
            raise FixError(f"{FSTAB} and its unit: {said.why(field)}")
    return mount, said


def require_agreement(said: ConfiguredMount, expected: ExpectedMount) -> None:
    """Raises FixError if a file does not say what the baseline expects."""
    line = line_of(said.name, expected)
    if not said.file:
        raise FixError(
            f"neither {FSTAB} nor a unit names it; if the baseline is right, add `{line}`"
        )
    options = tuple(option.replace("nfsvers=", "vers=") for option in said.options or ())
    if never := [option for option in options if option in NEVER]:
        raise FixError(f"{said.file} has the option {never[0]}: nodevet does not mount it")
    as_mounted = Mount(
        name=said.name, type=said.type, source=said.source, options=options, super_options=()
    )
    of_type = replace(expected, type=None) if said.type in UNTOLD else expected
    aspects = (
        *text_aspects(as_mounted, type=of_type.type, source=of_type.source),
        *access(as_mounted, expected),
        *named_options(as_mounted, expected),
    )
    for aspect in aspects:
        if aspect.verdict is not Verdict.OK:
            raise FixError(
                f"{said.file} says {aspect.name} {aspect.actual}, and {aspect.expected} is "
                f"expected; if the baseline is right, write `{line}` there"
            )


def line_of(path: str, expected: ExpectedMount) -> str:
    """A line of /etc/fstab for a path, with words for what the baseline does not say."""
    first = [
        words if isinstance(words, str) else (words or (word,))[0]
        for words, word in ((expected.source, "SOURCE"), (expected.type, "TYPE"))
    ]
    options = [*(["ro"] if expected.read_only else []), *expected.options]
    return f"{first[0]} {path} {first[1]} {','.join(options) or 'defaults'} 0 0"


def start(evidence: Evidence, said: ConfiguredMount) -> Actions:
    """The actions that mount it now. Raises FixError for a unit that systemd cannot start."""
    if said.file == FSTAB:
        return (resource.mount(said.name),)
    unit = unit_of(evidence, mount_unit(said.name))
    if basename(said.file or "") != unit.name or unit.load_state != "loaded":
        raise FixError(OBSTACLES.get(unit.load_state or "", f"systemd could not load {unit.name}"))
    if unit.active_state not in STANDS:
        raise FixError(f"{unit.name} is {unit.active_state}; plan again when it has finished")
    if unit.file_state not in ("enabled", "disabled"):
        raise FixError(f"{unit.name} is {unit.file_state}: nothing would mount it at boot")
    enable = True if unit.file_state == "disabled" else None
    return (SetUnit(name=unit.name, enabled=enable, running=True),)


def hides_files(said: ConfiguredMount) -> bool:
    """Whether files may be in the folder. Raises FixError if the folder is missing, unless its
    unit creates it."""
    is_missing = said.empty is None and said.why("empty") == "ENOENT"
    if is_missing and said.file == FSTAB:
        raise FixError(f"the folder does not exist: `mkdir {said.name}`")
    return not is_missing and said.empty is not True


def flags_to_set(
    mount: Mount, finding: Finding, expected: ExpectedMount, said: ConfiguredMount
) -> list[str]:
    """The options of a mount that change. Raises FixError if they do not repair it."""
    wrong = finding.actual if isinstance(finding.actual, Mapping) else {}
    if said.file != FSTAB:
        raise FixError(f"its unit sets the options: run `systemctl reload {mount_unit(said.name)}`")
    if {"type", "source"} & set(wrong) or not wrong:
        raise FixError("something else is mounted there: unmount it on a drained node")
    if mount.options is None or mount.super_options is None:
        raise FixError("the options of the mount were not read")
    if not expected.read_only and "ro" in mount.super_options:
        raise FixError(
            "the file system is read-only, perhaps after an error: drain the node, then fsck"
        )
    options = (*mount.options, *mount.super_options)
    changes = [option for option in expected.options if not has_option(options, option)]
    changes += [opposite(option) for option in expected.without if has_option(options, option)]
    if "access" in wrong:
        changes.append("ro" if expected.read_only else "rw")
    if others := [option for option in changes if not resource.is_flag(option)]:
        raise FixError(f"{', '.join(others)}: only a new mount on a drained node changes that")
    return changes


def opposite(option: str) -> str:
    """What to set for an option that must not be there; the option itself if nodevet sets none."""
    pairs = {**resource.FLAGS, **resource.FOLDERS}
    return {**pairs, **{value: key for key, value in pairs.items()}}.get(option, f"no {option}")


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """What the files say about each path, and its unit."""
    paths = [path for path in params.paths if not resource.KIND.name_problem(path)]
    return {"mounts": ("fstab", *params.paths), "services": tuple(map(mount_unit, paths))}


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("kernel_modules",), asks=asks)
"""After the modules, because a file system may need one, and before services that need the
mounts."""
