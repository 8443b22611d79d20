"""The kinds of resources: one for each file in state/, which holds all that a node is asked of it.

look(root, name)      how it is now: see nodevet.remote.look
patterns(root, name)  what others would have written who set it too: see nodevet.remote.managers
"""

import importlib
import pkgutil

from nodevet.remote import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def kind(name: str) -> "ModuleType | None":
    """The module of a kind; None if there is no such file."""
    if name not in {module.name for module in pkgutil.iter_modules(state.__path__)}:
        return None
    return importlib.import_module("{}.{}".format(state.__name__, name))
