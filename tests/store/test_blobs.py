"""Compressed pieces: those of earlier stores unpack, and a damaged one is refused."""

import pytest

from nodevet.store import StoreError
from nodevet.store.blobs import pack, unpack

BASE = b'{"gpu": {"count": 8, "power": [700, 700, 700, 700]}}'
NEXT = BASE.replace(b"8", b"7") + b"\n"
EARLIER = bytes.fromhex("28b52ffd243555000010370a02006094eb29200d667e55")
"""NEXT as nodevet 0.2.0 first packed it, with BASE as dictionary, by the library zstandard."""


def test_data_that_another_library_compressed_decompresses() -> None:
    assert unpack(EARLIER, len(NEXT), BASE) == NEXT


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1000])
def test_a_dictionary_of_any_length_packs_and_unpacks(size: int) -> None:
    base = (BASE * 20)[:size]
    assert unpack(pack(NEXT, base), len(NEXT), base) == NEXT
    assert unpack(pack(base, NEXT), size, NEXT) == base


def test_a_similar_piece_takes_less_room_with_its_dictionary() -> None:
    assert len(pack(NEXT, BASE)) < len(pack(NEXT)) / 2


@pytest.mark.parametrize("size", [-2, 0, len(NEXT) - 1, len(NEXT) + 1])
def test_data_of_another_length_than_recorded_is_reported_as_damaged(size: int) -> None:
    with pytest.raises(StoreError, match="another length than recorded"):
        unpack(pack(NEXT), size)


def test_truncated_data_is_reported_as_damaged() -> None:
    with pytest.raises(StoreError, match="another length than recorded"):
        unpack(pack(NEXT)[:-1], len(NEXT))


def test_data_with_the_wrong_dictionary_is_reported_as_damaged() -> None:
    with pytest.raises(StoreError, match="does not unpack"):
        unpack(pack(NEXT, BASE), len(NEXT), bytes(len(BASE)))
