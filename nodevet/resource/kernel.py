"""A file of sysfs or of /proc/sys: a setting of the running kernel."""

from nodevet.resource.core import Action


class WriteKernel(Action, frozen=True, kw_only=True, tag="kernel"):
    """One write to a file of /sys or /proc/sys."""

    path: str
    value: str
