"""What parent and shard write, the other reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.base.printable import plain
from nodevet.fleet import Options
from nodevet.fleet.controller.shards import orders
from nodevet.fleet.protocol.exchange import request
from nodevet.fleet.protocol.framing import (
    ActResult,
    FrameError,
    FrameReader,
    SessionAnswer,
    SessionRequest,
    VisitOutcome,
    read_answer,
    read_frame,
    read_order,
    read_outcome,
    read_request,
    write_answer,
    write_frame,
    write_order,
    write_outcome,
    write_request,
)
from nodevet.model import Host

outcomes = st.builds(
    VisitOutcome,
    status=st.sampled_from(["vetted", "timeout"]),
    why=st.text(max_size=30).map(plain),
    evidence=st.binary(max_size=200),
    seconds=st.integers(0, 60).map(float),
)


@given(st.lists(outcomes, max_size=5), st.integers(1, 97), st.sampled_from([b"", b"\n", b"\n\n"]))
def test_outcomes_are_read_whatever_the_chunk_size_and_blank_lines(
    sent: list[VisitOutcome], size: int, between: bytes
) -> None:
    text = between.join(write_outcome(n, outcome) for n, outcome in enumerate(sent)) + between
    reader = FrameReader(200)
    came = [
        read_outcome(frame)
        for start in range(0, len(text), size)
        for frame in reader.take(text[start : start + size])
    ]
    assert came == list(enumerate(sent))


ARGUMENTS = st.dictionaries(st.sampled_from(["ask", "who"]), st.text(max_size=9) | st.none())


@given(st.text(max_size=9), st.booleans(), ARGUMENTS, st.binary(max_size=99))
def test_a_request_and_its_answer_survive_a_round_trip(
    text: str, fenced: bool, arguments: dict[str, str | None], body: bytes
) -> None:
    request = SessionRequest(7, text, 1.5, fenced, arguments, body)
    assert read_request(read_frame(write_request(3, request))) == (3, request)
    answer = SessionAnswer("", plain(text), ActResult(fenced, 3, text), body)
    assert read_answer(read_frame(write_answer(4, answer)), {4: "act"}) == (4, answer)


def test_a_body_is_written_unchanged() -> None:
    body = bytes(range(256)) * 9
    assert write_frame({"id": 1}, body).endswith(b"}\n" + body)


@pytest.mark.parametrize(
    "text",
    [
        b" \n",
        b"[]\n",
        b"[" * 60_000 + b"\n",
        b"{}\n",
        b"null\n",
        b'{"bytes": "x"}\n',
        b'{"bytes": true}\n',
        b'{"bytes": -1}\n',
        b'{"bytes": 100}\n',
        b"\xff\n",
    ],
)
def test_bytes_that_are_not_a_frame_are_an_error(text: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader(99).take(text))


def test_a_head_without_an_end_is_an_error() -> None:
    reader = FrameReader(99, 1000)
    assert not list(reader.take(b"x" * 999))
    with pytest.raises(FrameError, match="head of more than"):
        list(reader.take(b"xx"))


@pytest.mark.parametrize("text", [b"", write_frame({})[:-1], write_frame({}) * 2])
def test_an_invalid_frame_is_refused(text: bytes) -> None:
    with pytest.raises(FrameError, match="must be one"):
        read_frame(text)


@pytest.mark.parametrize(
    ("hosts", "cpus", "options", "sizes"),
    [
        (1, 8, {}, [1]),
        (100, 8, {}, [100]),
        (101, 8, {}, [51, 50]),
        (1000, 2, {}, [500, 500]),
        (1001, 2, {}, [501, 500]),
        (5001, 1, {}, [2501, 2500]),
        (1000, 8, {"parallel": 3}, [334, 333, 333]),
        (4, 8, {"shards": 3}, [2, 1, 1]),
        (2, 8, {"shards": 3}, [1, 1]),
    ],
)
def test_every_host_is_in_one_shard(
    hosts: int, cpus: int, options: dict[str, int], sizes: list[int]
) -> None:
    names = [f"gpu{n}" for n in range(hosts)]
    made = orders([Host(name=name) for name in names], Options(**options), cpus)
    assert [len(order.targets) for order in made] == sizes
    assert sorted(target.name for order in made for target in order.targets) == sorted(names)
    assert sum(order.parallel for order in made) == max(Options(**options).parallel, len(made))
    assert read_order(read_frame(write_order(made[0]))) == made[0]


def test_the_whole_machine_setting_reaches_the_shard_and_the_probe() -> None:
    hosts = [Host(name="gpu1", whole_machine=True), Host(name="gpu2")]
    (order,) = orders(hosts, Options(), 8)
    read = read_order(read_frame(write_order(order)))
    assert [target.whole_machine for target in read.targets] == [True, False]
    asked = request(nonce="n", root="/", whole_machine=True, deadline=9, asked_s=None)
    assert json.loads(asked)["whole_machine"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": 0},
        {"deadline": -1},
        {"deadline": 10, "probe_deadline": 10},
        {"probe_deadline": 0},
        {"host_keys": "no"},
        {"shards": 0},
        {"max_output": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r" is .*; it must be "):
        Options(**options)
