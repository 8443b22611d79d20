"""Parts that moved between two runs, are new, or gone."""

from nodevet.past.moves import PartMove, Places, part_moves
from nodevet.store.records.model import Part, PartKind

GPUS = frozenset({PartKind.GPU})


def at(**hosts: dict[str, str] | None) -> Places:
    """Where GPUs are: id -> slot, by host; of None no GPU could be read."""
    found = Places()
    for host, held in hosts.items():
        listed = [(Part(kind=PartKind.GPU, id=name), slot) for name, slot in (held or {}).items()]
        found.add(host, listed, frozenset() if held is None else GPUS)
    return found


def told(before: Places, after: Places) -> list[str]:
    def place(host: str, slot: str) -> str:
        return f"{host}:{slot}" if host else "-"

    def words(each: PartMove) -> str:
        before, after = (each.host_before, each.slot_before), (each.host_after, each.slot_after)
        return f"{each.id} {place(*before)} {place(*after)}"

    return [words(each) for each in part_moves(before, after)]


def test_moved_parts_come_first_then_new_ones_then_gone_ones() -> None:
    before = at(a={"1": "x", "2": "y"}, b={"3": "x", "4": "y"})
    after = at(a={"3": "x", "2": "y"}, b={"1": "x", "5": "y"})
    assert told(before, after) == ["1 a:x b:x", "3 b:x a:x", "5 - b:y", "4 b:y -"]
    assert told(before, before) == []
    assert told(at(a={"1": "x"}), at(a={"1": "y"})) == ["1 a:x a:y"]


def test_parts_of_an_unread_host_are_neither_new_nor_gone() -> None:
    assert told(at(a={"1": "x"}), at(a=None)) == []
    assert told(at(a=None), at(a={"1": "x"})) == []
    assert told(at(a={"1": "x"}), at()) == []
    assert told(at(), at(a={"1": "x"})) == []
    assert told(at(a={"1": "x"}), at(b={"1": "x"})) == ["1 a:x b:x"]


def test_an_id_that_two_hosts_share_is_not_followed() -> None:
    before = at(a={"1": "x"}, b={"1": "x"})
    assert told(before, at(a={}, b={"1": "x"})) == []
    assert told(at(a={"1": "x"}), before) == []
