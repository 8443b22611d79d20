"""When a NIC's link was down, by the lines of its driver: whole lines only, and few are kept."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.kernel_events import Events
from nodevet.remote.probe.kernel_links import MOST, OUTAGES, LoggedLinks

MLX5, BNXT = "0000:17:00.0", "0000:c1:00.0"
BOOT = (0.0, "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP")
TAKEN = f"mlx5_core {MLX5}: firmware version: 28.43.1014"
DOWN, UP = (f"mlx5_core {MLX5} ens1f0np0: Link {what}" for what in ("down", "up"))

Line = tuple[float, str]


def log_of(*lines: Line, first: int = 0) -> kernel_log.Log:
    """A log of these lines, the first of which is the kernel's of that number."""
    log = kernel_log.Log("kmsg", Events())
    for number, (seconds, text) in enumerate(lines, first):
        log.take_row(f"4,{number},{round(seconds * 1e6)},-;{text}".encode())
    return log


def links(*lines: Line, first: int = 0) -> Any:
    return kernel_log.section_of(log_of(*lines, first=first), now=1e5)["links"]


def outages(*lines: Line, first: int = 0) -> list[tuple[float | None, float]]:
    (link,) = links(*lines, first=first)
    return [(each["down_s"], each["up_s"]) for each in link["outages"]]


LINES = [
    (DOWN, "down", MLX5),
    (UP, "up", MLX5),
    ("mlx5_core cf63:00:02.0 enP53091s1np0: Link up", "up", "cf63:00:02.0"),
    (f"bnxt_en {BNXT} eth0: NIC Link is Down", "down", BNXT),
    (f"bnxt_en {BNXT} eth0: NIC Link is Down (Remote fault)", "down", BNXT),
    (f"bnxt_en {BNXT} eth0: NIC Link is Up, speed unknown", "up", BNXT),
    (
        f"bnxt_en {BNXT} eth0: NIC Link is Up, 25000 Mbps full duplex, Flow control: none",
        "up",
        BNXT,
    ),
    (
        f"bnxt_en {BNXT} ens1f0np0: NIC Link is Up, 400000 Mbps (PAM4 112Gbps) full duplex, "
        "Flow control: ON - receive & transmit",
        "up",
        BNXT,
    ),
]
OTHERS = [
    f"x {DOWN}",
    f"{DOWN} x",
    f"{DOWN}: x",
    DOWN.replace(" ens1f0np0", ""),
    DOWN.replace("ens1f0np0", "a/b"),
    DOWN.replace("0000:17:00.0", "17:00.0"),
    DOWN.replace("mlx5_core", "mlx5_corf"),
    f"mlx5_core {MLX5}: Port module event: module 0, Cable unplugged",
    "ice 0000:17:00.0 ens1: NIC Link is Down",
    "ixgbe 0000:17:00.0 ens1: NIC Link is Down",
    "i40e 0000:17:00.0 ens1: NIC Link is Down",
    "ens1f0np0: Link down",
    "bond0: (slave ens1f0np0): link status definitely down, disabling slave",
]


@pytest.mark.parametrize(("text", "what", "address"), LINES)
def test_a_line_about_a_link(text: str, what: str, address: str) -> None:
    (link,) = links(BOOT, (1.0, text))
    assert (link["bus_id"], link["up"], link["outages"]) == (address, what == "up", [])


@pytest.mark.parametrize("text", OTHERS)
def test_no_line_about_a_link(text: str) -> None:
    assert links(BOOT, (1.0, text)) == []


def test_a_link_that_was_up_and_came_back_was_down_meanwhile() -> None:
    lines = (BOOT, (9.0, TAKEN), (12.0, DOWN), (19.0, UP), (500.0, DOWN), (595.5, UP))
    (link,) = links(*lines)
    assert link == {
        "errors": {}, "bus_id": MLX5, "interface": "ens1f0np0", "up": True, "count": 1,
        "outages": [{"errors": {}, "down_s": 500.0, "up_s": 595.5}],
    }  # fmt: skip


def test_a_link_that_trains_when_its_driver_is_loaded_was_not_lost() -> None:
    start = (9.0, TAKEN), (12.0, DOWN), (60.0, UP)
    again = (900.0, TAKEN), (901.0, DOWN), (960.0, UP)
    assert outages(BOOT, *start) == outages(BOOT, *start, *again) == []


def test_a_link_that_was_lost_before_its_driver_was_loaded_again_was_lost() -> None:
    assert outages(BOOT, (9.0, UP), (10.0, DOWN), (50.0, TAKEN), (51.0, DOWN), (99.0, UP)) == [
        (10.0, 99.0)
    ]


def test_a_link_that_says_twice_that_it_is_down_was_lost_the_first_time() -> None:
    assert outages(BOOT, (1.0, UP), (5.0, DOWN), (8.0, DOWN), (9.0, UP), (10.0, UP)) == [(5.0, 9.0)]


def test_a_link_that_is_still_down_has_no_ended_outage() -> None:
    (link,) = links(BOOT, (1.0, UP), (5.0, DOWN))
    assert (link["up"], link["outages"]) == (False, [])


def test_a_log_that_begins_later_begins_with_links_that_may_be_up() -> None:
    assert outages((900.0, DOWN), (990.0, UP), first=812) == [(900.0, 990.0)]
    assert outages((990.0, UP), first=812) == [(None, 990.0)]
    assert outages((900.0, TAKEN), (901.0, DOWN), (990.0, UP), first=812) == []
    assert outages((901.0, DOWN), (910.0, TAKEN), (990.0, UP), first=812) == [(901.0, 990.0)]


def test_lines_of_several_cpus_may_be_out_of_order() -> None:
    assert outages(BOOT, (1.0, UP), (5.0001, DOWN), (5.0, UP)) == [(5.0001, 5.0001)]


def test_a_line_without_a_time_is_reported() -> None:
    log = kernel_log.Log("kmsg", Events())
    for text in (BOOT[1], DOWN):
        log.take(None, True, text)
    found = kernel_log.section_of(log)
    assert found["links"] is None
    assert found["errors"]["links"] == "a line about a link has no time"


def test_a_link_that_flaps_often_keeps_one_outage_and_a_count() -> None:
    found = LoggedLinks()
    for at in range(0, 400_000, 4):
        found.take(float(at), UP)
        found.take(at + 1.0, DOWN)
    found.take(1e6, UP)
    (link,) = found.records(True)
    assert (link["count"], len(link["outages"])) == (100_000, 1)
    assert len(found.links_by_address[MLX5].opening) == 1


def test_more_outages_than_are_kept_are_reported() -> None:
    found, at = LoggedLinks(), 0.0
    for length in range(OUTAGES + 1, 0, -1):
        found.take(at, UP)
        found.take(at + 1, DOWN)
        at += 1 + length
    found.take(at, UP)
    (link,) = found.records(True)
    assert link["outages"] is None
    assert link["errors"]["outages"] == "there are too many that no later one outlasts"


def test_too_many_network_cards_are_an_error() -> None:
    found = LoggedLinks()
    for at in range(MOST + 1):
        found.take(1.0, UP.replace("0000:", f"{at:04x}:"))
    with pytest.raises(ValueError, match="more than 1024 NICs"):
        found.records(True)


def test_a_card_without_a_network_interface_is_omitted() -> None:
    assert links(BOOT, (9.0, TAKEN)) == []


def test_only_links_of_the_last_boot_in_a_file_are_reported(tmp_path: Path) -> None:
    rows = [(0.0, BOOT[1]), (1.0, UP), (5.0, DOWN), (900.0, UP), (0.0, BOOT[1]), (2.0, UP)]
    (tmp_path / "dev").mkdir()
    text = "".join(f"[{seconds:12.6f}] {text}\n" for seconds, text in rows)
    (tmp_path / "dev/kmsg").write_text(text)
    (link,) = kernel_log.collect(str(tmp_path.resolve()), {})["links"]
    assert (link["count"], link["outages"]) == (0, [])


Lines = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([UP, DOWN, TAKEN])), max_size=30
).map(lambda steps: [(float(sum(s for s, _ in steps[: at + 1])), text)
                     for at, (_, text) in enumerate(steps)])  # fmt: skip


@given(Lines, st.integers(0, 30), st.booleans())
@example([(1.0, TAKEN), (2.0, DOWN)], 1, False)
@example([(1.0, TAKEN), (2.0, DOWN), (3.0, TAKEN), (4.0, DOWN), (5.0, UP)], 3, False)
def test_a_log_read_in_two_parts_gives_the_same_links(
    lines: list[Line], cut: int, begins: bool
) -> None:
    """The journal has what the ring buffer has lost."""

    def read(part: list[Line]) -> LoggedLinks:
        found = LoggedLinks()
        for seconds, text in part:
            found.take(seconds, text)
        return found

    parts = read(lines[:cut]).merge(read(lines[cut:]))
    assert parts.records(begins) == read(lines).records(begins)


@given(Lines)
def test_the_longest_outage_since_any_moment_is_kept(lines: list[Line]) -> None:
    found, all_of, state, lost = LoggedLinks(), [], "", None
    for seconds, text in lines:
        found.take(seconds, text)
        if text == UP and lost is not None:
            all_of.append((lost, seconds))
        if text == DOWN and state == UP:
            lost = seconds
        if text == UP:
            lost = None
        if text != TAKEN:
            state = text
        elif lost is None:
            state = ""
    kept = found.links_by_address[MLX5].outages if MLX5 in found.links_by_address else []
    for moment in (0.0, *(up for _, up in all_of)):
        assert longest(kept, moment) == longest(all_of, moment)


def longest(of: list[tuple[float, float]], since: float) -> float:
    return max((up - down for down, up in of if up > since), default=0.0)
