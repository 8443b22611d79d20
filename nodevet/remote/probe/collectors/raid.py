"""Software RAID and ZFS pools: /proc/mdstat, /sys/block/md*/md, /proc/spl/kstat/zfs/*/state.

See Documentation/admin-guide/md.rst in the kernel tree. It runs no program: `zpool status` hangs
with its pool.
"""

from nodevet.remote.probe.files import Reading, line, names, quote, read, text_lines
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MDSTAT = "/proc/mdstat"
ZFS = "/proc/spl/kstat/zfs"
ARRAYS = 256
POOLS = 64
HEAD = Pattern(
    r"(md[^\s/:]{0,60}) : (active|inactive|broken)((?: \((?:auto-)?read-only\))?)((?: \S+)*)\Z"
)
MEMBER = Pattern(r"(\S{1,60})\[([0-9]{1,6})\]((?:\([A-Z]\))*)\Z")
DEVICES = Pattern(r"\[([0-9]{1,6})/([0-9]{1,6})\]")
PROGRESS = Pattern(r"(recovery|resync|check|reshape|repair) ?= {0,3}([0-9]{1,3}(?:\.[0-9]+)?)%")
WAITING = Pattern(r"(recovery|resync|check|reshape)=(DELAYED|PENDING|REMOTE)")
EXTERNAL = Pattern(r"super external:([a-z]{1,20})(?: |\Z)")


def parse_arrays(text: str) -> "list[tuple[str, list[str]]]":
    """[(heading, [the rows below it])] of /proc/mdstat. Raises ValueError."""
    if not text.startswith("Personalities"):
        raise ValueError("not the beginning of {}: {}".format(MDSTAT, quote(text)))
    blocks: "list[tuple[str, list[str]]]" = []
    for row in text_lines(text)[1:]:
        if row.startswith("md"):
            blocks.append((row.rstrip(), []))
        elif row.startswith(" ") and blocks:
            blocks[-1][1].append(row.strip())
    return blocks


def array(root: str, heading: str, rows: "list[str]") -> "Reading":
    """The record of an array. Raises ValueError for another heading."""
    match = HEAD.match(heading)
    if match is None:
        raise ValueError("not an array of {}: {}".format(MDSTAT, quote(heading)))
    name, state, read_only, text_after_state = match.groups()
    words = text_after_state.split()
    members = [MEMBER.match(word) for word in words]
    level = words[0] if words and members[0] is None else ""
    member_matches = [member for member in members if member]
    if len(member_matches) + bool(level) != len(words):
        raise ValueError("not a list of members: {}".format(quote(text_after_state)))
    text = "\n".join(rows)
    external = EXTERNAL.search(text)
    record = Reading(
        name=name,
        active=state == "active",
        read_only=read_only.strip(" ()"),
        level=level,
        members=sorted(member.group(1) for member in member_matches),
        failed=sorted(member.group(1) for member in member_matches if "(F)" in member.group(3)),
        spares=sorted(member.group(1) for member in member_matches if "(S)" in member.group(3)),
        container=bool(external) and not level,
    )
    devices = DEVICES.search(text)
    if devices:
        record["devices"], record["devices_active"] = map(int, devices.groups())
    else:
        record.fail_all(("devices", "devices_active"), "the kernel does not count them")
    action, percent = sync(text)
    record["sync_action"] = action
    record.put("sync_percent", percent, "nothing is under way")
    folder = "/sys/block/{}/md/".format(name)
    record.take("array_state", line, root, folder + "array_state")
    return record


def sync(text: str) -> "tuple[str, float | None]":
    """(sync action, percent) of an array's rows.

    >>> sync("[=>..]  recovery =  8.5% (1/2) finish=17.0min"), sync("resync=DELAYED"), sync("")
    (('recovery', 8.5), ('resync delayed', None), ('', None))
    """
    match = PROGRESS.search(text)
    if match:
        return match.group(1), float(match.group(2))
    match = WAITING.search(text)
    return ("{} {}".format(match.group(1), match.group(2).lower()) if match else "", None)


def mdstat(root: str) -> "list[Reading]":
    """The arrays; empty without md. Raises OSError, ValueError."""
    try:
        blocks = parse_arrays(read(root, MDSTAT))
    except FileNotFoundError:
        return []
    if len(blocks) > ARRAYS:
        raise ValueError("more than {} arrays".format(ARRAYS))
    return [array(root, heading, rows) for heading, rows in blocks]


def pools(root: str) -> "list[Reading]":
    """The ZFS pools; empty without ZFS. Raises OSError, ValueError."""
    try:
        pool_names = names(root, ZFS)
    except FileNotFoundError:
        return []
    records = []
    for name in pool_names:
        record = Reading(name=name[:200])
        record.take("state", line, root, "{}/{}/state".format(ZFS, name))
        if record["errors"].get("state") not in ("ENOENT", "ENOTDIR"):  # not a pool's folder
            records.append(record)
    if len(records) > POOLS:
        raise ValueError("more than {} pools".format(POOLS))
    return records


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    raid = Reading()
    for field, look, count in (
        ("arrays", mdstat, "arrays_found"),
        ("pools", pools, "pools_found"),
    ):
        raid.take(field, look, root)
        if raid[field] is None:
            raid.fail(count, raid["errors"][field])
        else:
            raid[count] = len(raid[field])
    return raid
