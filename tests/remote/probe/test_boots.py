"""Boots and shutdowns from records of utmp(5), of both sizes that they have."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import boots

Check = Callable[..., Any]
SHORT = struct.Struct("<hxxi32s4s32s256shhiii4i20s")  # x86
LONG = struct.Struct("<hxxi32s4s32s256shhqqq4i20sxxxx")  # where times have 64 bits
RUN_LEVEL, BOOT, USER = 1, 2, 7


def record(form: struct.Struct, kind: int, user: str, seconds: int) -> bytes:
    return form.pack(
        kind, 4242, b"~", b"~~", user.encode(), b"6.8.0", 0, 0, 0, seconds, 7, 0, 0, 0, 0, b""
    )


def boot(seconds: int, form: struct.Struct = SHORT) -> bytes:
    return record(form, BOOT, "reboot", seconds)


def shutdown(seconds: int, form: struct.Struct = SHORT) -> bytes:
    return record(form, RUN_LEVEL, "shutdown", seconds)


def login(seconds: int, form: struct.Struct = SHORT) -> bytes:
    return record(form, USER, "shutdown", seconds)


@pytest.fixture
def collect(tmp_path: Path, check: Check) -> Callable[..., Any]:
    def run(**files: bytes) -> Any:
        folder = tmp_path / "var/log"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_bytes(content)
        return check("boots", boots.collect(str(tmp_path.resolve()), {}))

    return run


@pytest.mark.parametrize("form", [SHORT, LONG], ids=["384", "400"])
def test_a_boot_without_a_shutdown_before_it_is_not_clean(
    form: struct.Struct, collect: Callable[..., Any]
) -> None:
    assert form.size in (384, 400)
    found = collect(
        wtmp=boot(100, form)
        + record(form, RUN_LEVEL, "runlevel", 110)
        + login(120, form)
        + boot(200, form)
        + shutdown(290, form)
        + boot(300, form)
    )
    told = [(each.at_s, each.clean) for each in found.boots]
    assert told == [(100, None), (200, False), (300, True)]
    assert (found.since_s, found.whole) == (100, True)


def test_rotated_lines_come_first(collect: Callable[..., Any]) -> None:
    found = collect(wtmp_1=login(50) + boot(100) + shutdown(190), wtmp=boot(200))
    assert [(each.at_s, each.clean) for each in found.boots] == [(100, None), (200, True)]
    assert (found.since_s, found.whole) == (50, False)


def test_the_end_of_a_long_file_is_read(
    collect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "LIMIT", 1000)
    found = collect(wtmp_1=boot(1), wtmp=boot(100) + login(150) + boot(200) + boot(300))
    assert [(each.at_s, each.clean) for each in found.boots] == [(200, None), (300, False)]
    assert (found.since_s, found.whole) == (200, False)


def test_a_node_that_boots_all_the_time_has_its_latest_boots(
    collect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "MOST", 2)
    found = collect(wtmp=b"".join(boot(100 * at) for at in range(1, 6)))
    assert [each.at_s for each in found.boots] == [400, 500]
    assert (found.since_s, found.whole) == (400, False)


def test_a_missing_empty_or_invalid_wtmp_is_reported(
    collect: Callable[..., Any], check: Check, tmp_path: Path
) -> None:
    assert check("boots", boots.collect(str(tmp_path), {})).why("boots") == "ENOENT"
    found = collect(wtmp=b"")
    assert (found.boots, found.whole, found.why("since_s")) == ((), True, "wtmp is empty")
    assert collect(wtmp=b"\xff" * 768).why("boots") == "not records of utmp(5)"
    assert collect(wtmp=boot(100) + b"x").why("boots") == "not records of utmp(5)"


@given(st.integers(min_value=0, max_value=2**32))
def test_random_bytes_are_parsed_or_refused(seed: int) -> None:
    noise = random.Random(seed).randbytes(384 * 4)
    for data in (noise, boot(5) + noise[:384], noise[:100]):
        try:
            assert isinstance(boots.parse_boots(boots.parse_records(data, len(data))), tuple)
        except ValueError as error:
            assert "utmp" in str(error)  # noqa: PT017
