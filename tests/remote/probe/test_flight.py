"""Dumps of the flight recorder: read without running anything, and only the job's own."""

import copyreg
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import flight, plain_pickle
from nodevet.remote.probe.flight_record import GROUPS, dump_record
from nodevet.remote.probe.plain_pickle import plain_value

GLOO = Path(__file__).parent / "gloo_dumps"
LATER = 1e11  # a time after every test
MADE_S = 1_764_000_000.0  # when the collectives were created


def entry(sequence: int, state: str, **rest: Any) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[1024, 8], [16]],
        "time_created_ns": int(MADE_S * 1e9),
        "time_discovered_started_ns": None,
        "timeout_ms": 600000,
        "state": state,
        "retired": False,
        "duration_ms": 0.5,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **rest,
    }


CONFIG = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
DUMP = {
    "version": "2.4",
    "pg_config": CONFIG,
    "entries": [
        entry(116, "completed"),
        entry(117, "completed"),
        entry(118, "started"),
        entry(119, "scheduled"),
        entry(7, "scheduled", is_p2p=True),
    ],
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    plain = {**DUMP, "pg": [True, None, -5, 2**40, 1.5, "x" * 300, [], {}]}
    read = plain_value(pickle.dumps(plain, protocol))
    assert read["entries"][0]["process_group"] == ["0", "default_pg"]
    assert {**read, "entries": 0} == {**plain, "entries": 0}


class Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["TMPDIR"] + "/ran",)


class Registered:
    pass


HOSTILE = {
    "a class": lambda: pickle.dumps({"entries": [Runs()]}, 2),
    "a class, by protocol 4": lambda: pickle.dumps(Runs(), 4),
    "an old class": lambda: b"(ios\nsystem\n(S'true'\ntR.",
    "a persistent object": lambda: b"Pname\n.",
    "an extension": lambda: b"\x80\x02\x82\x01.",
    "a memo of 32 GiB": lambda: b"\x80\x02]r\xff\xff\xff\x7fh\x00.",
    "a text of 4 GiB": lambda: b"\x80\x02X\xff\xff\xff\xffx.",
    "nothing to take": lambda: b"\x80\x02u.",
    "a list as a key": lambda: b"\x80\x02}]K\x01s.",
    "no end": lambda: b"\x80\x02K\x01",
    "too many opcodes": lambda: b"K\x01" * (plain_pickle.OPCODES + 1),
    "bytes": lambda: pickle.dumps(b"abc", 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_is_more_than_plain_values_is_refused(name: str, tmp_path: Path) -> None:
    copyreg.add_extension(__name__, "Registered", 1)
    os.environ["TMPDIR"], before = str(tmp_path), os.environ.get("TMPDIR", "/tmp")
    try:
        data = HOSTILE[name]()
        with pytest.raises(ValueError, match="pickle"):
            plain_value(data)
    finally:
        copyreg.remove_extension(__name__, "Registered", 1)
        os.environ["TMPDIR"] = before
    assert not (tmp_path / "ran").exists()


def recorded(dump: Any) -> Any:
    """What is read of a dump 30 s after its collectives were created."""
    return dump_record(plain_value(pickle.dumps(dump, 2)), MADE_S + 30, MADE_S - 9)


def test_values_that_contain_one_another_are_never_unfolded() -> None:
    nested: Any = [1]
    for _ in range(60):
        nested = [nested, nested]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for sizes in (nested, cyclic, "x", [[2**70, "y"]]):
        odd = entry(1, "started", input_sizes=sizes, profiling_name=nested, record_id=nested)
        config = {"0": nested}
        dump = {"version": "2.4", "entries": [odd], "pg_config": config}
        (group,) = recorded(dump)["groups"]
        assert group["members"] is None and len(group["sizes"]) < 101 and group["collective"] == "?"


def slow_groups() -> bytes:
    """Process groups that share one long list of members."""
    ranks = "[{}]".format(", ".join(map(str, range(90000))))
    groups = {str(number): {"ranks": ranks} for number in range(2000)}
    entries = [entry(1, "started", process_group=(name, "x")) for name in groups]
    return pickle.dumps({"version": "2.4", "pg_config": groups, "entries": entries}, 2)


def slow_keys() -> bytes:
    """Keys of a dict that all have the hash 0."""
    return pickle.dumps({number * (2**61 - 1): 0 for number in range(20000)}, 2)


@pytest.mark.parametrize("dump", [slow_groups, slow_keys])
def test_dumps_are_no_longer_read_after_one_that_took_too_long(
    dump: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "MOST_S", 0.2)
    dumps = flight.Dumps()
    with pytest.raises(ValueError, match="reading the dumps took too long"):
        dumps.record(dump(), MADE_S + 30, MADE_S - 9, "")
    with pytest.raises(ValueError, match="reading the dumps took too long"):
        dumps.record(pickle.dumps(DUMP, 2), MADE_S + 30, MADE_S - 9, "")


def process(tmp_path: Path, environ: str) -> str:
    folder = tmp_path / "proc/7"
    (folder / "root/tmp").mkdir(parents=True)
    (folder / "environ").write_bytes(environ.replace(" ", "\0").encode())
    return f"{folder}/"


def test_the_dump_of_a_rank_in_its_container(tmp_path: Path) -> None:
    folder = process(tmp_path, "RANK=3 HOME=/root")
    (tmp_path / "proc/7/root/tmp/nccl_trace_rank_3").write_bytes(pickle.dumps(DUMP, 2))
    record = flight.Dumps().read(folder, os.geteuid(), MADE_S)
    assert record["path"] == "/tmp/nccl_trace_rank_3" and record["age_s"] < 60
    (group,) = record["groups"]
    assert group.pop("age_s") > 0.0
    assert group == {
        **{"errors": {}, "group": "0", "members": "0-1", "completed": 117, "scheduled": 119},
        **{"completed_as": "nccl:all_reduce", "collective": "nccl:all_reduce", "sequence": 118},
        **{"sizes": "1024x8, 16", "state": "started"},
    }


def without(values: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {**{name: value for name, value in values.items() if name not in names}, **more}


NEWER = ("process_group", "collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms")
FORMATS: dict[str, tuple[Any, list[Any], str | None]] = {
    # pg_config, entries, the members that are read
    "1.1": (
        None,
        [
            without(entry(0, state), *NEWER, pg_id=0, seq_id=7 + n)
            for n, state in enumerate(("completed", "started"))
        ],
        None,
    ),
    "1.2": (
        {0: [0, 1]},
        [
            without(entry(0, state), *NEWER, pg_id=0, seq_id=7 + n, record_id=n)
            for n, state in enumerate(("completed", "started"))
        ],
        "0-1",
    ),
    "2.0": (
        CONFIG,
        [
            without(entry(0, state), *NEWER[1:4], seq_id=7 + n, record_id=n)
            for n, state in enumerate(("completed", "started"))
        ],
        "0-1",
    ),
    "2.4": (
        CONFIG,
        [entry(7, "completed", record_id=0), entry(8, "started", record_id=1)],
        "0-1",
    ),
    "2.10": (
        CONFIG,
        [
            entry(7, "completed", record_id=0, thread_id="7", thread_name="main"),
            entry(8, "started", record_id=1, thread_id="7", thread_name="main"),
        ],
        "0-1",
    ),
}


@pytest.mark.parametrize("version", FORMATS)
def test_each_version_of_the_format(version: str) -> None:
    config, entries, members = FORMATS[version]
    dump = {"version": version, "entries": entries} | ({"pg_config": config} if config else {})
    record = recorded(dump)
    assert record["version"] == version
    assert (record["whole"], record["held_s"]) == (version != "1.1", 30.0)
    (group,) = record["groups"]
    assert (group["group"], group["members"]) == ("0", members)
    assert (group["completed"], group["sequence"], group["state"]) == (7, 8, "started")
    assert group["age_s"] == 30.0


@pytest.mark.parametrize("version", [None, "3.0", "2", "2.4.1", "2.\u0663", 2.4, ["2.4"]])
def test_a_version_whose_fields_are_not_known_is_refused(version: Any) -> None:
    with pytest.raises(ValueError, match="and not 1 or 2"):
        recorded({**DUMP, "version": version})


def test_a_part_of_a_coalesced_collective_is_done_when_the_whole_is() -> None:
    parts = [entry(117, "scheduled", profiling_name="nccl:all_gather") for _ in range(2)]
    entries = [*parts, entry(117, "completed", profiling_name="nccl:coalesced")]
    (group,) = recorded({**DUMP, "entries": entries})["groups"]
    assert (group["state"], group["sequence"], group["completed"]) == ("completed", 117, 117)
    assert group["collective"] == group["completed_as"] == "nccl:all_gather"
    waits = [*parts, entry(117, "started", profiling_name="nccl:coalesced")]
    (group,) = recorded({**DUMP, "entries": waits})["groups"]
    assert (group["state"], group["completed"]) == ("started", None)


def test_old_numbers_that_count_sends_are_not_compared() -> None:
    old = [without(each, "collective_seq_id", "is_p2p") for each in (entry(0, "completed"),) * 2]
    sends = {**old[0], "seq_id": 3, "profiling_name": "nccl:send 0->1"}
    (group,) = recorded({**DUMP, "entries": [sends, {**old[1], "seq_id": 4}]})["groups"]
    assert (group["sequence"], group["members"]) == (4, None)


def test_waiting_groups_are_kept_if_there_are_too_many_groups() -> None:
    names = [f"{number:03}" for number in range(GROUPS + 9)]
    entries = [entry(1, "completed", process_group=(name, "")) for name in names[:-1]]
    entries.append(entry(1, "started", process_group=(names[-1], ""), record_id=0))
    record = recorded({**DUMP, "entries": entries})
    assert len(record["groups"]) == GROUPS and record["groups"][0]["group"] == names[-1]
    assert record["whole"] is False and record["held_s"] is None


@pytest.mark.parametrize(
    ("ranks", "members"),
    [
        ("[0, 1, 2, 8]", "0-2,8"),
        ([3, 1], "1,3"),
        ("[]", None),
        ("[0, 100000]", None),
        ("[" + "9" * 5000 + "]", None),
        ("[0, -1]", None),
        ("__import__('os')", None),
        ([True, 1], None),
        ([[0]], None),
        (None, None),
    ],
)
def test_the_ranks_of_a_group(ranks: Any, members: str | None) -> None:
    config = {"0": {"name": "0", "desc": "", "ranks": ranks}}
    assert recorded({**DUMP, "pg_config": config})["groups"][0]["members"] == members


def test_real_dumps_of_gloo_whose_entries_never_say_that_they_are_completed() -> None:
    """PyTorch 2.13.0+cpu, three ranks: all but rank 1 wait in a fourth all_reduce; ranks 0 and 2
    have a group of their own."""
    dumps = []
    for rank in range(3):
        value = plain_value((GLOO / f"rank_{rank}").read_bytes())
        made = value["entries"][-1]["time_created_ns"] / 1e9
        dumps.append(dump_record(value, made + 60, made - 60, "3"))
    assert [dump["version"] for dump in dumps] == ["2.10"] * 3
    default = [dump["groups"][0] for dump in dumps]
    assert [group["members"] for group in default] == ["0-2"] * 3
    assert [(group["completed"], group["sequence"], group["state"]) for group in default] == [
        *((3, 4, "scheduled"), (3, 3, "completed"), (3, 4, "scheduled")),
    ]
    pair = dumps[0]["groups"][1]
    assert (pair["group"], pair["members"], pair["state"]) == ("1", None, "completed")


def test_a_dump_with_collectives_of_an_earlier_process_is_refused() -> None:
    with pytest.raises(ValueError, match="before the process began"):
        dump_record(plain_value(pickle.dumps(DUMP, 2)), MADE_S + 999, MADE_S + 300)


@pytest.mark.parametrize("name", flight.VARIABLES[:2])
def test_the_path_of_the_jobs_environment(name: str, tmp_path: Path) -> None:
    folder = process(tmp_path, f"RANK=0 {name}=/tmp/own/dump_")
    (tmp_path / "proc/7/root/tmp/own").mkdir()
    (tmp_path / "proc/7/root/tmp/own/dump_0").write_bytes(pickle.dumps(DUMP, 2))
    assert flight.Dumps().read(folder, os.geteuid(), MADE_S)["path"] == "/tmp/own/dump_0"


@pytest.mark.parametrize(
    ("environ", "uid", "began", "why"),
    [
        ("RANK=3", os.geteuid() + 1, 0.0, "belongs to another user"),
        ("RANK=3", os.geteuid(), LATER, "older than the process"),
        ("RANK=4", os.geteuid(), 0.0, "it has written no dump"),
        ("HOME=/root", os.geteuid(), 0.0, "no RANK"),
        ("RANK=../3", os.geteuid(), 0.0, "it has written no dump"),
    ],
)
def test_a_dump_that_is_missing_old_or_of_another_user_is_refused(
    environ: str, uid: int, began: float, why: str, tmp_path: Path
) -> None:
    folder = process(tmp_path, environ)
    (tmp_path / "proc/7/root/tmp/nccl_trace_rank_3").write_bytes(pickle.dumps(DUMP, 2))
    with pytest.raises(ValueError, match=why):
        flight.Dumps().read(folder, uid, began)


def test_a_link_out_of_the_container_and_a_pipe_are_not_followed(tmp_path: Path) -> None:
    folder = process(tmp_path, "RANK=3")
    outside = tmp_path / "outside"
    outside.write_bytes(pickle.dumps(DUMP, 2))
    inside = tmp_path / "proc/7/root/tmp/nccl_trace_rank_3"
    inside.symlink_to(outside)
    with pytest.raises(ValueError, match="no dump"):
        flight.Dumps().read(folder, os.geteuid(), 0.0)
    inside.unlink()
    os.mkfifo(inside)
    with pytest.raises(ValueError, match="not a regular file"):
        flight.Dumps().read(folder, os.geteuid(), 0.0)
