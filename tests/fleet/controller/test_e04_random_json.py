"""Random JSON in every position of what another process says: a malformed frame, or an answer."""

import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
import random_json
from hypothesis import given
from hypothesis import strategies as st

from nodevet.fleet import Options, Visit
from nodevet.fleet.controller import launched, shards
from nodevet.fleet.controller.child import Ending
from nodevet.fleet.controller.launched import LauncherRun, LauncherRuns
from nodevet.fleet.controller.shards import Shard, orders
from nodevet.fleet.launchers import Launcher, Launchers
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import (
    ActResult,
    Frame,
    FrameError,
    LauncherRefusal,
    LockHolder,
    LostHost,
    SessionAnswer,
    SessionRequest,
    VisitOutcome,
)
from nodevet.fleet.protocol.greeting import greeting, write_greeting
from nodevet.fleet.worker import pool
from nodevet.model import Host, Status

OURS = ("unreadable", "interrupted")  # no visit ends so
HOSTS = [Host(name=name) for name in ("a", "b", "c")]
VETTED = VisitOutcome("vetted", evidence=b"{}", seconds=1.0)

values = random_json.values | st.sampled_from(["\ud800", float("nan")])


@st.composite
def mangled(draw: st.DrawFn, frame: bytes) -> bytes:
    """A real frame with random JSON in one position, or without it, or with another key."""
    head, _, body = frame.partition(b"\n")
    document = json.loads(head)
    del document["bytes"]
    keys = ("lost", "beat", "refused")
    return framing.write_frame(draw(random_json.mangled(document, keys=keys, value=values)), body)


class Child:
    """A process that only says what a test has it say."""

    pid = 0

    def __init__(self, *_: object) -> None:
        pass

    def put(self, message: bytes) -> None:
        pass

    finish = stop = kill = end = lambda self: None


@pytest.fixture(scope="module", autouse=True)
def no_process() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launched, "LauncherProcess", Child)
        patch.setattr(shards, "ChildProcess", Child)
        yield


def assert_told(answered: Sequence[Visit], lost: Sequence[Visit], start: str) -> None:
    """Every host has one visit: the answer that came, or why there is none."""
    visits = [*answered, *lost]
    assert sorted(visit.host for visit in visits) == [host.name for host in HOSTS]
    for visit in visits:
        assert type(visit.status) is Status and visit.status is not Status.INTERRUPTED
        assert visit.why.isprintable()
    assert visits[0] == Visit("a", Status.VETTED, "", b"{}", 1.0)
    assert all(visit.why.startswith(start) for visit in lost)


@given(
    st.sampled_from(
        [
            framing.write_outcome(1, VETTED),
            framing.write_outcome(1, VisitOutcome("timeout", "late", seconds=2.5, again=True)),
            framing.write_notice(LostHost(1, "its shard died")),
            framing.write_notice(LauncherRefusal("no such file")),
            framing.write_notice(framing.Beat()),
        ]
    ).flatmap(mangled)
)
def test_e04_a_launcher_that_writes_random_frames_loses_only_its_own_hosts(text: bytes) -> None:
    one = Launcher("far", ("true",))
    engine = Launchers((one,))
    runs = LauncherRuns([(host, ("far",)) for host in HOSTS], Options(engine=engine), engine)
    (run,) = [each for each in runs.start() if isinstance(each, LauncherRun)]
    visits = list(run.take(write_greeting(greeting()) + framing.write_outcome(0, VETTED)))
    visits += run.take(text)
    lost = list(run.unfinished(Ending(1, b""), late=False))
    assert_told(visits, lost, "launcher far ")


@given(st.sampled_from([framing.write_outcome(1, VETTED)]).flatmap(mangled))
def test_e04_a_shard_that_writes_random_frames_loses_only_its_own_hosts(text: bytes) -> None:
    (order,) = orders(HOSTS, Options(), 1)
    shard = Shard(order, HOSTS)
    visits = list(shard.take(framing.write_outcome(0, VETTED)))
    visits += shard.take(text)
    lost = list(shard.unfinished(Ending(1, b""), late=False))
    assert_told(visits, lost, "the process that visits this host ")


ANSWERS = {
    "act": SessionAnswer(result=ActResult(True, 0, "done")),
    "lock": SessionAnswer(result="/run/nodevet.lock"),
    "reboot": SessionAnswer("locked", "held", LockHolder("root@c", "2026-01-01", "sleep")),
    "probe": SessionAnswer(body=b"{}"),
}


@given(st.data(), st.sampled_from(sorted(ANSWERS)))
def test_e04_a_worker_answer_is_decoded_to_its_type_or_refused(
    data: st.DataObject, do: str
) -> None:
    text = data.draw(mangled(framing.write_answer(7, ANSWERS[do])))
    try:
        number, answer = framing.read_answer(framing.read_frame(text), {7: do})
    except FrameError:
        return
    assert number == 7 and type(number) is int
    assert isinstance(answer.status, str) and answer.why.isprintable()
    assert isinstance(answer.result, LockHolder) == (answer.status == "locked")
    if not answer.status:
        assert isinstance(answer.result, framing.RESULTS.get(do, type(None)))


READERS: dict[str, tuple[bytes, Callable[[Frame], object]]] = {
    "order": (framing.write_order(orders(HOSTS, Options(), 1)[0]), framing.read_order),
    "request": (
        framing.write_request(7, SessionRequest(0, "lock", 1.0, True, {"who": "me"})),
        framing.read_request,
    ),
}


@given(st.data(), st.sampled_from(sorted(READERS)))
def test_e04_a_mangled_order_or_request_is_decoded_or_refused(
    data: st.DataObject, kind: str
) -> None:
    text, read = READERS[kind]
    try:
        read(framing.read_frame(data.draw(mangled(text))))
    except FrameError:
        return


@given(mangled(framing.write_outcome(1, VETTED)) | mangled(framing.write_notice(LostHost(1, "x"))))
def test_e04_a_pool_answer_names_its_own_host_or_is_refused(text: bytes) -> None:
    if pool._is_answer(1, text, 100):
        notice = framing.read_notice(framing.read_frame(text))
        number = (
            framing.read_outcome(framing.read_frame(text))[0] if notice is None else notice.lost
        )  # type: ignore[union-attr]
        assert number == 1 and type(number) is int


@given(values)
def test_e04_a_pool_message_is_decoded_to_pairs_or_an_error(told: object) -> None:
    pairs = pool._pairs(told)
    if not isinstance(pairs, Exception):
        assert all(type(number) is int and type(frame) is bytes for number, frame in pairs)


def test_e04_frames_know_every_visit_status_except_the_controllers_own() -> None:
    (literal,) = [
        field.type for field in framing.msgspec.structs.fields(framing._OutcomeHead)
        if field.name == "status"
    ]  # fmt: skip
    assert {*get_args(literal), *OURS} == {each.value for each in Status}
