"""Which packages are of NVIDIA's driver, by their names and versions. Pure."""

from nodevet.remote.probe.patterns import Pattern

OF_NVIDIA = Pattern(
    r"(?:lib|a?kmod-|dkms-|firmware-|glx-alternative-|xserver-xorg-video-|xorg-x11-drv-"
    r"|linux-(?:modules|objects|signatures)-)?nvidia(?:[0-9-]|\Z)|cuda-drivers(?:-|\Z)"
)
DRIVER_VERSION = Pattern(r"(?:[0-9]+:)?([0-9]{2,4}(?:\.[0-9]+){1,2})(?=[-+~_]|\Z)")


def driver_version_in(version: str) -> "str | None":
    """The driver's version in a package's version, or None.

    >>> driver_version_in("1:550.90.07-0ubuntu0.22.04.1"), driver_version_in("6.8.0-40.40+1")
    ('550.90.07', None)
    """
    match = DRIVER_VERSION.match(version)
    return match.group(1) if match and int(match.group(1).split(".")[0]) >= 100 else None


def is_of_driver(name: str, version: str, running: "str | None") -> bool:
    """Whether a package may be of NVIDIA's driver, by its name or version."""
    return bool(OF_NVIDIA.match(name)) or (
        running is not None and driver_version_in(version) == running
    )
