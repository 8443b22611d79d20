"""The reason of a drained node: one short line that can be taken apart again."""

import random

import pytest

from nodevet.model.run import new_run_id
from nodevet.slurm.decide import BUSY, MAINTAINED, why_not_drained
from nodevet.slurm.nodes import parse_nodes
from nodevet.slurm.reason import (
    LOCAL,
    LONGEST,
    Trouble,
    one_line,
    parse,
    reason_text,
    tagged,
    untagged,
)

ROW = (
    "NodeName={} CPUAlloc={} State={} Partitions=a,b Reason={} [root@2026-11-24T17:01:24] Comment=x"
)
OURS = "nodevet:local xid 79 (GPU 3)"


def node(state: str = "IDLE", reason: str = "", cpus: int = 0):
    row = ROW.format("n1", cpus, state, reason)
    return parse_nodes(row if reason else row.partition(" Reason=")[0])["n1"]


def test_any_failed_checks_make_a_reason_that_can_be_parsed_again() -> None:
    rng = random.Random(7)
    signs = "ab ;=[]|\"'$\\\n\x1b\u202eé…0"
    for _ in range(2000):
        count = rng.randint(1, 30)
        troubles = [
            Trouble(
                f"check_{rng.randint(0, 40)}", "".join(rng.choices(signs, k=rng.randint(0, 60)))
            )
            for _ in range(count)
        ]
        text = reason_text(LOCAL, troubles)
        assert untagged(tagged(text, "HC")) == text == tagged(text, "")
        found = parse(text)
        assert found is not None, text
        assert len(text) <= LONGEST
        assert "\n" not in text
        checks = {trouble.check for trouble in troubles}
        assert found.checks == checks if found.whole else found.checks < checks


def test_a_tagged_nodevet_reason_is_recognized_and_other_tagged_reasons_are_not() -> None:
    """NVSentinel's slurm-drain-monitor splits at `; ` and asks each part for its pattern."""
    kept = tagged("nodevet:local xid 79 (GPU 3); power_limit", "HC")
    assert all(part.startswith("[HC] ") for part in kept.split("; "))
    ours = node("IDLE+DRAIN", kept)
    assert ours.reason == "nodevet:local xid 79 (GPU 3); power_limit"
    assert (
        ours.own_reason and ours.own_reason.checks == {"xid", "power_limit"} and not ours.is_foreign
    )
    for reason in ("[HC] bad PSU", "[HC]nodevet:local xid", "[HC] [HC] nodevet:local xid"):
        foreign = node("IDLE+DRAIN", reason)
        assert foreign.reason == reason and foreign.is_foreign, reason


def test_a_long_reason_keeps_all_check_names_and_cuts_the_first_text() -> None:
    troubles = [Trouble("xid", "x" * 500), Trouble("power_limit", "y"), Trouble("dkms", "")]
    text = reason_text(new_run_id_text(), troubles)
    assert text.endswith("; power_limit y; dkms")


def new_run_id_text() -> str:
    from datetime import datetime, timezone

    return new_run_id(datetime(2026, 11, 22, 4, tzinfo=timezone.utc))


@pytest.mark.parametrize(
    "text", ["nodevet:", "nodevet: xid", "nodevet:x xid 79", "nodevet:local", "nodevet:local 7up"]
)
def test_a_reason_that_a_person_wrote_is_not_nodevets(text: str) -> None:
    assert parse(text) is None


def test_hostile_words_become_harmless() -> None:
    assert one_line("a\nReason=b; c\x1b[2J") == "a?nReason:b, c?x1b?2J"


@pytest.mark.parametrize(
    ("state", "reason", "cpus", "why"),
    [
        ("IDLE", "", 0, ""),
        ("MIXED", "", 4, BUSY),
        ("IDLE+MAINTENANCE+RESERVED", "", 0, MAINTAINED),
        ("IDLE$", "", 0, MAINTAINED),
        ("IDLE+RESERVED", "", 0, ""),
        ("IDLE+DRAIN+MAINTENANCE", "Prolog error", 0, ""),
        ("MIXED+DRAIN", "Prolog error", 4, ""),
        ("IDLE+DRAIN", "Prolog error", 0, ""),
        ("IDLE", "bad PSU", 0, ""),  # Slurm 24.11 keeps it after a resume
        ("MIXED+REBOOT_REQUESTED", "kernel", 0, "its reason is not nodevet's"),
        ("IDLE+FAIL", "bad PSU", 0, "its reason is not nodevet's"),
        ("IDLE+DRAIN", "bad PSU", 0, "its reason is not nodevet's"),
        ("DOWN*", "Not responding", 0, "its reason is not nodevet's"),
        ("IDLE+DRAIN", "slurm-operator: xid 79", 0, "its reason is not nodevet's"),
        ("IDLE+DRAIN", OURS, 0, "already drained for this"),
        ("IDLE", OURS, 0, ""),
        ("IDLE+DRAIN", "nodevet:local dkms", 0, ""),
    ],
)
def test_a_node_that_may_not_be_drained_has_a_message_that_says_why(
    state: str, reason: str, cpus: int, why: str
) -> None:
    told = why_not_drained(node(state, reason, cpus), OURS, will_look_again=True)
    assert why in told
    assert bool(told) == bool(why)


def test_a_node_is_read_as_slurm_shows_it() -> None:
    found = node("MIXED*+DRAIN+RESERVED", "bad [x@y] State=IDLE", 2)
    assert found.states == ("mixed", "not_responding", "drain", "reserved")
    assert (found.reason, found.user) == ("bad [x@y] State=IDLE", "root")
    assert (found.has_jobs, found.partitions) == (True, ("a", "b"))


@pytest.mark.parametrize(
    ("rest", "reason", "user"),
    [
        ("bad PSU [root@2026-11-24T17:01:24] Comment=a b Extra=c", "bad PSU", "root"),
        (f"{OURS} [root@2026-11-24T17:01:24] ReservationName=fw", OURS, "root"),
        (f"{OURS} [bob@2026-11-24T17:01:24] is mine [root@2026-11-24T17:01:25]", None, ""),
        (f"{OURS} [root@2026-11-24T17:01:24]        NodeName=n2 State=IDLE", None, ""),
    ],
)
def test_only_what_slurm_adds_is_cut_off_a_reason(rest: str, reason: str | None, user: str) -> None:
    row = f"NodeName=n1 State=IDLE+DRAIN  Reason={rest}"
    ((name, found),) = parse_nodes(row).items()
    assert (name, found.reason, found.user) == ("n1", rest if reason is None else reason, user)
    assert (found.own_reason is None) == (reason != OURS)


def test_a_comment_sets_no_state_and_no_node() -> None:
    row = "NodeName={} CPUAlloc=0 State=IDLE+DRAIN Partitions=a Comment={}\n"
    comment = "when fixed: State=IDLE Reason=nodevet:local xid\nNodeName=n2 State=IDLE"
    nodes = parse_nodes(row.format("n1", comment) + row.format("n2", "x"))
    assert list(nodes) == ["n1"]
    assert (nodes["n1"].states, nodes["n1"].own_reason) == (("idle", "drain"), None)
    assert why_not_drained(nodes["n1"], OURS)
