"""Switch a node off and on by its BMC: send a request once, then read the power until it changes.

A BMC accepts a request before it carries it out. Some report Off as soon as they accept it, and
drop an On that follows; others refuse On for a minute after Off. The node must therefore be Off in
two readings, and On is sent again only if a new reading still shows Off.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nodevet.base.durations import elapsed
from nodevet.base.errors import NothingDoneError
from nodevet.bmc import ipmi, redfish
from nodevet.bmc.errors import (
    BmcError,
    RefusedLoginError,
    RefusedRequestError,
    SwitchedElsewhereError,
)
from nodevet.bmc.fields import RecordFields, text
from nodevet.bmc.https import Document, Redfish
from nodevet.bmc.ipmi import NO_READING, Ipmi, facts
from nodevet.checking.bmc_identity import MachineIds, machine_ids
from nodevet.model import Bmc

ON, OFF = "on", "off"
SOFT, HARD = "soft off", "off"
RESET = "#ComputerSystem.Reset"
DRY = "ok"  # of a leak detector
NO_LEAK = ("", "ok", "state deasserted", "deasserted")  # of an IPMI sensor
RESETS: Mapping[str, tuple[str, ...]] = {
    SOFT: ("GracefulShutdown",),
    HARD: ("ForceOff",),
    ON: ("On", "ForceOn"),
}
"""The values of ResetType (DSP0268), the preferred one first. Not PushPowerButton: a second push
switches off again."""
MEND = (
    "a sensor without a reading may hide a leak: look at the node, then restart its BMC; if no "
    "detector is fitted for {}, disable the sensor in the BMC"
)
OTHERS = "another run, a person or a program switches the node too; this run sends no more requests"
Asked = Callable[[str], None]
"""Called with `soft off`, `off` or `on` before that request."""


@dataclass(frozen=True, kw_only=True)
class PowerTimes:
    """In seconds."""

    soft: float = 300.0  # for the operating system to shut down
    off: float = 120.0  # for the power to go off
    rest: float = 10.0  # between Off and On
    on: float = 300.0  # for the power to come on
    again: float = 30.0  # before On is asked again
    look: float = 5.0  # between two looks
    answer: float = 60.0  # for one answer of Redfish; over IPMI for one command


class Switch(Protocol):
    """The power of one node. Each call is a session of its own and raises BmcError."""

    def allows(self) -> frozenset[str]:
        """The requests that the BMC allows: `soft off`, `off`, `on`."""

    def power(self) -> str:
        """The power state, in lower case: `on`, `off`, `poweringoff` and so on."""

    def ask(self, what: str) -> None:
        """Send this request, once."""

    def leaks(self) -> list[RecordFields]:
        """The leak detectors."""

    def machine(self) -> MachineIds:
        """The ids of the machine that the BMC switches."""

    def last_reset(self) -> str:
        """When the node was last switched on or reset, by the BMC's clock; empty if unknown."""


@dataclass(frozen=True)
class IpmiSwitch:
    bmc: Bmc
    password: str = field(repr=False)
    seconds: float

    def _service(self) -> Ipmi:
        return Ipmi(self.bmc, self.password, time.monotonic() + self.seconds)

    def allows(self) -> frozenset[str]:
        """Everything, in a session with the privilege to switch."""
        self._service().order("chassis", "status")
        return frozenset(RESETS)

    def power(self) -> str:
        return _state(facts(self._service().run("chassis", "status")).get("System Power"))

    def ask(self, what: str) -> None:
        self._service().order("chassis", "power", what.removesuffix(" off"))

    def leaks(self) -> list[RecordFields]:
        found = ipmi.leak_detectors(self._service())
        return [part for part in found if (part["state"] or "").lower() not in NO_LEAK]

    def machine(self) -> MachineIds:
        service, found = self._service(), RecordFields()
        found.take("uuid", lambda: ipmi.system_uuid(service))
        found.take("serials", lambda: ipmi.serials(service))
        if len(found.get("errors", ())) == 2:
            raise BmcError(found["errors"]["uuid"])
        return machine_ids(found["uuid"], *(found["serials"] or ()))

    def last_reset(self) -> str:
        return ""  # IPMI has no such time


@dataclass(frozen=True)
class RedfishSwitch:
    bmc: Bmc
    password: str = field(repr=False)
    seconds: float

    def _service(self) -> Redfish:
        return Redfish(self.bmc, self.password, answer=self.seconds)

    def allows(self) -> frozenset[str]:
        with self._service() as service:
            allowed = _allowed(service, _reset(redfish.the_system(service)))
        return frozenset(what for what, types in RESETS.items() if allowed.intersection(types))

    def power(self) -> str:
        with self._service() as service:
            return _state(redfish.the_system(service).get("PowerState"))

    def ask(self, what: str) -> None:
        with self._service() as service:
            try:
                reset = _reset(redfish.the_system(service))
                kind = _kind(what, _allowed(service, reset))
            except RefusedLoginError:
                raise
            except BmcError as error:
                raise BmcError(f"the request was not sent: {error}") from error
            service.post(str(reset.get("target")), {"ResetType": kind})

    def leaks(self) -> list[RecordFields]:
        with self._service() as service:
            found = redfish.leak_detectors(service)
        return [part for part in found if part["health"] != DRY]

    def machine(self) -> MachineIds:
        with self._service() as service:
            system = redfish.the_system(service)
        return machine_ids(text(system.get("UUID")) or "", *redfish.serials(system))

    def last_reset(self) -> str:
        with self._service() as service:
            return text(redfish.the_system(service).get("LastResetTime")) or ""


def switch_of(bmc: Bmc, password: str, times: PowerTimes) -> Switch:
    """The switch of a node."""
    kind = IpmiSwitch if bmc.kind == "ipmi" else RedfishSwitch
    return kind(bmc, password, times.answer)


def _state(value: Any) -> str:
    state = text(value, lower=True)
    if state is None:
        raise BmcError("it does not say whether the power is on")
    return state


def _reset(system: Document) -> Document:
    actions = system.get("Actions")
    reset = actions.get(RESET) if isinstance(actions, dict) else None
    if not isinstance(reset, dict):
        raise BmcError("its system has no reset action")
    return reset


def _allowed(service: Redfish, reset: Document) -> frozenset[str]:
    """The values of ResetType that the BMC lists with the action, or in its ActionInfo."""
    values = reset.get("ResetType@Redfish.AllowableValues")
    info = reset.get("@Redfish.ActionInfo")
    if not isinstance(values, list) and isinstance(info, str):
        parameters = service.get(info).get("Parameters")
        values = [
            value
            for parameter in (parameters if isinstance(parameters, list) else ())
            if isinstance(parameter, dict)
            and parameter.get("Name") == "ResetType"
            and isinstance(found := parameter.get("AllowableValues"), list)
            for value in found
        ]
    if not isinstance(values, list) or not values:
        raise BmcError("it does not say which resets it allows")
    return frozenset(value for value in values if isinstance(value, str))


def _kind(what: str, allowed: frozenset[str]) -> str:
    """The ResetType for this. Raises BmcError if none is allowed."""
    for kind in RESETS[what]:
        if kind in allowed:
            return kind
    raise BmcError(f"it does not allow {' or '.join(RESETS[what])}")


def refusal(switch: Switch) -> str:
    """Why the node may not be switched off and on; empty if it may. Raises BmcError, also if a
    leak detector cannot be read."""
    allowed = switch.allows()
    if missing := [what for what in (HARD, ON) if what not in allowed]:
        return f"it does not allow {' and '.join(' or '.join(RESETS[what]) for what in missing)}"
    return leak(switch)


def leak(switch: Switch) -> str:
    """The leak detectors that report anything but OK, in words; empty if there are none. Raises
    BmcError if one cannot be read."""
    found = switch.leaks()
    leaks = [f"{part['name']}: {part['health'] or part['state'] or '?'}" for part in found]
    if not leaks:
        return ""
    unread = [part["name"] for part in found if not part["health"] and part["state"] == NO_READING]
    advice = f"; {MEND.format(', '.join(unread))}" if unread else ""
    return f"a leak detector does not report OK: {', '.join(leaks)}{advice}"


def cycle(
    switch: Switch, asked: Asked, times: PowerTimes, rebooted: Callable[[], bool] = lambda: False
) -> None:
    """Switch a node off and on: the operating system first, then hard. `rebooted`: whether the node
    answers in another boot than the one that this ends. Raises NothingDoneError, BmcError after
    which the node may be off, and what `asked` raises."""
    if switch.power() != OFF:
        _switch_off(switch, asked, times, rebooted)
    time.sleep(times.rest)
    switch_on(switch, asked, times)


def _switch_off(
    switch: Switch, asked: Asked, times: PowerTimes, rebooted: Callable[[], bool]
) -> None:
    ask = _first
    if SOFT in switch.allows():
        booted = switch.last_reset()
        asked(SOFT)
        refused = isinstance(_first(switch, SOFT), RefusedRequestError)
        if _is_off(switch, 0 if refused else times.soft, times.look):
            return
        if not refused and (_reset_since(switch, booted) or rebooted()):
            raise SwitchedElsewhereError(f"the node booted before this run sent On; {OTHERS}")
        ask = _ask
    asked(HARD)
    error = ask(switch, HARD)
    if not _is_off(switch, times.off, times.look):
        reason = f" ({error})" if error else ""
        raise BmcError(f"it does not report Off after {elapsed(times.off)}{reason}")


def _reset_since(switch: Switch, booted: str) -> bool:
    """Whether the BMC names another time of the last reset than `booted`. Raises BmcError."""
    try:
        return switch.last_reset() != booted
    except BmcError as error:
        raise BmcError(f"no answer since it was asked for `{SOFT}`: {error}") from error


def _first(switch: Switch, what: str) -> BmcError | None:
    """As `_ask`, of the first request. Raises NothingDoneError if the user may not do that."""
    try:
        return _ask(switch, what)
    except RefusedLoginError as error:
        raise NothingDoneError(str(error)) from error


def _is_off(switch: Switch, seconds: float, pause: float) -> bool:
    """Whether the BMC says Off in two looks in a row, the first within this time. An error of the
    request counts for nothing: the BMC may have done it. Raises SwitchedElsewhereError if it said
    Off, and at the end says something else."""
    end = time.monotonic() + seconds
    looks = 0
    was_off = False
    while looks < 2:
        time.sleep(pause)
        state = _look(switch)
        looks = looks + 1 if state == OFF else 0
        was_off = was_off or state == OFF
        if not looks and time.monotonic() >= end:
            if was_off:
                raise SwitchedElsewhereError(f"it reported Off, and then {state}; {OTHERS}")
            return False
    return True


def switch_on(switch: Switch, asked: Asked, times: PowerTimes) -> None:
    """Switch on a node that is off. Raises BmcError, SwitchedElsewhereError if it is not off. If
    `asked` raises, this switches the node on first, because it was on before, unless that is a
    BmcError: then the BMC belongs to another machine."""
    state = _look(switch)
    if state != OFF and not isinstance(state, BmcError):
        raise SwitchedElsewhereError(f"it reports {state} before this run asked for On; {OTHERS}")
    try:
        asked(ON)
    except BmcError:
        raise
    except BaseException:
        _until_on(switch, times)
        raise
    _until_on(switch, times)


def _until_on(switch: Switch, times: PowerTimes) -> None:
    end = time.monotonic() + times.on
    state: str | BmcError = OFF
    error: BmcError | None = None
    ask_at = 0.0
    while state != ON:
        if state == OFF and time.monotonic() >= ask_at:
            error = _ask(switch, ON)
            ask_at = time.monotonic() + times.again
        time.sleep(times.look)
        state = _look(switch)
        if state != ON and time.monotonic() >= end:
            reason = f" ({error})" if error else ""
            raise BmcError(f"it does not report On after {elapsed(times.on)}{reason}")


def _look(switch: Switch) -> str | BmcError:
    """The power state, or why it is not known now. Raises RefusedLoginError."""
    try:
        return switch.power()
    except RefusedLoginError:
        raise
    except BmcError as error:
        return error


def _ask(switch: Switch, what: str) -> BmcError | None:
    """Why the request failed, which a later look settles; None if the BMC accepted it. Raises
    RefusedLoginError."""
    try:
        switch.ask(what)
    except RefusedLoginError:
        raise
    except BmcError as error:
        return error
    return None
