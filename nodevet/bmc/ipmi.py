"""Read a BMC over IPMI, with ipmitool. The password goes through a pipe, never into argv or the
environment. Each value fails alone; `errors` says why.
"""

import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from uuid import UUID

from nodevet.base.printable import last_line
from nodevet.bmc.ages import SLACK, least_ages
from nodevet.bmc.errors import BmcError, FatalError, RefusedLoginError
from nodevet.bmc.fields import (
    FULL_LOG,
    MOST_EVENTS,
    RecordFields,
    inlet,
    number,
    renamed,
    text,
)
from nodevet.model import Bmc

CIPHER = "17"  # HMAC-SHA256; without -C ipmitool 1.8.19 loses 10 s where it asks in vain
OLD_CIPHER = "3"
READING = ("-L", "USER")
ORDERING = ("-L", "OPERATOR", "-R", "1")  # the one packet is not sent again
ORDERING_S = 10  # for its answer
SLOW_S = 60  # with a longer `timeout` a BMC is slow: ipmitool then waits this long for an answer
SLOW = ("-R", "1", "-N", str(SLOW_S))
MOST_BYTES = 4 << 20
ZONES = 15 * 3600  # seconds; the clock of a SEL may be in any time zone
SET = 0x20000000  # IPMI: a smaller time counts from the BMC's start: its clock was never set
HEALTHS = {"ok": "ok", "nc": "warning", "cr": "critical", "nr": "critical"}
DISCRETE = re.compile(r"(.*?),([0-9A-Fa-f]+h),(\w+),([\d.]+),(.*)")
ABSENT = re.compile(r",ns(,|$)")  # a sensor without a reading: there is no such part now
ANALOG = re.compile(r"(.*),([^,]*),([^,]*),(\w+)")
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"}
ENDED = "Deasserted"
CRITICAL = frozenset({
    "power supply ac lost", "ac lost or out-of-range", "failure detected", "redundancy lost",
    "non-redundant: insufficient resources", "drive fault", "thermal trip", "ierr",
    "uncorrectable ecc", "uncorrectable machine check exception", "bus fatal error",
    "bus uncorrectable error", "pci serr", "fatal nmi", "upper critical going high",
    "upper non-recoverable going high", "lower critical going low",
    "lower non-recoverable going low", "transition to critical from less severe",
    "transition to non-recoverable", "transition to non-recoverable from less severe",
})  # fmt: skip
"""States and events that say a part failed, as ipmitool names them. IPMI grades thresholds only."""
NO_READING = "no reading"  # of a sensor for leaks
NO_SESSION = b"Unable to establish"
NO_CIPHER = b"Error in open session response message"
QUICK = 3.0  # seconds; if no BMC answers, ipmitool prints the same message after 20
AGAIN_S = (0.5, 1.5)  # before the second try after a refusal: random, so that two runs differ
REFUSED = "it refuses the session: the user, the password or the user's privilege is wrong"


class Ipmi:
    """The IPMI service of a BMC. Reads until `end`, by time.monotonic()."""

    def __init__(self, bmc: Bmc, password: str, end: float) -> None:
        self._bmc, self._password, self._end = bmc, password, end
        self._cipher = CIPHER
        self._is_slow = bmc.timeout > SLOW_S
        self._fatal: FatalError | None = None

    def run(self, *words: str) -> str:
        """What ipmitool prints for a command. Raises BmcError."""
        return self._once(words, (*READING, *(SLOW if self._is_slow else ())))

    def order(self, *words: str) -> None:
        """Ask for a change, in one packet that is never sent again: a slow BMC would do it twice.
        Raises BmcError."""
        self._once(words, (*ORDERING, "-N", str(SLOW_S if self._is_slow else ORDERING_S)))

    def _once(self, words: Sequence[str], session: Sequence[str]) -> str:
        if self._fatal is not None:
            raise self._fatal
        try:
            return self._run(words, session)
        except FatalError as error:
            self._fatal = error
            raise

    def _run(self, words: Sequence[str], session: Sequence[str]) -> str:
        done = self._opened(words, session)
        if done is None:  # a BMC may refuse one of two sessions that begin at once
            time.sleep(random.uniform(*AGAIN_S))  # noqa: S311
            done = self._opened(words, session)
        if done is None:
            raise RefusedLoginError(REFUSED)
        if done.returncode:
            raise BmcError(f"ipmitool {words[0]}: {last_line(done.stderr) or done.returncode}")
        if len(done.stdout) > MOST_BYTES:
            raise BmcError(f"ipmitool {words[0]} printed more than {MOST_BYTES >> 20} MiB")
        return done.stdout.decode("utf-8", "backslashreplace")

    def _opened(
        self, words: Sequence[str], session: Sequence[str]
    ) -> subprocess.CompletedProcess[bytes] | None:
        """A command that ran in a session; None if the BMC refuses the session. Raises FatalError
        if no BMC answers."""
        began = time.monotonic()
        done = self._ended(words, session)
        if NO_CIPHER in done.stderr and self._cipher != OLD_CIPHER:
            self._cipher = OLD_CIPHER
            done = self._ended(words, session)
        if NO_SESSION not in done.stderr:
            return done
        if time.monotonic() - began >= QUICK:
            raise FatalError("no answer")
        return None

    def _ended(
        self, words: Sequence[str], options: Sequence[str]
    ) -> subprocess.CompletedProcess[bytes]:
        bmc = self._bmc
        session = ("-I", "lanplus", "-C", self._cipher, *options, "-f", "/dev/stdin")
        address = ("-H", bmc.address, "-p", str(bmc.port or 623), "-U", bmc.user)
        try:
            return subprocess.run(
                ("ipmitool", *session, *address, "-c", *words),
                input=f"{self._password}\n".encode(),
                capture_output=True,
                timeout=max(0.1, self._end - time.monotonic()),
                env=ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FatalError("no answer in time") from None
        except OSError as error:
            raise FatalError(f"cannot run ipmitool here: {error.strerror}") from None


def read(service: Ipmi) -> RecordFields:
    """The fields of the section. Raises BmcError if not even the power state can be read."""
    status = facts(service.run("chassis", "status"))
    fields = RecordFields(kind="ipmi", power=text(status.get("System Power"), lower=True))
    controller = fields.take("firmware", lambda: facts(service.run("mc", "info"))) or {}
    fields["firmware"] = text(controller.get("Firmware Revision"))
    fields.take("system_uuid", lambda: system_uuid(service))
    fields.take("serials", lambda: serials(service))
    total, is_full = fields.take("events_total", lambda: _log(service)) or (None, False)
    fields["events_total"] = total
    if is_full:
        fields.fail("events_total", FULL_LOG)
    fields.take("power_limit_w", lambda: power_limit(service.run("dcmi", "power", "get_limit")))
    lines = fields.take("parts", lambda: _sensors(service)) or []
    fields["parts"] = renamed([*parts(lines)]) if fields["parts"] is not None else None
    fields["parts_found"] = sum(not ABSENT.search(line) for line in lines)
    fields["inlet_c"] = inlet(fields["parts"] or [])
    fields.take("events", lambda: _events(service, total))  # last: a long log takes minutes
    fields["events_found"] = min(total or 0, MOST_EVENTS)
    fields.setdefault("errors", {})["attributes"] = "IPMI has no BIOS attributes"
    return fields


def system_uuid(service: Ipmi) -> str | None:
    """Get System GUID: its 16 bytes as a UUID, in the order of the answer. BMCs disagree on that
    order. Raises BmcError."""
    return guid(service.run("raw", "0x06", "0x37"))


def guid(output: str) -> str | None:
    """The bytes of a GUID as a UUID; None if these are not 16 bytes.

    >>> guid(" 32 4d 4e 4f c0 b4 52 80 10 35 51 00 44 45 4c 4c")
    '324d4e4f-c0b4-5280-1035-510044454c4c'
    """
    digits = "".join(output.split())
    return str(UUID(digits)) if re.fullmatch("[0-9a-f]{32}", digits) else None


def serials(service: Ipmi) -> list[str]:
    """The serial numbers of the product and its board, from the BMC's own FRU; not that of the
    chassis, which several nodes may share. Raises BmcError."""
    fru = facts(service.run("fru", "print", "0"))
    return [*filter(None, (text(fru.get(f"{name} Serial")) for name in ("Product", "Board")))]


def facts(output: str) -> dict[str, str]:
    """Lines such as `System Power : on`.

    >>> facts("System Power         : on")
    {'System Power': 'on'}
    """
    pairs = (line.partition(":") for line in output.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def power_limit(output: str) -> float | None:
    """In watts; None if no limit is active."""
    limit = re.search(r"Power Limit: +(\d+)", output)
    active = re.search(r"Current Limit State: +Power Limit Active", output)
    return float(limit[1]) if limit and active else None


def _log(service: Ipmi) -> tuple[int, bool]:
    """How many entries the log has, and whether it is full, so that the BMC drops new ones."""
    log = facts(service.run("sel", "info"))
    total = log.get("Entries", "")
    if not total.isdigit():
        raise BmcError("ipmitool sel info does not say how many entries there are")
    return int(total), log.get("Overflow") == "true"


def _events(service: Ipmi, total: int | None) -> list[RecordFields] | None:
    """The newest entries, at most MOST_EVENTS."""
    if not total:
        return None if total is None else []
    now = clock(service.run("raw", "0x0a", "0x48"))
    lines = service.run("sel", "elist", "last", str(min(total, MOST_EVENTS)))
    return events(lines, now, time.time())


def clock(output: str) -> int | None:
    """Get SEL Time: four bytes, the lowest first.

    >>> clock(" a9 03 00 00")
    937
    """
    digits = output.split()
    if len(digits) != 4 or not all(re.fullmatch("[0-9a-f]{2}", pair) for pair in digits):
        return None
    return int.from_bytes(bytes.fromhex("".join(digits)), "little")


def events(output: str, now: int | None, here: float) -> list[RecordFields]:
    """The entries of `sel elist`, the newest first. Ages are by the BMC's clock `now`; an entry is
    no older than the one before it, even if the clock was years behind when it was logged, and
    `least_s` says how young it may be then. `here`: the time of this machine."""
    ended: set[tuple[str, str]] = set()
    entries = []
    for line in reversed(output.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 5:
            continue
        number, day, clock_time, part, words = fields[:5]
        direction = fields[5] if len(fields) > 5 else ""
        at = event_time(day, clock_time)
        if direction == ENDED:
            ended.add((part, words))
        is_of_one_clock = now is not None and at is not None and (at < SET) == (now < SET)
        entries.append(
            RecordFields(
                id=text(number) or "?",
                age_s=now - at if is_of_one_clock else None,  # type: ignore[operator]
                part=text(part),
                severity="critical" if words.lower() in CRITICAL else "",
                text=text(words),
                ended=direction != "Asserted" or (part, words) in ended,
            )
        )
    logged = entries[::-1]
    ahead = 0.0 if now is None or now - here < ZONES else now - here
    youngest: int | None = None
    for entry, least in zip(
        logged, least_ages([entry["age_s"] for entry in logged], ahead), strict=True
    ):
        age = entry["age_s"]
        if age is not None and age < -SLACK:
            age = youngest
        if age is not None and youngest is not None:
            age = min(age, youngest)
        entry |= {"age_s": age, "least_s": least}
        youngest = age if age is not None and age >= 0 else youngest
    return entries


def event_time(day: str, clock_time: str) -> int | None:
    """Seconds since 1970, or since the BMC's start if its clock was not set.

    >>> event_time("Pre-Init", "0000000936"), event_time("01/02/1999", "00:00:00")
    (936, 915235200)
    """
    if day == "Pre-Init":
        return int(clock_time) if clock_time.isdigit() else None
    for form in ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S"):
        try:
            at = datetime.strptime(f"{day} {clock_time.split(' ', maxsplit=1)[0]}", form)
        except ValueError:
            continue
        return int(at.replace(tzinfo=timezone.utc).timestamp())
    return None


def _sensors(service: Ipmi) -> list[str]:
    """The lines of `sdr elist`. For an empty repository, ipmitool prints that it was erased."""
    count = facts(service.run("sdr", "info")).get("Record Count", "")
    if not count.isdigit():
        raise BmcError("ipmitool sdr info does not say how many sensors there are")
    if int(count) == 0:
        return []
    return service.run("sdr", "elist").splitlines()


def parts(lines: Sequence[str]) -> Iterator[RecordFields]:
    """The sensors that have a reading.

    >>> [(part["name"], part["health"], part["state"]) for part in parts(["FAN1,90,RPM,lcr"])]
    [('FAN1', 'critical', 'lcr')]
    """
    for line in lines:
        if ABSENT.search(line):
            continue
        if match := DISCRETE.fullmatch(line):
            name, _, _, _, state = match.groups()
            value, unit = None, ""
            failed = any(word.strip().lower() in CRITICAL for word in state.split(","))
            health = "critical" if failed else None
        elif match := ANALOG.fullmatch(line):
            name, reading, unit, state = match.groups()
            value = _reading(reading)
            health = HEALTHS.get(state if state == "ok" else state[-2:])
        else:
            continue
        yield RecordFields(
            kind="sensor",
            name=text(name) or "?",
            health=health,
            state=text(state) or "",
            reading=value,
            unit=text(unit),
        )


def leak_detectors(service: Ipmi) -> list[RecordFields]:
    """The sensors that detect leaks, by their names. Raises BmcError."""
    return [*leaks(_sensors(service))]


def leaks(lines: Sequence[str]) -> Iterator[RecordFields]:
    """The sensors of leaks, also those without a reading, unless they are disabled.

    >>> lines = ["Leak1,30h,ok,7.1,", "Leak2,31h,ns,7.1,No Reading", "Leak3,32h,ns,7.1,Disabled"]
    >>> [(part["name"], part["state"]) for part in leaks(lines)]
    [('Leak1', ''), ('Leak2', 'no reading')]
    """
    for line in lines:
        name = line.partition(",")[0]
        if "leak" not in name.lower() or line.endswith(",Disabled"):
            continue
        unread = RecordFields(name=text(name) or "?", health=None, state=NO_READING)
        yield next(parts([line]), unread)


def _reading(reading: str) -> float | None:
    try:
        return number(float(reading))
    except ValueError:
        return None
