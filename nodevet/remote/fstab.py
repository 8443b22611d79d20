"""Swap in /etc/fstab: fstab(5), and swapon(8), which skips `noauto` at boot."""

PATH = "/etc/fstab"


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
