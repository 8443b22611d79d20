"""What `nodevet pass show` says in JSON."""

from msgspec import Struct


class PassAnswer(Struct, frozen=True, kw_only=True):
    """What a pass says, and whether it holds on this node."""

    host: str  # its name on the controller
    machine: str  # /etc/machine-id
    boot: str  # /proc/sys/kernel/random/boot_id
    uptime: int  # seconds since boot when it was vetted
    driver: str  # /sys/module/nvidia/version; none: no driver
    gpus: tuple[str, ...]  # UUIDs, sorted
    baselines: tuple[str, ...]  # SHA-256 and name
    evidence: str  # SHA-256 of the evidence that passed
    vetted: str  # by the controller's clock, ISO 8601
    expires: str  # ISO 8601
    nodevet: str  # the controller's version
    valid: bool  # what `nodevet pass verify` says
    why: str
