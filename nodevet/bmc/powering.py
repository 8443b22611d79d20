"""The power of the hosts of one run: `powering` of a feature, for nodevet.fix.use.power."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from nodevet.base.errors import NothingDoneError, UserError
from nodevet.base.once import call_once
from nodevet.base.printable import brief
from nodevet.bmc import power
from nodevet.bmc.errors import BmcError, SwitchedElsewhereError
from nodevet.bmc.power import PowerTimes, Switch
from nodevet.bmc.secrets import Secrets, read_secrets, secret_of
from nodevet.checking.bmc_identity import BmcMatch, MachineIds, match
from nodevet.fixing.result import POWER_TEXT
from nodevet.model import Bmc, Host

UNPROVEN = "unproven"  # of `bmc.identity` in an inventory
CORRECT = "correct `bmc` in the inventory"
PROVE = (
    "if you know that it does, write `bmc: {identity: unproven}` for this host into the inventory"
)


@dataclass(frozen=True)
class Turns:
    """How many nodes may be switched at once: `most` of the run, and one of each power group."""

    most: threading.Semaphore
    groups: Mapping[str, threading.Lock]

    @contextmanager
    def turn(self, group: str | None) -> Iterator[None]:
        """Wait until a node of this group may be switched."""
        with ExitStack() as held:
            if group:
                held.enter_context(self.groups[group])
            held.enter_context(self.most)
            yield


@dataclass(frozen=True)
class BmcPower:
    """The power of one node. Its methods raise UserError."""

    bmc: Bmc
    secrets: Callable[[], Secrets]
    turns: Turns
    times: PowerTimes

    @cached_property
    def _switch(self) -> Switch:
        return power.switch_of(self.bmc, secret_of(self.bmc, self.secrets()), self.times)

    def ready(self) -> None:
        """Read the password. Raises UserError if that is not possible."""
        with self._name_errors():
            secret_of(self.bmc, self.secrets())

    def text(self) -> str:
        """The power state that the BMC reports, or why nodevet does not know it."""
        try:
            return f"{POWER_TEXT} {brief(self._switch.power(), 40)}"
        except BmcError as error:
            return brief(f"its power is not known: BMC {self.bmc.address}: {error}", 300)

    def identity(self, node: MachineIds) -> BmcMatch:
        """Whether the BMC belongs to the node with these ids."""
        with self._name_errors():
            return match(node, self._switch.machine(), kind=self.bmc.kind)

    def refusal(self, found: BmcMatch) -> str:
        """Why a BMC with this match may not switch the node; empty if it may."""
        why = ""
        if found.is_own is False:
            why = f"it is the BMC of another machine: {found.text}; {CORRECT}"
        elif found.is_own is None and self.bmc.identity != UNPROVEN:
            why = f"nothing proves that it belongs to the node: {found.text}; {PROVE}"
        return f"BMC {self.bmc.address}: {why}" if why else ""

    def _switched_ids(self, node: MachineIds) -> MachineIds:
        """The ids of the machine that the BMC switches. Raises UserError if it may not."""
        ids = self._switch.machine()
        if why := self.refusal(match(node, ids, kind=self.bmc.kind)):
            raise UserError(why)
        return ids

    def _require_same(self, ids: MachineIds, what: str) -> None:
        """Raises BmcError if another machine's BMC now has the address. A node that is off gets
        its On even if the BMC does not say whose it is."""
        try:
            now = self._switch.machine()
        except BmcError:
            if what == power.ON:
                return
            raise
        if ids.uuid and now.uuid not in ("", None, ids.uuid):
            raise BmcError(
                f"not asked for `{what}`: the BMC of another machine ({now.uuid}) "
                "now has its address"
            )

    def cycle(
        self,
        asked: Callable[[str], None],
        *,
        node: MachineIds,
        runs: bool,
        rebooted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Switch the node off and on, when it is its turn. `asked` is called before each request;
        an error before the first call means that nothing was done. `node`: its ids. `runs`: the
        node answers, so a BMC that says Off belongs to another machine. `rebooted`: whether the
        node answers in another boot by now."""
        with self.turns.turn(self.bmc.power_group), self._name_errors():
            ids = self._switched_ids(node)

            def asked_own(what: str) -> None:
                if what != power.SOFT:  # its ids were just read
                    self._require_same(ids, what)
                asked(what)

            if runs and self._switch.power() == power.OFF:
                raise BmcError("it reports Off, but the node runs: is this another machine's BMC?")
            if why := power.refusal(self._switch):
                raise BmcError(why)
            power.cycle(self._switch, asked_own, self.times, rebooted)

    def switch_on_if_off(self, asked: Callable[[str], None], *, node: MachineIds) -> bool:
        """Whether the BMC said Off in two looks, and the node with these ids was switched on.
        Raises UserError if something may leak, or if the BMC is not proven to be the node's."""
        with self.turns.turn(self.bmc.power_group), self._name_errors():
            for _ in range(2):
                if self._switch.power() != power.OFF:
                    return False
                time.sleep(self.times.look)
            self._switched_ids(node)
            if why := power.leak(self._switch):
                raise BmcError(why)
            try:
                power.switch_on(self._switch, asked, self.times)
            except SwitchedElsewhereError:  # it is on by now
                return False
            return True

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except NothingDoneError as error:
            raise NothingDoneError(f"BMC {self.bmc.address}: {error}") from error
        except BmcError as error:
            raise UserError(f"BMC {self.bmc.address}: {error}") from error


def powers(
    hosts: Iterable[Host], most: int, shutdown_s: float, on_s: float = math.inf
) -> Mapping[str, BmcPower]:
    """The power of each host that has a BMC and is not this machine. `most`: nodes that may be
    switched off and on at once. `shutdown_s`: to shut down, before the power goes off. `on_s`: for
    the power to come on, if that is less than nodevet waits anyway."""
    times = PowerTimes(soft=shutdown_s, on=min(on_s, PowerTimes.on))
    bmcs = {host.name: host.bmc for host in hosts if host.bmc is not None and not host.local}
    groups = {bmc.power_group: threading.Lock() for bmc in bmcs.values() if bmc.power_group}
    turns = Turns(threading.Semaphore(max(1, most)), groups)
    secrets = call_once(lambda: read_secrets(bmcs.values()))  # each source is read once, if at all
    return {
        name: BmcPower(bmc, secrets, turns, replace(times, answer=bmc.timeout))
        for name, bmc in bmcs.items()
    }
