"""Section bmc: what a node's management controller reports. nodevet reads it from the controller's
machine, beside the visit of the node."""

from typing import Annotated

from nodevet.base.bounds import FIELDS, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

EVENTS = at_most(512)  # the newest; nodevet keeps 256
ASKED = at_most(512)  # attributes; baselines may ask for 500 things
SERIALS = at_most(8)  # of the system and its board; nodevet keeps 4
PARTS = at_most(4096)  # sensors, supplies, fans; nodevet keeps 2,048


class BmcEvent(Record, frozen=True, kw_only=True):
    """An entry of the event log (SEL)."""

    volatile = ("age_s", "least_s")

    id: Text  # Redfish: with the path of its log
    age_s: int | None = None  # by the BMC's own clock; None: not known
    least_s: int | None = None  # how young it may be; None: its age is right
    severity: Text | None = None  # ok, warning, critical; "" if the BMC does not grade it
    part: Text | None = None  # IPMI: the sensor
    text: Text | None = None
    ended: bool = False  # Redfish: Resolved; IPMI: deasserted by a later entry


class BmcPart(Record, frozen=True, kw_only=True):
    """A sensor, power supply, fan, leak detector or redundancy."""

    volatile = ("reading",)

    kind: Text  # psu, redundancy, fan, temperature, leak, sensor
    name: Text  # no two of a kind have the same
    health: Text | None = None  # what the BMC says: ok, warning, critical
    state: Text | None = None  # Redfish: Enabled; IPMI: ucr, or `Power Supply AC lost`
    reading: float | None = None
    unit: Text | None = None  # Cel, degrees C, RPM, %


class BiosAttribute(Record, frozen=True, kw_only=True):
    """A setting of the BIOS. Redfish: Attributes of Bios."""

    name: Text
    value: Text | None = None  # Enabled, 4, True


class BmcInfo(SectionRecord, frozen=True, kw_only=True):
    """What the BMC answers. Redfish: DSP0268; IPMI: ipmitool(1)."""

    volatile = ("power_w", "inlet_c")
    unique = ("events[].id", "parts[].kind+name", "attributes[].name")

    kind: Text | None = None  # redfish or ipmi
    power: Text | None = None  # as the BMC says it, in lower case: on, off, poweringoff, ...
    vendor: Text | None = None  # of the system, as the model
    model: Text | None = None
    system_uuid: Text | None = None  # UUID; IPMI: Get System GUID, its bytes as they are sent
    # SerialNumber, and SKU, in which Dell has the service tag; IPMI: of the FRU's product and board
    serials: Annotated[tuple[Text, ...], SERIALS] | None = None
    firmware: Text | None = None  # of the BMC
    boot_progress: Text | None = None  # BootProgress.LastState
    boot_override: Text | None = None  # Once Pxe; "" if there is none
    bios: Annotated[dict[Text, Text], FIELDS] | None = None  # a few attributes
    attributes: Annotated[tuple[BiosAttribute, ...], ASKED] | None = None  # baselines name them
    power_w: float | None = None
    power_limit_w: float | None = None  # None without an error: no limit is set
    inlet_c: float | None = None
    events: Annotated[tuple[BmcEvent, ...], EVENTS] | None = None  # critical ones, the newest first
    events_found: int | None = None  # how many of them there are
    events_total: int | None = None  # with the older ones, which were not read
    parts: Annotated[tuple[BmcPart, ...], PARTS] | None = None
    parts_found: int | None = None
