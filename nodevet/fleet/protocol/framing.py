"""What the parent and a shard say to each other. Pure.

Parent to shard: one JSON line, then the payload. Shard to parent: for each host
one JSON line that gives a length, then so many bytes of evidence, untouched.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SshTarget:
    """One host, as a shard needs it. `number` is its place in the parent's list."""

    number: int
    name: str
    address: str | None
    port: int | None
    user: str | None
    key_file: str | None
    known_hosts: str | None
    root: str
    python: str | None
    sudo: bool
    whole_machine: bool = False


@dataclass(frozen=True)
class BatchOrder:
    """What one shard is to do. Times in seconds; see nodevet.fleet.Options."""

    parallel: int
    connect_timeout: float
    deadline: float
    probe_deadline: float
    ssh_config: str | None
    known_hosts: str | None
    accept_new: bool
    max_output: int
    targets: tuple[SshTarget, ...] = ()
    payload: bytes = b""
    asks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # names by section


@dataclass(frozen=True)
class VisitOutcome:
    """How one visit ended; `status` as in nodevet.model.Status."""

    status: str
    why: str = ""
    evidence: bytes = b""
    seconds: float = 0.0


def write_order(order: BatchOrder) -> bytes:
    plain = {name: value for name, value in asdict(order).items() if name != "payload"}
    return json.dumps(plain).encode() + b"\n" + order.payload


def read_order(text: bytes) -> BatchOrder:
    line, _, payload = text.partition(b"\n")
    plain: dict[str, Any] = json.loads(line)
    targets: Sequence[dict[str, Any]] = plain.pop("targets")
    return BatchOrder(
        **plain, targets=tuple(SshTarget(**target) for target in targets), payload=payload
    )


def write_outcome(number: int, outcome: VisitOutcome) -> bytes:
    head = {
        "number": number,
        "status": outcome.status,
        "why": outcome.why,
        "seconds": round(outcome.seconds, 3),
        "bytes": len(outcome.evidence),
    }
    return json.dumps(head).encode() + b"\n" + outcome.evidence


class FrameReader:
    """Splits what a shard wrote into messages."""

    def __init__(self) -> None:
        self._text = bytearray()

    def take(self, chunk: bytes) -> Iterator[tuple[int, VisitOutcome]]:
        """Each whole message: a host's number and outcome.

        Raises ValueError, KeyError or TypeError for what no shard writes.
        """
        self._text += chunk
        while (stop := self._text.find(b"\n") + 1) > 0:
            head = json.loads(self._text[:stop])
            end = stop + head["bytes"]
            if len(self._text) < end:
                return
            evidence = bytes(self._text[stop:end])
            del self._text[:end]
            outcome = VisitOutcome(head["status"], head["why"], evidence, head["seconds"])
            yield head["number"], outcome
