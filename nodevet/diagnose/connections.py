"""Whether the peer of a waiting thread is slow, or packets are lost on the way (pure)."""

from collections.abc import Mapping

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import grown, known, rate
from nodevet.evidence.process_activity import Sleep, TcpConnection

WHAT = "segments of the connection that were resent or came out of order"
UNREAD = "the connection's retransmissions and queues were not read"
LOSSY = 1.0  # a second: retransmissions now and then are normal
LOST_STEP = (
    "packets are lost on the way to the peer: ethtool -S and `nodevet check` show the errors of "
    "this node's NIC, mtr the way; the peer itself may be well"
)
SLOW_STEP = (
    "nothing is lost on the way, so look at the peer: its load, its own storage and its limits; "
    "fetch over more connections at once and ahead, or keep a local copy"
)


def connection_figure(sleep: Sleep | None, seconds: float) -> Figure:
    """What is lost on the connection for which the job waits, and how it is."""
    tcp = sleep.tcp if sleep else None
    if tcp is None:
        why = sleep.errors.get("tcp") if sleep else ""
        return Figure("lost_segments", None, "/s", WHAT, why or UNREAD)
    lost = known((rate(tcp.resent, seconds), rate(tcp.out_of_order, seconds)))
    if tcp.resends_now:
        lost.append(LOSSY)  # the kernel waits longer before each, so their rate says little
    if tcp.resent is None or not lost:
        return Figure("lost_segments", None, "/s", WHAT, tcp.why("resent"))
    return Figure("lost_segments", sum(lost), "/s", WHAT, note=state_text(tcp, seconds))


def state_text(tcp: TcpConnection, seconds: float) -> str:
    """`nothing lost, 3.2 MB/s received, round trip 40 ms`."""
    texts = []
    for counted, what in ((tcp.resent, "resent"), (tcp.out_of_order, "out of order")):
        if number := grown(counted):
            texts.append(f"{number} {'segment' if number == 1 else 'segments'} {what}")
    if tcp.resends_now:
        texts.append(f"{tcp.resends_now} resends without an answer")
    texts = texts or ["nothing lost"]
    received = rate(tcp.received_b, seconds)
    if received:
        texts.append(f"{received / 1e6:.2g} MB/s received")
    elif tcp.silent_ms is not None:
        texts.append(f"no data for {tcp.silent_ms / 1000:.0f} s")
    if tcp.send_queue_b:
        texts.append(f"{tcp.send_queue_b / 1e3:.1f} kB not acknowledged")
    if tcp.round_trip_us:
        texts.append(f"round trip {tcp.round_trip_us / 1000:.2g} ms")
    return ", ".join(texts)


def network_step(figures: Mapping[str, Figure]) -> str:
    """The next step for a job that waits for a peer; empty if the connection was not read."""
    lost = figures["lost_segments"].value
    return "" if lost is None else LOST_STEP if lost >= LOSSY else SLOW_STEP
