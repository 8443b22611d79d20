"""Swap and mounts in /etc/fstab: fstab(5), and swapon(8), which skips `noauto` at boot."""

import re

PATH = "/etc/fstab"
TAG = re.compile(r"(UUID|LABEL|PARTUUID|PARTLABEL)=")
ESCAPE = re.compile(r"\\([0-7]{3})")


def swap_fields(line: str) -> "tuple[str, list[str]] | None":
    """(device as written, options) of a swap line; None for any other line.

    >>> swap_fields("/swap none swap sw,nofail 0 0"), swap_fields("#/swap none swap sw 0 0")
    (('/swap', ['sw', 'nofail']), None)
    """
    fields = line.replace("\t", " ").split(" ")  # the only separators
    fields = [word for word in fields if word.strip()]
    if len(fields) < 3 or fields[0].startswith("#") or fields[2] != "swap":
        return None
    return fields[0], fields[3].split(",") if len(fields) > 3 else []


def is_on_at_boot(line: str) -> bool:
    """Whether a line turns swap on at boot.

    >>> is_on_at_boot("/swap none swap sw 0 0"), is_on_at_boot("/swap none swap noauto 0 0")
    (True, False)
    """
    fields = swap_fields(line)
    return fields is not None and "noauto" not in fields[1]


def mount_fields(line: str) -> "tuple[str, str, str, list[str]] | None":
    r"""(source as written, mount point, type, options) of a line; None for a comment or swap.

    >>> mount_fields("UUID=7 /a\\040b xfs noatime 0 2"), mount_fields("/swap none swap sw 0 0")
    (('UUID=7', '/a b', 'xfs', ['noatime']), None)
    """
    fields = line.split()
    if len(fields) < 3 or fields[0].startswith("#") or not fields[1].startswith("/"):
        return None
    source, point, kind = (unescape(field) for field in fields[:3])
    return source, point, kind, fields[3].split(",") if len(fields) > 3 else ["defaults"]


def unescape(text: str) -> str:
    r"""A text without the escapes of fstab(5) and mountinfo.

    >>> unescape(r"/a\040b")
    '/a b'
    """
    return ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text) if "\\" in text else text


def device_path(source: str) -> str:
    """The path of a device that is named by a tag.

    >>> device_path("UUID=7"), device_path("/dev/md0")
    ('/dev/disk/by-uuid/7', '/dev/md0')
    """
    return TAG.sub(lambda match: "/dev/disk/by-{}/".format(match.group(1).lower()), source, 1)


def mount_unit(path: str) -> str:
    r"""The name of the unit that mounts something at a path: systemd.mount(5), systemd-escape(1).

    >>> mount_unit("/local-nvme/a"), mount_unit("/")
    ('local\\x2dnvme-a.mount', '-.mount')
    """
    parts = [part for part in path.split("/") if part]
    name = "-".join(re.sub(r"[^A-Za-z0-9:_.]", _escaped, part) for part in parts)
    return re.sub(r"^\.", _escaped, name or "-") + ".mount"


def _escaped(match: "re.Match[str]") -> str:
    return "".join("\\x{:02x}".format(byte) for byte in match.group().encode())
