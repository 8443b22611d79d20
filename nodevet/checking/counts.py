"""Counters of an interface or a port against what a baseline says is the most."""

from collections.abc import Iterator, Mapping

from nodevet.checking.aspects import Aspect, met
from nodevet.evidence.counters import Counter
from nodevet.model import Verdict

BYTE, WORD = 255, 65535
HIGHEST = {  # at which a counter of an InfiniBand port stays: PortCounters of the specification
    "VL15_dropped": WORD,
    "excessive_buffer_overrun_errors": 15,
    "link_downed": BYTE,
    "link_error_recovery": BYTE,
    "local_link_integrity_errors": 15,
    "port_rcv_constraint_errors": BYTE,
    "port_rcv_errors": WORD,
    "port_rcv_remote_physical_errors": WORD,
    "port_rcv_switch_relay_errors": WORD,
    "port_xmit_constraint_errors": BYTE,
    "port_xmit_discards": WORD,
    "symbol_error": WORD,
}


def counted(
    counters: tuple[Counter, ...] | None, maximum: Mapping[str, int], *, why: str, advice: str
) -> Iterator[Aspect]:
    """Each counter that a baseline names. `why`: the reason if none was read."""
    found = {counter.name: counter for counter in counters or ()}
    for name, most in maximum.items():
        counter = found.get(name)
        if counters is None:
            yield Aspect(Verdict.UNKNOWN, name, why=f"counters: {why}")
        elif counter is None:
            yield Aspect(Verdict.UNKNOWN, name, why=f"{name}: it is not counted here")
        elif counter.value is None:
            yield Aspect(Verdict.UNKNOWN, name, why=f"{name}: {counter.why('value')}")
        elif most >= counter.value == HIGHEST.get(name):
            told = f"{name}: it stands at {counter.value}, which is as far as it counts"
            yield Aspect(Verdict.UNKNOWN, name, why=told)
        else:
            yield met(
                name,
                0 <= counter.value <= most,
                expected=f"at most {most}",
                actual=counter.value,
                advice=advice,
            )
