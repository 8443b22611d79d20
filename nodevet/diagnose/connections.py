"""Whether the peer of a waiting thread is slow, or packets are lost on the way (pure)."""

from collections.abc import Mapping

from nodevet.base.durations import elapsed
from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import known_values, percent
from nodevet.evidence.process_activity import Sleep, TcpConnection

WHAT = "segments of the connection that were resent or came out of order"
UNREAD = "the connection's retransmissions and queues were not read"
LOSSY = 1.0  # percent: TCP's rate falls with the root of the share that is lost (RFC 5348)
LOST_STEP = (
    "packets are lost on the way to the peer: ethtool -S shows the errors of this node's NIC, mtr "
    "the way; the peer itself may be well"
)
SLOW_STEP = (
    "nothing is lost on the way, so look at the peer: its load, its own storage and its limits; "
    "fetch over more connections at once and ahead, or keep a local copy"
)


def connection_figure(sleep: Sleep | None) -> Figure:
    """The share of lost or late segments on the connection that the job waits for."""
    tcp = sleep.tcp if sleep else None
    if tcp is None:
        why = sleep.errors.get("tcp") if sleep else ""
        return Figure("lost_segments", None, "%", WHAT, why or UNREAD)
    shares = known_values((percent(tcp.resent, tcp.sent), percent(tcp.out_of_order, tcp.received)))
    if tcp.resends_now:
        shares.append(100.0)  # of what was sent last, nothing arrives
    if tcp.resends_now is None or not shares:
        return Figure("lost_segments", None, "%", WHAT, tcp.why("resent"))
    return Figure("lost_segments", max(shares), "%", WHAT, note=state_text(tcp))


def state_text(tcp: TcpConnection) -> str:
    """`3 of 400 segments resent, no data for 2 s, round trip 40 ms`."""
    texts = []
    if tcp.resent:
        texts.append(f"{tcp.resent} of {tcp.sent} segments resent")
    if tcp.out_of_order:
        texts.append(f"{tcp.out_of_order} of {tcp.received} came out of order")
    if tcp.resends_now:
        texts.append(f"{tcp.resends_now} resends without an answer")
    texts = texts or ["nothing was resent"]
    if tcp.silent_ms is not None and tcp.silent_ms >= SILENT_MS:
        texts.append(f"no data for {elapsed(tcp.silent_ms / 1000)}")
    if tcp.receive_queue_b:
        texts.append(f"{tcp.receive_queue_b / 1e3:.1f} kB unread")
    if tcp.send_queue_b:
        texts.append(f"{tcp.send_queue_b / 1e3:.1f} kB not acknowledged")
    if tcp.round_trip_us:
        texts.append(f"round trip {tcp.round_trip_us / 1000:.2g} ms")
    return ", ".join(texts)


SILENT_MS = 1000


def network_step(figures: Mapping[str, Figure]) -> str:
    """The next step for a job that waits for a peer; empty if the connection was not read."""
    lost = figures["lost_segments"].value
    return "" if lost is None else LOST_STEP if lost >= LOSSY else SLOW_STEP
