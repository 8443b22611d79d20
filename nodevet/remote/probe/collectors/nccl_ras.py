"""What NCCL's RAS port says of a job's ranks, at the first look and at the last.

Read only if asked for, because asking has crashed jobs: nodevet.remote.probe.nccl_listener says
when nothing is asked. Nothing is asked again after an answer that failed.
"""

from nodevet.remote.probe.files import Reading, attempt
from nodevet.remote.probe.nccl_listener import find_listener
from nodevet.remote.probe.ras_client import ask
from nodevet.remote.probe.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
AFTER = ("gpu", "processes")  # as the other sections that watch


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    watch = Watch("nccl_ras", root, request)
    watch.interval = watch.duration_s
    section = Reading(not_asked="", answers=[])
    section.fail("nccl", "it was not read")
    for seconds in watch.looks():
        listener, why = attempt(find_listener, root, watch.options)
        if listener is None:
            if section["answers"]:
                section["errors"]["answers"] = why
            else:
                section["not_asked"] = why
            break
        section["nccl"] = listener.version
        section["errors"].pop("nccl", None)
        answer, why = attempt(ask, listener)
        if answer is None:
            section["errors"]["answers"] = why
            break
        answer["at_s"] = seconds
        section["answers"].append(answer)
    return section
