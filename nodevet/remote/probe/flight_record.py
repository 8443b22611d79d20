"""What a dump of PyTorch's flight recorder says of each process group: how far its collectives are.

The formats of versions 1 and 2: FlightRecorder in PyTorch's torch/csrc/distributed/c10d. What a
dump holds is text of the job's user, so that every value is checked and bounded.
"""

import re

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet.remote.probe.files import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

VERSION = re.compile(r"[12]\.[0-9]{1,3}\Z")  # another first number: the fields have changed
GROUPS = 64  # process groups of a dump
LARGEST_NUMBER = 1 << 63
SEQUENCE = "collective_seq_id"
OLD_SEQUENCE = "seq_id"  # of older versions: it counts sends and receives, too
SENDS = ("send", "recv")
DONE = "completed"
STATES = ("scheduled", "started", DONE)
EARLIER_S = 60  # a clock that is set may put a collective so far before its process
MEMBERS = re.compile(r"\[[0-9]{1,5}(?:, ?[0-9]{1,5})*\]\Z")
MOST_RANKS = 100000  # of a job
LONGEST_LIST = 1 << 15  # characters
DEFAULT = "default_pg"
SIZE = re.compile(r"[1-9][0-9]{0,4}\Z")


def dump_record(value: "Any", now: float, began: float, size: str = "") -> "Reading":
    """The JSON form of nodevet.evidence.process_activity.FlightDump, without its file. `began`:
    when the process did; `size`: its WORLD_SIZE. Raises ValueError."""
    version, entries = checked(value)
    made = [at for at in map(created, entries) if at is not None]
    if made and min(made) < began - EARLIER_S:
        raise ValueError("the dump has collectives from before the process began")
    numbers = [entry["record_id"] for entry in entries if is_number(entry.get("record_id"))]
    listed = groups(entries, DumpGroups(value.get("pg_config"), size), now)
    is_cut = len(listed) > GROUPS
    return Reading(
        version=version,
        whole=not is_cut and (not entries or (bool(numbers) and min(numbers) == 0)),
        held_s=None if is_cut or not made else age(min(made), now),
        timed=any(is_number(entry.get("time_discovered_started_ns")) for entry in entries),
        groups=listed[:GROUPS],
    )


def checked(value: "Any") -> "tuple[str, list[dict[str, Any]]]":
    """The version and the entries of a dump. Raises ValueError."""
    version = value.get("version") if isinstance(value, dict) else None
    if not (isinstance(version, str) and VERSION.match(version)):
        raise ValueError("the dump has version {}, and not 1 or 2".format(text(version)))
    entries = value.get("entries")
    if not isinstance(entries, list):
        raise ValueError("the dump has no entries")
    return version, [entry for entry in entries if isinstance(entry, dict)]


class DumpGroups(object):
    """The process groups of a dump, as its configuration names them."""

    def __init__(self, config: "Any", size: str) -> None:
        items = config.items() if isinstance(config, dict) else ()
        self.config = {str(key): value for key, value in items}
        self.all = "0-{}".format(int(size) - 1) if SIZE.match(size) else None

    def members(self, name: str, entry: "dict[str, Any]") -> "str | None":
        """The ranks of an entry's group. gloo does not record them; the default group has all."""
        names = entry.get("process_group")
        is_default = isinstance(names, list) and names[1:] == [DEFAULT]
        return members(self.config.get(name)) or (self.all if is_default else None)


def groups(entries: "Iterable[dict[str, Any]]", known: "DumpGroups", now: float) -> "list[Reading]":
    """For each process group of a dump how far its collectives are; first those that wait."""
    by_group: "dict[str, list[dict[str, Any]]]" = {}
    sending = set()
    for entry in entries:
        name, number = group_name(entry), sequence(entry)
        if is_send(entry):
            sending.add(name)
        elif number is not None and entry.get("state") in STATES:
            by_group.setdefault(name, []).append(entry)
    found = []
    for name in sorted(by_group):
        first = by_group[name][0]
        counts_sends = name in sending and SEQUENCE not in first  # differently on each rank
        ranks = None if counts_sends else known.members(name, first)
        found.append(group(name, by_group[name], ranks, now))
    return sorted(found, key=lambda each: bool(each["state"] == DONE))


def group_name(entry: "dict[str, Any]") -> str:
    """The name; before 2.0 groups have a number each."""
    names = entry.get("process_group", entry.get("pg_id"))
    name = names[0] if isinstance(names, list) and names else names
    return str(name) if is_number(name) else text(name)


def sequence(entry: "dict[str, Any]") -> "int | None":
    number = entry.get(SEQUENCE, entry.get(OLD_SEQUENCE))
    return number if is_number(number) else None


def is_number(value: "Any") -> bool:
    return type(value) is int and 0 <= value < LARGEST_NUMBER


def is_send(entry: "dict[str, Any]") -> bool:
    """Whether an entry is of two ranks alone: `nccl:send 0->1`."""
    word = name_of(entry).rpartition(":")[2].split(" ")[0]
    return bool(entry.get("is_p2p")) or word in SENDS


def created(entry: "dict[str, Any]") -> "float | None":
    number = entry.get("time_created_ns")
    return number / 1e9 if is_number(number) and number else None


def age(at: float, now: float) -> float:
    return round(max(0.0, now - at), 1)


def members(configured: "Any") -> "str | None":
    """The ranks of a group, `0-3,8`, of a text such as `[0, 1]`; before 2.0 of a list. None if the
    dump does not say it."""
    ranks = configured.get("ranks") if isinstance(configured, dict) else configured
    if isinstance(ranks, str) and MEMBERS.match(ranks):
        ranks = [int(word) for word in ranks[1:-1].split(",")]
    if not isinstance(ranks, list) or not 0 < len(ranks) <= MOST_RANKS:
        return None
    if not all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks):
        return None
    listed = format_cpulist(ranks)
    return listed if len(listed) <= LONGEST_LIST else None


def group(name: str, entries: "list[dict[str, Any]]", ranks: "str | None", now: float) -> "Reading":
    """The JSON form of nodevet.evidence.process_activity.FlightGroup. The collectives of a group
    complete in their order; a part of a coalesced one is never marked as completed."""
    numbers = [number_of(entry) for entry in entries]
    done = [number_of(entry) for entry in entries if is_done(entry)]
    last = max(done) if done else None
    waiting = [number for number in numbers if last is None or number > last]
    shown = min(waiting) if waiting else max(numbers)
    entry = first_of(entries, shown)
    states = [each["state"] for each in entries if number_of(each) == shown]
    at = created(entry)
    return Reading(
        group=name,
        members=ranks,
        completed=last,
        completed_as=None if last is None else name_of(first_of(entries, last)),
        scheduled=max(numbers),
        sequence=shown,
        collective=name_of(entry),
        sizes=sizes(entry.get("input_sizes")),
        state=max(states, key=STATES.index) if waiting else DONE,
        age_s=None if at is None else age(at, now),
    )


def is_done(entry: "dict[str, Any]") -> bool:
    """gloo never marks a collective as completed, only as retired; one of NCCL that is retired may
    have timed out."""
    is_gloo = name_of(entry).startswith("gloo:")
    return bool(entry["state"] == DONE or (is_gloo and entry.get("retired") is True))


def first_of(entries: "list[dict[str, Any]]", number: int) -> "dict[str, Any]":
    """Of a coalesced collective, all parts have one number; the first names it on every rank."""
    return next(entry for entry in entries if number_of(entry) == number)


def name_of(entry: "dict[str, Any]") -> str:
    return text(entry.get("profiling_name"))


def number_of(entry: "dict[str, Any]") -> int:
    return sequence(entry) or 0


def text(value: "Any") -> str:
    return value[:100] if isinstance(value, str) else "?"


def sizes(value: "Any") -> str:
    """`1024x8, 16` of the first tensors; a value that a pickle repeats inside itself is never
    unfolded."""
    tensors = value[:4] if isinstance(value, list) else []
    texts = [
        "x".join(str(number) for number in tensor[:8] if type(number) is int)
        for tensor in tensors
        if isinstance(tensor, list)
    ]
    return ", ".join(texts)[:100]
