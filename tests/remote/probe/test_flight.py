"""Dumps of the flight recorder: read without running anything, and only the job's own."""

import copyreg
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import flight, plain_pickle
from nodevet.remote.probe.plain_pickle import plain_value

LATER = 1e11  # a time after every test


def entry(sequence: int, state: str, **rest: Any) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[1024, 8], [16]],
        "time_created_ns": 1_764_000_000_000_000_000,
        "time_discovered_started_ns": None,
        "timeout_ms": 600000,
        "state": state,
        "retired": False,
        "duration_ms": 0.5,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **rest,
    }


DUMP = {
    "version": "2.4",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
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


def test_values_that_contain_one_another_are_never_unfolded() -> None:
    nested: Any = [1]
    for _ in range(60):
        nested = [nested, nested]
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for sizes in (nested, cyclic, "x", [[2**70, "y"]]):
        odd = {"entries": [entry(1, "started", input_sizes=sizes, profiling_name=nested)]}
        (group,) = flight.groups(plain_value(pickle.dumps(odd, 2)))
        assert len(group["sizes"]) < 101 and group["collective"] == "?"


def process(tmp_path: Path, environ: str) -> str:
    folder = tmp_path / "proc/7"
    (folder / "root/tmp").mkdir(parents=True)
    (folder / "environ").write_bytes(environ.replace(" ", "\0").encode())
    return f"{folder}/"


def test_the_dump_of_a_rank_in_its_container(tmp_path: Path) -> None:
    folder = process(tmp_path, "RANK=3 HOME=/root")
    (tmp_path / "proc/7/root/tmp/nccl_trace_rank_3").write_bytes(pickle.dumps(DUMP, 2))
    record = flight.Dumps().read(folder, os.geteuid(), time.time() - 60)
    assert record["path"] == "/tmp/nccl_trace_rank_3" and record["age_s"] < 60
    (group,) = record["groups"]
    assert group == {
        **{"errors": {}, "group": "0", "completed": 117, "scheduled": 119, "sequence": 118},
        **{"collective": "nccl:all_reduce", "sizes": "1024x8, 16", "state": "started"},
    }


@pytest.mark.parametrize("name", flight.VARIABLES[:2])
def test_the_path_of_the_jobs_environment(name: str, tmp_path: Path) -> None:
    folder = process(tmp_path, f"RANK=0 {name}=/tmp/own/dump_")
    (tmp_path / "proc/7/root/tmp/own").mkdir()
    (tmp_path / "proc/7/root/tmp/own/dump_0").write_bytes(pickle.dumps(DUMP, 2))
    assert flight.Dumps().read(folder, os.geteuid(), 0.0)["path"] == "/tmp/own/dump_0"


@pytest.mark.parametrize(
    ("environ", "uid", "began", "why"),
    [
        ("RANK=3", os.geteuid() + 1, 0.0, "belongs to another user"),
        ("RANK=3", os.geteuid(), LATER, "older than the process"),
        ("RANK=4", os.geteuid(), 0.0, "no dump"),
        ("HOME=/root", os.geteuid(), 0.0, "no RANK"),
        ("RANK=../3", os.geteuid(), 0.0, "no dump"),
    ],
)
def test_a_dump_that_is_not_believed(
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
