"""What the management controller reports. Nothing on the node reads it: the machine that runs
nodevet asks the BMC over the network, beside the visit, and puts the answer here.
"""

from nodevet.remote.probe.files import Absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def collect(root: str, request: "dict[str, Any]") -> "NoReturn":
    raise Absent("the inventory names no BMC for it")
