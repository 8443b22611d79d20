"""Parts are followed from host to host; counters are kept where they move; fields are asked for."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from recorded import document, ended, record, report, run, unreachable
from sqlalchemy import select

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence
from nodevet.evidence.document import open_evidence as document_of
from nodevet.past.run_diff import RunDiff
from nodevet.past.trend import FieldTrend
from nodevet.past.use.recall import find_diff
from nodevet.past.use.story import find_host, find_passport
from nodevet.past.use.trend import find_trend
from nodevet.store import Store, parts
from nodevet.store import schema as t


def node(*uuids: str, ecc: int = 0, replays: int = 0, celsius: int = 40) -> bytes:
    gpus: list[dict[str, Any]] = [
        {
            "index": number,
            "uuid": uuid,
            "name": "NVIDIA H100",
            "serial": f"165{uuid[-1]}",
            "bus_id": f"0000:{number:02x}:00.0",
            "ecc": {"aggregate_uncorrected": ecc},
            "pcie_replay_counter": replays,
            "temperature_gpu_c": celsius,
        }
        for number, uuid in enumerate(uuids)
    ]
    controllers = [{"name": "nvme0", "model": "PM1743", "serial": "S1", "address": "0000:1b:00.0"}]
    port = {"number": 1, "counters": [{"name": "link_downed", "value": replays}]}
    devices = [{"name": "mlx5_0", "node_guid": "a088:c203:00aa:bbcc", "ports": [port]}]
    return document(
        gpu={"gpus": gpus}, nvme={"controllers": controllers}, infiniband={"devices": devices}
    )


def test_a_gpu_is_followed_from_host_to_host(store: Store):
    record(store, 0, report("gpu001"), evidence=node("GPU-a", "GPU-b"))
    record(store, 1, report("gpu001", night=1), evidence=node("GPU-a", "GPU-b"))
    record(store, 2, report("gpu001", night=2), evidence=node("GPU-a"))
    record(store, 3, report("gpu002", night=3, machine_id="2", boot_id="2"), evidence=node("GPU-b"))
    (part,) = store.parts("GPU-b")
    assert store.parts("165b") == [part] and part.model == "NVIDIA H100"
    was, now = store.places(part="GPU-b")
    assert (was.host, was.slot, was.open) == ("gpu001", "0000:01:00.0", False)
    assert (was.first.run[:8], was.last.run[:8]) == ("20261101", "20261102")
    assert (now.host, now.slot, now.open) == ("gpu002", "0000:00:00.0", True)
    assert {place.part.id for place in store.places(host="gpu001") if place.open} == {
        "GPU-a",
        "PM1743 S1",
        "a088:c203:00aa:bbcc",
    }


def test_a_part_is_found_by_its_names_and_by_the_beginning_of_its_id(store: Store):
    record(store, 0, report(), evidence=node("GPU-aab", "GPU-aac", "GPU-AB%"))
    record(store, 1, report("gpu002", machine_id="2", boot_id="2"), evidence=node("gpu-\u00c9"))

    def ids(text: str) -> list[str]:
        return [part.id for part in store.parts(text)]

    assert ids("gpu-aab") == ids("GPU-AAB") == ids("165B") == ["GPU-aab"]
    assert ids("gpu-aa") == ["GPU-aab", "GPU-aac"]
    assert ids("GPU-\u00e9") == ["gpu-\u00c9"]
    assert ids("GPU-ab%") == ["GPU-AB%"] and ids("GPU-%") == ids("GPU_") == ids("165") == []
    assert ids("pm1743") == ["PM1743 S1"]
    assert len(ids("")) == 6 and ids("gpu") == [part for part in ids("") if part[:3] in "GPUgpu"]


def test_a_renamed_part_is_found_only_by_its_new_name(store: Store):
    said = node("GPU-a")
    record(store, 0, report(), evidence=said)
    other = said.replace(b'"165a"', b'"166a"').replace(b"0000:00:00.0", b"0000:01:00.0")
    record(store, 1, report(night=1), evidence=other)
    assert store.parts("165a") == []
    assert [part.names for part in store.parts("166A")] == [("166a",)]


@pytest.mark.parametrize(
    "query",
    [
        parts.parts_starting_with("gpu-5f1c"),
        parts.parts_named("gpu-5f1c"),
        select(t.place.c.id).where(t.place.c.part.in_(parts.ids_of("GPU-5f1c"))),
        parts.points(part="GPU-5f1c").order_by(t.counter.c.id).limit(1),
    ],
    ids=["beginning", "name", "places", "points"],
)
def test_no_table_of_parts_is_read_as_a_whole(store: Store, query: Any):
    record(store, 0, report(), evidence=node("GPU-a", "GPU-b"))
    is_sqlite = store._database.engine.dialect.name == "sqlite"
    explain = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN "
    with store._database.reading() as connection:
        if not is_sqlite:  # it reads small tables as a whole if it may
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        literal = query.compile(connection, compile_kwargs={"literal_binds": True})
        rows = connection.exec_driver_sql(explain + str(literal).replace("%", "%%"))
        lines = [str(row[-1]) for row in rows]
    found = "\n".join(lines)
    assert not [line for line in lines if re.match(r"SCAN|.*Seq Scan", line)], found
    assert "name" in found, found


def test_a_part_stays_in_its_place_if_its_section_was_not_read(store: Store):
    record(store, 0, report(), evidence=node("GPU-a"))
    record(store, 1, report(night=1), evidence=document(nvme={}))
    assert all(place.open for place in store.places())


def test_a_counter_has_a_point_for_every_change(store: Store):
    for night, (ecc, replays) in enumerate([(0, 0), (2, 0), (2, 7), (2, 7), (0, 2**64 - 1)]):
        said = node("GPU-a", ecc=ecc, replays=replays, celsius=40 + night)
        record(store, night, report(night=night), evidence=said)
    found = [
        (point.part, point.name, point.subject, point.value, point.moment.run[6:8])
        for point in store.points(host="gpu001")
    ]
    nic, most = "a088:c203:00aa:bbcc", 2**64 - 1
    assert sorted(found, key=lambda each: each[4]) == [
        ("GPU-a", "gpu.ecc_aggregate_uncorrected", "", 2, "02"),
        (nic, "infiniband.link_downed", "port 1", 7, "03"),
        ("GPU-a", "gpu.pcie_replay_counter", "", 7, "03"),
        (nic, "infiniband.link_downed", "port 1", most, "05"),
        ("GPU-a", "gpu.ecc_aggregate_uncorrected", "", 0, "05"),
        ("GPU-a", "gpu.pcie_replay_counter", "", most, "05"),
    ]
    of_gpu = [point.name for point in store.points(part="GPU-a")]
    assert of_gpu.count("gpu.pcie_replay_counter") == 2


@pytest.mark.parametrize("between", ["not as a probe sends it", "not judged"])
def test_an_unread_state_is_not_compared(store: Store, between: str):
    first, second = node("GPU-a", ecc=1, replays=1), node("GPU-b", ecc=2, replays=2)
    record(store, 0, report(), evidence=first)
    if between == "not judged":
        record(store, 1, unreachable(night=1), evidence=second)
        record(store, 2, report(night=2), evidence=second)
    else:
        record(store, 1, report(night=1), evidence=second[:-1] + b',"more":1}')
        record(store, 2, report(night=2), evidence=first)
    gpu = "GPU-a" if between != "not judged" else "GPU-b"
    here = {place.part.id for place in store.places(host="gpu001") if place.open}
    assert here == {gpu, "PM1743 S1", "a088:c203:00aa:bbcc"}
    value = 2 if between == "not judged" else 1
    last = {(point.name, point.part): point.value for point in store.points(host="gpu001")}
    assert last["infiniband.link_downed", "a088:c203:00aa:bbcc"] == value
    assert last["gpu.ecc_aggregate_uncorrected", gpu] == value


def test_a_second_try_leaves_no_part_or_point_twice(store: Store):
    begun = run(0)
    recorder = store.begin(begun)
    for _ in range(2):
        recorder.take(report(), node("GPU-a", ecc=3))
    recorder.take(unreachable(), None)
    recorder.take(report(), node("GPU-a", ecc=3))
    recorder.finish(ended(begun))
    assert recorder.broken is None
    assert len(store.places()) == 3
    assert [point.value for point in store.points()] == [3]


def test_a_field_is_reported_visit_by_visit(store: Store):
    for night in range(2):
        said = node("GPU-a", "GPU-b", celsius=40 + night)
        record(store, night, report(night=night), evidence=said)
    field = "gpu.gpus[].temperature_gpu_c"
    told = find_trend(store, field, Catalog(), host="gpu001", name=None, most=5)
    assert isinstance(told, FieldTrend)
    assert [(each.name, each.values) for each in told.series] == [
        ("GPU-a", (40, 41)),
        ("GPU-b", (40, 41)),
    ]


def test_an_incident_is_kept(store: Store):
    store.record_incident({"gpu001": "the loader"}, b"bundle", "2026-11-02T10:00:00+00:00")
    (found,) = store.incidents("gpu001")
    assert found.cause == "the loader" and store.bundle(found) == b"bundle"


def two_nights(store: Store, nights: Sequence[Mapping[str, bytes]]) -> RunDiff:
    """The differences of two nights, by what each host says."""
    for number, night in enumerate(nights):
        begun = run(number, len(night))
        recorder = store.begin(begun)
        for place, (host, said) in enumerate(night.items()):
            known = {"machine_id": str(place), "boot_id": str(place)}
            recorder.take(report(host, night=number, **known), said)
        recorder.finish(ended(begun, hosts=len(night)))
    return find_diff(store, run(0).id, run(1).id).diff


def test_a_diff_opens_no_evidence_in_which_only_readings_differ(store: Store, monkeypatch):
    opened_texts: list[bytes] = []

    def opened(text: bytes) -> Evidence:
        opened_texts.append(text)
        return document_of(text)

    monkeypatch.setattr("nodevet.past.use.recall.open_evidence", opened)
    before = {"gpu001": node("GPU-a"), "gpu002": node("GPU-b"), "gpu003": node("GPU-c")}
    after = {"gpu001": node("GPU-a", celsius=50), "gpu002": node("GPU-d"), "gpu003": node("GPU-c")}
    found = two_nights(store, [before, after])
    moved = {(move.id, move.host_before, move.host_after) for move in found.parts}
    assert moved == {("GPU-b", "gpu002", ""), ("GPU-d", "", "gpu002")}
    assert opened_texts and not [text for text in opened_texts if b"GPU-a" in text]
    assert not [text for text in opened_texts if b"GPU-c" in text]


def test_a_part_that_another_host_still_has_did_not_move(store: Store):
    before = {"gpu001": node("GPU-a"), "gpu002": node("GPU-b")}
    after = {"gpu001": node("GPU-a"), "gpu002": node("GPU-a")}
    assert [move.id for move in two_nights(store, [before, after]).parts] == ["GPU-b"]


def numbered(serial: str, *media: int) -> bytes:
    """Drives that all say this serial number, and what each has counted."""
    return document(
        nvme={
            "controllers": [
                {
                    "name": f"nvme{number}",
                    "model": "PM1743",
                    "serial": serial,
                    "address": f"0000:{number:02x}:00.0",
                    "health": {"media_errors": errors},
                }
                for number, errors in enumerate(media)
            ]
        }
    )


@pytest.mark.parametrize("serial", ["0000000000", "N/A", "To Be Filled By O.E.M.", " "])
def test_drives_without_a_serial_number_are_not_parts_but_have_counters(store: Store, serial: str):
    record(store, 0, report("gpu001"), evidence=numbered(serial, 0, 0, 0))
    record(store, 1, report("gpu001", night=1), evidence=numbered(serial, 0, 7, 0))
    assert store.parts() == []
    assert [(each.subject, each.value) for each in store.points()] == [("nvme1", 7)]


def test_an_id_that_two_hosts_report_did_not_move_between_them(store: Store):
    def night(number: int, second: bytes) -> None:
        begun = run(number, 2)
        recorder = store.begin(begun)
        recorder.take(report("gpu001", night=number), node("GPU-a", "GPU-b"))
        other = report("gpu002", night=number, machine_id="2", boot_id="2")
        recorder.take(other, second)
        recorder.finish(ended(begun, hosts=2))

    night(0, node("GPU-c"))
    night(1, node("GPU-b"))
    night(2, node("GPU-c"))
    events = find_host(store, "gpu002").events
    moved = [each.elsewhere for each in events if each.part and each.part.id == "GPU-b"]
    assert moved == ["", ""]
    assert {stay.host for stay in find_passport(store, "GPU-b").at_once} == {"gpu001", "gpu002"}
    assert find_passport(store, "GPU-c").at_once == ()
