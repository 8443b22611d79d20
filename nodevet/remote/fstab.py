"""Swap in /etc/fstab: fstab(5), and swapon(8), which at boot leaves out what has `noauto`."""

PATH = "/etc/fstab"


def swap_fields(line: str) -> "tuple[str, list[str]] | None":
    """(device as it is written, options) of a line of a swap device; None of every other line.

    >>> swap_fields("/swap none swap sw,nofail 0 0"), swap_fields("#/swap none swap sw 0 0")
    (('/swap', ['sw', 'nofail']), None)
    """
    words = line.replace("\t", " ").split(" ")  # nothing else is between fields
    words = [word for word in words if word.strip()]
    if len(words) < 3 or words[0].startswith("#") or words[2] != "swap":
        return None
    return words[0], words[3].split(",") if len(words) > 3 else []


def is_on_at_boot(line: str) -> bool:
    """Whether a line turns swap on at boot.

    >>> is_on_at_boot("/swap none swap sw 0 0"), is_on_at_boot("/swap none swap noauto 0 0")
    (True, False)
    """
    fields = swap_fields(line)
    return fields is not None and "noauto" not in fields[1]
