"""What nodes with eight GPUs answer night after night. Each has ids of its own, the same every
night; from one night to the next only readings and clocks differ."""

import json
import random
import re
from typing import Any

import msgspec

from nodevet.store import documents

OWN = re.compile(rb'(GPU-|"(?:machine_id|boot_id)":")[0-9a-f]{8}')
STATES = frozenset({"schema", "link_gts", "pcie_generation", "pstate", "event_reasons"})
CLOCKS = frozenset({"clock_s", "asked_s"})


class Nodes:
    """Nodes like one whose evidence was read."""

    def __init__(self, document: bytes) -> None:
        found = documents.split_document(document)
        if found is None:
            raise SystemExit("the node's evidence is not as a probe sends it")
        self._found = found

    def answer(self, number: int, night: int = 0) -> bytes:
        """In a night, every amount that the store keeps as a reading has another value, some
        hundredths less than was read: no more is free than there is. Night 0 is as it was read."""
        own = rb"\g<1>%08x" % number
        steady = {name: OWN.sub(own, section) for name, section in self._found.steady.items()}
        readings = self._readings(number, night) if night else self._found.volatile
        return documents.join_document(list(steady), steady, readings)

    def _readings(self, number: int, night: int) -> bytes:
        draw, later = random.Random(f"{number} {night}"), night * 86400 + number / 100
        return msgspec.json.encode(other_readings(json.loads(self._found.volatile), draw, later))


def other_readings(value: Any, draw: random.Random, later: float) -> Any:
    if isinstance(value, dict):
        return {
            name: each + later
            if name in CLOCKS
            else each
            if name in STATES
            else other_readings(each, draw, later)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [other_readings(each, draw, later) for each in value]
    if isinstance(value, (int, float)):
        return round(value * draw.uniform(0.94, 1), None if isinstance(value, int) else 4)
    return value
