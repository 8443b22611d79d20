"""What the node is now, from /proc and /sys, and how it differs from its pass.

NVML takes seconds to start; the driver's files take a millisecond.
"""

import os
import time

from nodevet.passes.document import NONE, Pass

SKEW = 300  # seconds that the node's clock may be behind the controller's
LARGEST = 1 << 16  # bytes of a file
GPUS = "proc/driver/nvidia/gpus"


def difference(values: Pass, root: str = "/") -> str:
    """Why a pass does not hold for this node as it is now; "" if it does.

    A value that cannot be read is a difference. `root`: where /proc, /sys and /etc lie.
    """
    try:
        return _identity(values, root) or _times(values, root) or _gpus(values, root)
    except OSError as error:
        return f"cannot read {error.filename}: {error.strerror}"
    except ValueError as error:
        return str(error)


def seconds_left(values: Pass, root: str = "/") -> float:
    """Until the pass expires, by the clock or by the uptime, whichever is sooner. Raises OSError
    and ValueError."""
    vetted, expires = int(values["vetted"][0]), int(values["expires"][0])
    elapsed = _uptime(root) - int(values["uptime"][0])
    return min(expires - time.time(), expires - vetted - elapsed)


def _identity(values: Pass, root: str) -> str:
    host = values["host"][0]
    if _line(root, "etc/machine-id") != values["machine"][0]:
        return f"it is a pass of another machine, {host}: the machine ids differ"
    if _line(root, "proc/sys/kernel/random/boot_id") != values["boot"][0]:
        return "the node was rebooted since it was vetted: the boot ids differ"
    driver, vetted = _driver(root), values["driver"][0]
    if driver == vetted:
        return ""
    now, then = ("not loaded" if version == NONE else version for version in (driver, vetted))
    return f"the NVIDIA driver is {now}, and was {then} when it was vetted"


def _times(values: Pass, root: str) -> str:
    """The uptime counts too: nobody can set it back within a boot."""
    behind = int(values["vetted"][0]) - time.time()
    if behind > SKEW:
        return f"the clock is {behind:.0f} s behind the pass: correct the clock, then gate again"
    seconds = seconds_left(values, root)
    if seconds <= 0:
        return f"it expired {-seconds:.0f} s ago"
    if _uptime(root) < int(values["uptime"][0]):
        return "the node has been up for less time than when it was vetted"
    return ""


def _gpus(values: Pass, root: str) -> str:
    now, vetted = uuids(root), list(values["gpu"])
    if sorted(now) == sorted(vetted):
        return ""
    new = ", ".join(sorted(set(now) - set(vetted)))
    gone = ", ".join(sorted(set(vetted) - set(now)))
    parts = [f"not vetted: {new}" if new else "", f"missing: {gone}" if gone else ""]
    return "other GPUs than when it was vetted: " + (
        "; ".join(filter(None, parts)) or "a UUID twice"
    )


def uuids(root: str) -> list[str]:
    """The UUIDs of the GPUs that the driver has and does not exclude. Raises OSError and
    ValueError."""
    try:
        places = os.listdir(os.path.join(root, GPUS))
    except FileNotFoundError:
        return []
    return [uuid for place in places if (uuid := _uuid(root, f"{GPUS}/{place}/information"))]


def _uuid(root: str, path: str) -> str:
    """`GPU-...`; "" for a GPU that the driver excludes."""
    rows = (row.partition(":") for row in _read(root, path).splitlines())
    facts = {name.strip(): value.strip() for name, _, value in rows}
    if facts.get("GPU Excluded") == "Yes":
        return ""
    uuid = facts.get("GPU UUID", "")
    if not uuid or "?" in uuid:
        raise ValueError(
            f"/{path} has no UUID: the driver has not initialized this GPU; start "
            "nvidia-persistenced, which keeps it initialized"
        )
    return uuid


def _driver(root: str) -> str:
    try:
        return _line(root, "sys/module/nvidia/version")
    except FileNotFoundError:
        return NONE


def _uptime(root: str) -> float:
    return float(_line(root, "proc/uptime").split(" ")[0])


def _line(root: str, path: str) -> str:
    """A file's text. Raises OSError, and ValueError if it is empty."""
    text = _read(root, path).strip()
    if not text:
        raise ValueError(f"/{path} is empty")
    return text


def _read(root: str, path: str) -> str:
    file = os.open(os.path.join(root, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(file, LARGEST).decode()
    finally:
        os.close(file)
