"""Read the BMCs of many hosts at once."""

import math
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodevet import __version__
from nodevet.bmc.read import read_section
from nodevet.bmc.secrets import Secrets, read_secrets
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.core import SCHEMA, Section
from nodevet.evidence.document import open_evidence
from nodevet.model import Bmc, Host

PARALLEL = 64  # BMCs at the same time
SPARE = 10.0  # seconds that a reading may be late: a resolver cannot be interrupted
RawSection = Mapping[str, Any]


class BmcAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the BMCs of some hosts report."""

    hosts: Mapping[str, Section[BmcInfo]]  # by name; `data` is null if it could not be read


Asked = Mapping[str, Sequence[str]]
"""By host: the BIOS attributes that its baselines name."""
TOO_LATE: RawSection = {"status": "timeout", "why": "no answer in time"}


class Readings:
    """The sections of hosts that have a BMC. Daemon threads read them: a thread that hangs in the
    resolver delays neither the others nor the end of nodevet."""

    def __init__(
        self, hosts: Sequence[Host], end: float = math.inf, asked: Asked | None = None
    ) -> None:
        """`end`: of all, by time.monotonic(). `asked`: the attributes of the BIOS that the
        baselines of a host name."""
        self._asked: Asked = asked or {}
        bmcs: dict[str, Bmc] = {host.name: host.bmc for host in hosts if host.bmc is not None}
        self._secrets, self._end = read_secrets(bmcs.values()), end
        self._answers: queue.Queue[tuple[str, RawSection]] = queue.Queue()
        self._jobs: queue.SimpleQueue[tuple[str, Bmc]] = queue.SimpleQueue()
        for job in bmcs.items():
            self._jobs.put(job)
        self._left = set(bmcs)
        self._longest = max((bmc.timeout for bmc in bmcs.values()), default=0.0) + SPARE
        self.done: dict[str, RawSection] = {}
        for _ in range(min(PARALLEL, len(bmcs))):
            threading.Thread(target=self._work, daemon=True).start()

    def take(self, *, wait: bool = False) -> None:
        """Add to `done` the answers since the last call. `wait`: wait for one, if any host is
        left."""
        try:
            while self._left:
                name, section = self._answers.get(wait, self._longest)
                self._left.discard(name)
                self.done[name] = section
                wait = False
        except queue.Empty:
            if wait:  # every thread hangs, though none may
                self.done |= dict.fromkeys(self._left, TOO_LATE)
                self._left.clear()

    def _work(self) -> None:
        while True:
            try:
                name, bmc = self._jobs.get_nowait()
            except queue.Empty:
                return
            seconds = min(bmc.timeout, self._end - time.monotonic())
            asked = self._asked.get(name, ())
            section = _section(bmc, self._secrets, seconds, asked) if seconds > 0 else TOO_LATE
            self._answers.put((name, section))


def _section(bmc: Bmc, secrets: Secrets, seconds: float, asked: Sequence[str] = ()) -> RawSection:
    try:
        return read_section(bmc, secrets, seconds, asked)
    except Exception as error:  # a fault of nodevet's: one host's section says so, not a traceback
        why = f"BMC {bmc.address}: internal error (please report): {type(error).__name__}"
        return {"status": "error", "why": why}


def read_all(hosts: Sequence[Host]) -> dict[str, Section[BmcInfo]]:
    """The sections of these hosts, in their order; for a host without a BMC, why there is none."""
    readings = Readings(hosts)
    while any(host.bmc is not None and host.name not in readings.done for host in hosts):
        readings.take(wait=True)
    none = {"status": "absent", "why": "the inventory names no BMC for it"}
    return {host.name: _decoded(readings.done.get(host.name, none)) for host in hosts}


def _decoded(section: RawSection) -> Section[BmcInfo]:
    document = {"schema": SCHEMA, "probe": __version__, "sections": {"bmc": section}}
    return open_evidence(msgspec.json.encode(document))[BmcInfo]
