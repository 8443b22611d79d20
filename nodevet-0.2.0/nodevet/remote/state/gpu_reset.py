"""What a GPU needs a reset for, by its UUID and what NVML says of it."""

from nodevet.remote.look import present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.state.gpu import prepare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

__all__ = ["look", "patterns", "prepare"]

PENDING = (
    ("remapping", "pending"),
    ("retired_pages", "pending"),
    ("repair", "channel_pending"),
    ("repair", "tpc_pending"),
)
ACTIONS = ("GPU_RESET", "DRAIN_AND_RESET")
RESET_REQUIRED = "NVML_ERROR_RESET_REQUIRED"


def look(root: str, uuid: str, section: "dict[str, Any]") -> "dict[str, object]":
    """{needed_for: [remapping.pending, GPU_RESET, ...]}; unknown if NVML gives no handle."""
    if section["status"] != "ok":
        return unknown("NVML: " + section["why"])
    for gpu in section["data"].get("gpus") or ():
        if uuid and gpu.get("uuid") == uuid:
            why = gpu["errors"].get("handle")
            return unknown(why) if why else present({"needed_for": list(needs(gpu))})
    return unknown("no GPU has this UUID")


def needs(gpu: "dict[str, Any]") -> "Iterator[str]":
    """What a reset ends: pending repairs, the recovery action, NVML_ERROR_RESET_REQUIRED."""
    for part, field in PENDING:
        if gpu[part][field]:
            yield "{}.{}".format(part, field)
    if gpu["recovery_action"] in ACTIONS:
        yield gpu["recovery_action"]
    records = [gpu] + [part for part in gpu.values() if isinstance(part, dict)]
    if any(RESET_REQUIRED in record.get("errors", {}).values() for record in records):
        yield RESET_REQUIRED


def patterns(root: str, uuid: str) -> "Patterns":
    """Nothing else manages it: a reset is no setting."""
    return Patterns()
