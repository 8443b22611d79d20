"""Parts are followed from host to host; counters are kept where they move; fields are asked for."""

from typing import Any

import pytest
from recorded import document, ended, record, report, run, unreachable

from nodevet.checking.catalog import Catalog
from nodevet.past.trend import FieldTrend
from nodevet.past.use.story import find_host, find_passport
from nodevet.past.use.trend import find_trend
from nodevet.store import Store


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


def test_a_section_that_was_not_read_ends_no_place(store: Store):
    record(store, 0, report(), evidence=node("GPU-a"))
    record(store, 1, report(night=1), evidence=document(nvme={}))
    assert all(place.open for place in store.places())


def test_a_counter_has_points_where_it_moved(store: Store):
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
def test_what_was_not_looked_at_is_nothing_to_compare_with(store: Store, between: str):
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


def test_a_field_is_told_visit_by_visit(store: Store):
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
def test_drives_without_a_serial_number_are_no_part_and_each_is_counted(store: Store, serial: str):
    record(store, 0, report("gpu001"), evidence=numbered(serial, 0, 0, 0))
    record(store, 1, report("gpu001", night=1), evidence=numbered(serial, 0, 7, 0))
    assert store.parts() == []
    assert [(each.subject, each.value) for each in store.points()] == [("nvme1", 7)]


def test_an_id_that_two_hosts_have_came_from_neither(store: Store):
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
