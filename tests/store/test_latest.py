"""All hosts and parts as they are now, and a mark that changes with what is recorded of a host."""

from typing import Any

from recorded import document, record, report, run, unreachable

from nodevet.model import HostOutcome
from nodevet.store import Store


def node(*uuids: str, ecc: int = 0) -> bytes:
    gpus: list[dict[str, Any]] = [
        {
            "index": number,
            "uuid": uuid,
            "name": "NVIDIA H100",
            "serial": f"165{uuid[-1]}",
            "bus_id": f"0000:{number:02x}:00.0",
            "ecc": {"aggregate_uncorrected": ecc},
        }
        for number, uuid in enumerate(uuids)
    ]
    return document(gpu={"gpus": gpus})


def mark(store: Store, host: str = "gpu001") -> str:
    return next(now.mark for now in store.hosts_now() if now.host == host)


def test_a_mark_changes_only_with_what_is_recorded(store: Store) -> None:
    marks = []
    other = {"machine_id": "2", "boot_id": "2"}
    for night, (evidence, reported) in enumerate(
        (
            (node("GPU-a"), report()),
            (node("GPU-a"), report(night=1, findings={"governor": "fail"})),
            (node("GPU-a"), report(night=2)),
            (node("GPU-a"), report(night=3, boot_id="b1")),
            (node("GPU-b"), report(night=4, boot_id="b1")),
            (b"", unreachable()),
        )
    ):
        record(store, night, reported, evidence=evidence)
        marks.append(mark(store))
    assert len(set(marks)) == len(marks)
    record(store, 6, report("gpu002", night=6, **other), evidence=node("GPU-a"))
    assert mark(store) != marks[-1]  # its story says where GPU-a went
    (first, second) = (mark(store), mark(store, "gpu002"))
    record(store, 7, report("gpu002", night=7, **other), evidence=node("GPU-a"))
    assert (mark(store), mark(store, "gpu002")) == (first, second)


def test_the_last_visit_and_the_last_place(store: Store) -> None:
    record(store, 0, report(), evidence=node("GPU-a", ecc=1))
    record(store, 1, unreachable(), report("gpu002", night=1, machine_id="2", boot_id="2"))
    one, two = store.hosts_now()
    assert (one.host, one.run, one.outcome) == ("gpu001", run(1).id, HostOutcome.UNREACHABLE)
    assert (one.why, two.at, two.groups) == (
        "connection refused",
        "2026-11-02T04:00:30+00:00",
        ("rack1",),
    )
    nights = store.outcomes([run(0).id, run(1).id])
    assert nights["gpu001"] == {run(0).id: HostOutcome.OK, run(1).id: HostOutcome.UNREACHABLE}
    assert list(nights["gpu002"]) == [run(1).id]
    assert [(part.name, part.id, part.host) for part in store.parts_now()] == [
        ("165a", "GPU-a", "gpu001"),
        ("gpu-a", "GPU-a", "gpu001"),
    ]
    counted = store.last_counter_changes(["GPU-a", "GPU-z"])
    assert list(counted) == ["GPU-a"]
    record(store, 2, report(night=2), evidence=node("GPU-a", ecc=2))
    assert store.last_counter_changes(["GPU-a"])["GPU-a"] > counted["GPU-a"]
    record(store, 3, report("gpu002", night=3, machine_id="2", boot_id="2"), evidence=node("GPU-a"))
    assert {part.host for part in store.parts_now()} == {"gpu002"}
