"""The text of a pass: one fact a line, in a fixed order, then its signature. Pure.

`nodevet pass verify` runs before every job, so this module imports next to nothing.
"""

from collections.abc import Mapping, Sequence

HEAD = "nodevet-pass 1"
NAMESPACE = "nodevet-pass@v1"
FILE = "/run/nodevet/pass"
ALLOWED = "/etc/nodevet/allowed_signers"
NONE = "none"  # the driver of a node without one
LARGEST = 1 << 16  # bytes of a pass with its signature, and of allowed_signers
FIELDS = (
    "host",  # its name on the controller
    "machine",  # /etc/machine-id
    "boot",  # /proc/sys/kernel/random/boot_id
    "uptime",  # seconds since boot when it was vetted
    "driver",  # /sys/module/nvidia/version
    "gpu",  # UUIDs, sorted; on as many lines as there are GPUs
    "baseline",  # SHA-256 and name
    "evidence",  # SHA-256 of the evidence that passed
    "vetted",  # by the controller's clock, seconds since 1970 UTC
    "expires",
    "nodevet",  # the controller's version
)
REPEATED = ("gpu", "baseline")
NUMBERS = ("uptime", "vetted", "expires")
MOST_DIGITS = 15

_BEGIN = b"-----BEGIN SSH SIGNATURE-----\n"

Pass = Mapping[str, Sequence[str]]
"""The values of each of FIELDS; one, except of those that are REPEATED."""


class PassError(Exception):
    """Why there is no valid pass; one line."""


def text_of(values: Pass) -> bytes:
    """The text that is signed. Raises PassError for values that cannot be read back."""
    lines = [HEAD, *(f"{name} {value}" for name in FIELDS for value in values[name])]
    text = "".join(f"{line}\n" for line in lines).encode()
    if parse(text) != {name: list(values[name]) for name in FIELDS}:
        raise PassError("a value has a line break or another control character")
    return text


def split(data: bytes) -> tuple[bytes, bytes]:
    """The signed text of a pass, and its signature. Raises PassError."""
    text, begin, rest = data.partition(_BEGIN)
    if not begin:
        raise PassError("the pass has no signature")
    return text, begin + rest


def parse(text: bytes) -> dict[str, list[str]]:
    """The values in a text. Refuses every other text with PassError: another order, a line twice,
    a line that is missing or unknown."""
    try:
        head, *lines = text.decode().split("\n")
    except UnicodeDecodeError as error:
        raise PassError("the pass is not UTF-8 text") from error
    if head != HEAD:
        raise PassError(f"the pass does not begin with {HEAD!r}; another version wrote it")
    values: dict[str, list[str]] = {name: [] for name in FIELDS}
    place = 0
    for line in lines[:-1]:
        name, _, value = line.partition(" ")
        if name not in FIELDS[place:] or not value or not value.isprintable():
            raise PassError("a line of the pass is unknown, misplaced or repeated")
        place = FIELDS.index(name) + (name not in REPEATED)
        values[name].append(value)
    if lines[-1:] != [""] or not all(values[name] for name in FIELDS if name != "gpu"):
        raise PassError("the pass lacks a line")
    for name in NUMBERS:
        number = values[name][0]
        if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
            raise PassError(f"the {name} of the pass is not a number")
    return values
