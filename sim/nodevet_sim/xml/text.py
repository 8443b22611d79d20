"""How one text of `nvidia-smi -q -x` is read: numbers with units, words, errors. Pure.

A reader takes the text and gives the value as an NVML state writes it; it raises ValueError or
LookupError if the text has another form.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from xml.etree.ElementTree import Element

from nodevet_sim.xml.document import XmlDocument

Read = Callable[[str], str]

NOTHING = ("", "n/a", "none", "not supported")
NOT_AVAILABLE = "not available"  # and why: `in WDDM driver model`, on Windows
WITHHELD = (
    "redacted",
    "removed",
    "hidden",
    "masked",
    "withheld by nvidia-smi",
)  # by whoever sent the file
ERRORS = {  # nvmlErrorString, which nvidia-smi prints in the place of a value
    "uninitialized": "NVML_ERROR_UNINITIALIZED",
    "invalid argument": "NVML_ERROR_INVALID_ARGUMENT",
    "insufficient permissions": "NVML_ERROR_NO_PERMISSION",
    "not found": "NVML_ERROR_NOT_FOUND",
    "insufficient size": "NVML_ERROR_INSUFFICIENT_SIZE",
    "insufficient external power": "NVML_ERROR_INSUFFICIENT_POWER",
    "timeout": "NVML_ERROR_TIMEOUT",
    "interrupt request issue": "NVML_ERROR_IRQ_ISSUE",
    "function not found": "NVML_ERROR_FUNCTION_NOT_FOUND",
    "corrupted inforom": "NVML_ERROR_CORRUPTED_INFOROM",
    "gpu is lost": "NVML_ERROR_GPU_IS_LOST",
    "gpu requires reset": "NVML_ERROR_RESET_REQUIRED",
    "gpu requires restart": "NVML_ERROR_RESET_REQUIRED",
    "the operating system has blocked the request.": "NVML_ERROR_OPERATING_SYSTEM",
    "insufficient memory": "NVML_ERROR_MEMORY",
    "insufficient resources": "NVML_ERROR_INSUFFICIENT_RESOURCES",
    "not ready": "NVML_ERROR_NOT_READY",
    "invalid state": "NVML_ERROR_INVALID_STATE",
    "requested functionality has been deprecated": "NVML_ERROR_DEPRECATED",
    "unknown error": "NVML_ERROR_UNKNOWN",
    "err!": "NVML_ERROR_UNKNOWN",
}
VIRTUALIZATION = {
    "none": "NONE",
    "pass-through": "PASSTHROUGH",
    "vgpu": "VGPU",
    "host vgpu": "HOST_VGPU",
    "host vsga": "HOST_VSGA",
}
RECOVERY = {
    "none": "NONE",
    "reset": "GPU_RESET",
    "gpu_reset": "GPU_RESET",
    "reboot": "NODE_REBOOT",
    "node_reboot": "NODE_REBOOT",
    "drain_p2p": "DRAIN_P2P",
    "drain_and_reset": "DRAIN_AND_RESET",
}


def text(shown: str) -> str:
    """A text, unchanged. Refuses a text that the library would read as an order."""
    if "\n" in shown or len(shown.encode()) > 255:
        raise ValueError("not one line of at most 255 bytes")
    if shown == "hang" or shown.startswith("NVML_ERROR_"):
        raise ValueError("reserved for the simulated library")
    return shown


def identity(shown: str) -> str:
    """A text that no two GPUs share, so no placeholder for a withheld value."""
    if plainly(shown) in WITHHELD:
        raise ValueError("withheld by nvidia-smi")
    return text(shown)


def word(shown: str) -> str:
    """The name of an NVML constant: In Progress -> IN_PROGRESS."""
    return identity(shown.upper().replace(" ", "_"))


def architecture(shown: str) -> str:
    return "ADA" if shown == "Ada Lovelace" else word(shown)


def switch(shown: str) -> str:
    return {"Enabled": "1", "Yes": "1", "Disabled": "0", "No": "0"}[shown]


def quantity(unit: str, scale: int = 1, *, signed: bool = False) -> Read:
    """A reader of numbers of this unit; the result is an integer, multiplied by `scale`."""
    sign = "-?" if signed else ""
    pattern = re.compile(rf"({sign}[0-9]{{1,15}}(?:\.[0-9]{{1,3}})?) ?{re.escape(unit)}")

    def read(shown: str) -> str:
        match = pattern.fullmatch(shown)
        number = Decimal(match[1]) * scale if match else Decimal("NaN")
        if number.is_nan() or number != int(number):
            raise ValueError(f"not a number{f' of {unit}' if unit else ''}")
        return str(int(number))

    return read


def pci_id(shown: str) -> str:
    """233010DE -> 10de:2330"""
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{4})([0-9a-fA-F]{4})", shown)
    if match is None:
        raise ValueError("not eight hex digits")
    return f"{match[2]}:{match[1]}".lower()


def bus_id(shown: str) -> str:
    """As sysfs spells it: 00000000:3B:00.0 -> 0000:3b:00.0"""
    match = re.fullmatch(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2}\.[0-7])", shown)
    if match is None:
        raise ValueError("not a PCI address as 00000000:3B:00.0")
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}".lower()


def pstate(shown: str) -> str:
    return re.fullmatch(r"P([0-9]{1,2})", shown)[1]  # type: ignore[index]


def recovery(shown: str) -> str:
    return RECOVERY[shown.lower().replace(" ", "_")]


plain, mebibytes = quantity(""), quantity("MiB", 1 << 20)
percent, megahertz, watts = quantity("%"), quantity("MHz"), quantity("W", 1000)
microseconds = quantity("us", 1000)  # in nanoseconds
celsius, banks, lanes = quantity("C", signed=True), quantity("bank(s)"), quantity("x")


def element_text(element: Element | None) -> str:
    return ("" if element is None else element.text or "").strip()


def plainly(text: str) -> str:
    """For comparison: without brackets, in lower case."""
    return text.removeprefix("[").removesuffix("]").strip().lower()


def is_nothing(text: str) -> bool:
    """Whether nvidia-smi says that there is no such value."""
    return plainly(text) in NOTHING or plainly(text).startswith(NOT_AVAILABLE)


def virtualization(shown: str) -> str:
    """As NVML names it; `None` is a value of this one."""
    return VIRTUALIZATION[shown.lower()]


def convert(document: XmlDocument, element: Element | None, read: Read) -> str | None:
    """The state's value of one element: None if it has none, or the name of the NVML
    error that nvidia-smi printed. Raises StateError."""
    text = element_text(element)
    if element is None or is_nothing(text):
        return None
    if plainly(text) in ERRORS:
        return ERRORS[plainly(text)]
    try:
        return read(text)
    except (ValueError, LookupError, TypeError) as error:
        if plainly(text) in WITHHELD:
            return "NVML_ERROR_UNKNOWN"
        why = str(error) if type(error) is ValueError else "nvidia-smi has no such word"
        raise document.error(
            element, f"<{element.tag}> is {text[:80]!r}: {why}; correct it, or write N/A"
        ) from None
